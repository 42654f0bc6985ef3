//! How the wrapped error fits other types of errors.

use std::error::Error;
use std::future::Future;

use mainstay::proxied::{Cause, MethodError, Rules};

type AnyError = Box<dyn Error + Send + Sync>;

#[derive(Debug)]
struct Reset;
impl std::fmt::Display for Reset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("connection reset")
    }
}
impl Error for Reset {}

#[mainstay::proxied]
trait Fetch {
    fn fetch(&self) -> impl Future<Output = Result<u32, AnyError>> + Send;
}

struct Never;
impl Fetch for Never {
    async fn fetch(&self) -> Result<u32, AnyError> {
        Err(Box::new(Reset))
    }
}

#[tokio::test(start_paused = true)]
async fn a_boxed_error_is_made_by_a_closure() {
    let rules = Rules::wrapping(
        |error: &AnyError| error.is::<Reset>(),
        |error: MethodError<AnyError>| {
            let json = error.to_json();
            match error.into_cause() {
                Cause::Error(source) => format!("{json} {source}").into(),
                _ => json.into(),
            }
        },
    );
    let error = FetchProxy::new(Never, rules).fetch().await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(r#"{"method":"fetch","attempts":3,"#),
        "{text}"
    );
    assert!(text.ends_with("} connection reset"), "{text}");
}
