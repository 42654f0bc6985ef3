//! What an answer that is no success means.

use hyper::StatusCode;
use mainstay_engine::Sent;
use mainstay_message::ObjectError;

use crate::exchange::Answer;

/// A text of the store is cut after so many characters.
const TEXT_CHARS_MAX: usize = 300;

/// What the store complains about, in its own words.
pub(crate) struct Complaint {
    status: StatusCode,
    code: Option<String>,
    message: Option<String>,
}

impl Complaint {
    pub(crate) fn read(answer: &Answer) -> Self {
        let text = String::from_utf8_lossy(&answer.content);
        Complaint {
            status: answer.status,
            code: element(&text, "Code"),
            message: element(&text, "Message"),
        }
    }

    pub(crate) fn is_missing_bucket(&self) -> bool {
        self.code.as_deref() == Some("NoSuchBucket")
    }

    /// A 404 that does not say so is no store's word, but that of something in its place.
    pub(crate) fn is_missing(&self) -> bool {
        self.is_missing_bucket() || self.code.as_deref() == Some("NoSuchKey")
    }

    /// Somebody else has made the bucket.
    pub(crate) fn is_there_already(&self) -> bool {
        let code = self.code.as_deref();
        matches!(
            code,
            Some("BucketAlreadyOwnedByYou" | "BucketAlreadyExists")
        )
    }

    pub(crate) fn into_error(self) -> ObjectError {
        let reason = self.to_string();
        let is_refusal = match self.status {
            StatusCode::NOT_FOUND => self.is_missing_bucket(),
            StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => {
                false
            }
            status => status.is_client_error() || status.is_redirection(),
        };
        match is_refusal {
            true => ObjectError::Refused { reason },
            false => ObjectError::Failed {
                reason,
                sent: Sent::Maybe,
            },
        }
    }
}

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it answered {}", self.status.as_u16())?;
        match (&self.code, &self.message) {
            (Some(code), Some(message)) => write!(f, " {code} ({message})"),
            (Some(only), None) | (None, Some(only)) => write!(f, " {only}"),
            (None, None) if self.status == StatusCode::NOT_FOUND => {
                f.write_str(" without saying what is missing")
            }
            (None, None) => Ok(()),
        }
    }
}

/// The text of the first element of that name. Not an XML reader: what is none of S3's answers gives nothing.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    let is_shown = |c: &char| !c.is_control();
    let shown: String = inner
        .chars()
        .filter(is_shown)
        .take(TEXT_CHARS_MAX)
        .collect();
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ];
    let plain = entities
        .iter()
        .fold(shown, |text, (entity, sign)| text.replace(entity, sign));
    let plain = plain.trim();
    (!plain.is_empty()).then(|| plain.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(status: u16, content: &str) -> Complaint {
        Complaint::read(&Answer {
            status: StatusCode::from_u16(status).unwrap(),
            content_type: None,
            content: content.to_owned().into(),
        })
    }

    #[test]
    fn a_status_and_a_code_say_whether_it_is_refused_or_failed() {
        let xml = |code: &str| {
            format!("<?xml?><Error><Code>{code}</Code><Message>a &lt;b&gt;\u{7}</Message></Error>")
        };
        for (status, content, is_refused, text) in [
            (
                403,
                xml("AccessDenied"),
                true,
                "it answered 403 AccessDenied (a <b>)",
            ),
            (401, String::new(), true, "it answered 401"),
            (400, xml("InvalidBucketName"), true, "400 InvalidBucketName"),
            (301, xml("PermanentRedirect"), true, "301 PermanentRedirect"),
            (404, xml("NoSuchBucket"), true, "404 NoSuchBucket"),
            (
                404,
                "<html>".to_owned(),
                false,
                "404 without saying what is missing",
            ),
            (408, String::new(), false, "it answered 408"),
            (409, xml("OperationAborted"), false, "409 OperationAborted"),
            (429, String::new(), false, "it answered 429"),
            (500, "<Code>".to_owned(), false, "it answered 500"),
            (
                503,
                xml("SlowDown"),
                false,
                "it answered 503 SlowDown (a <b>)",
            ),
        ] {
            let error = complaint(status, &content).into_error();
            assert_eq!(
                matches!(error, ObjectError::Refused { .. }),
                is_refused,
                "{error}"
            );
            assert!(error.to_string().contains(text), "{error}, {text}");
        }
        assert!(complaint(404, &xml("NoSuchKey")).is_missing());
        assert!(!complaint(404, "not found").is_missing());
    }
}
