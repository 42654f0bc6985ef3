//! As much of PostgreSQL's version 3 protocol as the proxy needs, on bytes alone.

use anyhow::{Result, bail};
use bytes::{Buf, Bytes, BytesMut};

/// The largest client message that is looked at; a longer one ends the connection.
pub(super) const FRAME_MAX: usize = 64 << 20;

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// What a client sends before messages have a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Greeting {
    /// It asks for encryption; one byte is the answer.
    Encryption,
    /// It asks to cancel a statement of another connection.
    Cancel,
    /// It starts a session.
    Startup,
}

/// Takes a whole greeting off the buffer.
pub(super) fn greeting(buffer: &mut BytesMut) -> Result<Option<(Greeting, Bytes)>> {
    if buffer.len() < 8 {
        return Ok(None);
    }
    let length = number(buffer, 0) as usize;
    if !(8..=10_000).contains(&length) {
        bail!("a greeting of {length} bytes: the client does not speak PostgreSQL's protocol");
    }
    if buffer.len() < length {
        return Ok(None);
    }
    let kind = match number(buffer, 4) {
        SSL_REQUEST | GSS_REQUEST => Greeting::Encryption,
        CANCEL_REQUEST => Greeting::Cancel,
        _ => Greeting::Startup,
    };
    Ok(Some((kind, buffer.split_to(length).freeze())))
}

/// One message: its type and all its bytes, header included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) tag: u8,
    pub(super) bytes: Bytes,
}

impl Frame {
    /// What follows the header.
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[5..]
    }
}

/// The type and whole length of the message that begins the buffer, header included.
pub(super) fn header(buffer: &BytesMut) -> Result<Option<(u8, usize)>> {
    if buffer.len() < 5 {
        return Ok(None);
    }
    match number(buffer, 1) as usize {
        length @ 4.. => Ok(Some((buffer[0], length + 1))),
        length => bail!("a message says that it is {length} bytes long"),
    }
}

/// Takes a whole message off the buffer.
pub(super) fn frame(buffer: &mut BytesMut) -> Result<Option<Frame>> {
    let Some((tag, length)) = header(buffer)? else {
        return Ok(None);
    };
    if length > FRAME_MAX {
        bail!("a message of {length} bytes: the proxy looks at {FRAME_MAX} at most");
    }
    if buffer.len() < length {
        return Ok(None);
    }
    Ok(Some(Frame {
        tag,
        bytes: buffer.split_to(length).freeze(),
    }))
}

/// A parameter as it is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Whether the value is in PostgreSQL's binary form rather than in text.
    pub binary: bool,
    /// The bytes; `None` is NULL.
    pub value: Option<Bytes>,
}

impl Parameter {
    /// An integer of two, four or eight bytes, or its text.
    pub fn as_i64(&self) -> Option<i64> {
        let value = self.value.as_deref()?;
        match (self.binary, value.len()) {
            (false, _) => std::str::from_utf8(value).ok()?.parse().ok(),
            (true, 2) => Some(i16::from_be_bytes(value.try_into().ok()?).into()),
            (true, 4) => Some(i32::from_be_bytes(value.try_into().ok()?).into()),
            (true, 8) => Some(i64::from_be_bytes(value.try_into().ok()?)),
            (true, _) => None,
        }
    }

    /// The bytes as text: the value of a text parameter in either form.
    pub fn as_text(&self) -> Option<&str> {
        std::str::from_utf8(self.value.as_deref()?).ok()
    }
}

/// What a Bind message says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bind<'a> {
    pub(super) portal: &'a str,
    pub(super) statement: &'a str,
    pub(super) parameters: Vec<Parameter>,
}

impl<'a> Bind<'a> {
    /// Reads a Bind's body; `None` if it is cut short.
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let (portal, rest) = text(body)?;
        let (statement, mut rest) = text(rest)?;
        let formats = (0..rest.try_get_u16().ok()?)
            .map(|_| rest.try_get_u16().ok())
            .collect::<Option<Vec<_>>>()?;
        let parameters = (0..rest.try_get_u16().ok()?)
            .map(|at| {
                // None: all in text. One: it holds for all.
                let format = match formats.as_slice() {
                    [] => 0,
                    [all] => *all,
                    each => *each.get(usize::from(at))?,
                };
                Some(Parameter {
                    binary: format == 1,
                    value: value(&mut rest)?,
                })
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            portal,
            statement,
            parameters,
        })
    }
}

fn value(rest: &mut &[u8]) -> Option<Option<Bytes>> {
    let length = rest.try_get_i32().ok()?;
    let Ok(length) = usize::try_from(length) else {
        return Some(None);
    };
    if rest.len() < length {
        return None;
    }
    Some(Some(rest.copy_to_bytes(length)))
}

/// A text that ends in a zero byte, and what follows it.
pub(super) fn text(body: &[u8]) -> Option<(&str, &[u8])> {
    let end = body.iter().position(|byte| *byte == 0)?;
    Some((std::str::from_utf8(&body[..end]).ok()?, &body[end + 1..]))
}

/// The SQLSTATE of an ErrorResponse's body.
pub(super) fn sqlstate(mut body: &[u8]) -> Option<String> {
    while let Some((field, rest)) = body.split_first() {
        let (value, rest) = text(rest)?;
        if *field == b'C' {
            return Some(value.to_owned());
        }
        body = rest;
    }
    None
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_only_when_it_is_whole() {
        let whole = b"Q\0\0\0\x06a\0Z";
        for end in 0..7 {
            let mut buffer = BytesMut::from(&whole[..end]);
            assert_eq!(frame(&mut buffer).unwrap(), None, "{end} bytes");
            assert_eq!(buffer.len(), end);
        }
        let mut buffer = BytesMut::from(&whole[..]);
        let taken = frame(&mut buffer).unwrap().unwrap();
        assert_eq!((taken.tag, taken.body()), (b'Q', &b"a\0"[..]));
        assert_eq!(&buffer[..], b"Z");
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        for bytes in [&b"Q\0\0\0\x03"[..], b"Q\xff\xff\xff\xff"] {
            assert!(frame(&mut BytesMut::from(bytes)).is_err(), "{bytes:?}");
        }
        for bytes in [&b"\0\0\0\x07\0\0\0\0"[..], b"GET / HTTP/1.1"] {
            assert!(greeting(&mut BytesMut::from(bytes)).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn greetings_are_told_apart() {
        for (code, expected) in [
            (SSL_REQUEST, Greeting::Encryption),
            (GSS_REQUEST, Greeting::Encryption),
            (CANCEL_REQUEST, Greeting::Cancel),
            (196_608, Greeting::Startup),
        ] {
            let mut buffer = BytesMut::from(&[0, 0, 0, 8][..]);
            buffer.extend_from_slice(&code.to_be_bytes());
            let (kind, bytes) = greeting(&mut buffer).unwrap().unwrap();
            assert_eq!((kind, bytes.len()), (expected, 8));
        }
    }

    #[test]
    fn a_bind_gives_its_names_and_parameters_in_every_form() {
        let read = Bind::read(b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\0");
        let read = read.unwrap();
        assert_eq!((read.portal, read.statement), ("p", "s"));
        let values: Vec<_> = read.parameters.iter().map(Parameter::as_i64).collect();
        assert_eq!(values, [Some(7), None]);
        assert!(read.parameters.iter().all(|parameter| parameter.binary));

        let read = Bind::read(b"\0\0\0\0\0\x01\0\0\0\x02-4\0\0").unwrap();
        assert_eq!(read.parameters[0].as_i64(), Some(-4));
        assert_eq!(read.parameters[0].as_text(), Some("-4"));

        for cut in [&b"p\0s"[..], b"p\0s\0\0\x01", b"\0\0\0\0\0\x01\0\0\0\x09-4"] {
            assert_eq!(Bind::read(cut), None, "{cut:?}");
        }
    }

    #[test]
    fn an_error_gives_its_sqlstate() {
        assert_eq!(
            sqlstate(b"SERROR\0C23505\0Mno\0\0").as_deref(),
            Some("23505")
        );
        assert_eq!(sqlstate(b"SERROR\0\0"), None);
    }
}
