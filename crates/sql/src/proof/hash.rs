//! What a request is, in 32 bytes: the same work with the same values is the same request.

use bytes::Bytes;
use ring::digest::{Context, SHA256};

use super::stored::typed;
use crate::database::{Request, Work};
use crate::value::Value;

/// The SHA-256 of a request's verb, texts and values. Options such as deadlines are no part of it.
pub(crate) fn request_hash(request: &Request) -> Bytes {
    let mut hash = Hash(Context::new(&SHA256));
    hash.part(request.name.as_str().as_bytes());
    match &request.work {
        Work::Statement { text, params } => hash.step(text, params),
        Work::Many { text, params } => params.iter().for_each(|params| hash.step(text, params)),
        Work::Batch { steps } => steps
            .iter()
            .for_each(|(text, params)| hash.step(text, params)),
        Work::Script { statements } => statements.iter().for_each(|text| hash.step(text, &[])),
    }
    Bytes::copy_from_slice(hash.0.finish().as_ref())
}

struct Hash(Context);

impl Hash {
    /// Each part with its length before it, so that no two lists of parts are alike.
    fn part(&mut self, bytes: &[u8]) {
        let length = bytes.len() as u64;
        self.0.update(&length.to_be_bytes());
        self.0.update(bytes);
    }

    fn step(&mut self, text: &str, params: &[Value]) {
        self.part(text.as_bytes());
        self.0.update(&(params.len() as u64).to_be_bytes());
        for value in params {
            self.part(typed(value).to_string().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{Access, AnswerMax, Options};
    use mainstay_engine::Safety;

    fn hash(text: &str, params: Vec<Value>) -> Bytes {
        request_hash(&Request {
            name: "execute".into(),
            work: Work::Statement {
                text: text.into(),
                params,
            },
            safety: Safety::Write,
            access: Access::ReadWrite,
            options: Options::default(),
            answer_max: AnswerMax::default(),
            class: None,
        })
    }

    #[test]
    fn requests_differ_by_text_by_values_and_by_their_types() {
        let one = hash("INSERT", vec![Value::I64(1)]);
        assert_eq!(one.len(), 32);
        assert_eq!(one, hash("INSERT", vec![Value::I64(1)]));
        for other in [
            hash("INSERT ", vec![Value::I64(1)]),
            hash("INSERT", vec![Value::I64(2)]),
            hash("INSERT", vec![Value::Text("1".into())]),
            hash("INSERT", vec![Value::U64(1)]),
            hash("INSERT", vec![Value::I64(1), Value::Null]),
            hash("INSERT", vec![]),
            hash("INSERT", vec![Value::Array(vec![Value::I64(1)])]),
        ] {
            assert_ne!(one, other);
        }
    }
}
