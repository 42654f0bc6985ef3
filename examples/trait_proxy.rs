//! How do I protect every method of a trait?
//!
//! `cargo run -p mainstay --example trait_proxy`

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay::proxied::{MethodError, value};

#[derive(Debug)]
enum PriceError {
    Unreachable,
    UnknownArticle,
    GivenUp(MethodError<PriceError>),
}

impl fmt::Display for PriceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PriceError::Unreachable => f.write_str("the price service cannot be reached"),
            PriceError::UnknownArticle => f.write_str("there is no such article"),
            PriceError::GivenUp(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for PriceError {}

/// How the trait's own error carries a transient one that did not go away.
impl From<MethodError<PriceError>> for PriceError {
    fn from(error: MethodError<PriceError>) -> Self {
        PriceError::GivenUp(error)
    }
}

#[mainstay::proxied]
trait Prices {
    #[proxied(read)]
    async fn price(&self, article: &str) -> Result<u32, PriceError>;
    async fn discount(&self, article: &str) -> Result<u32, PriceError>;
}

/// Its first answer is an error, as of a service that is just being restarted; discounts never come.
struct Remote(AtomicU32);

impl Prices for Remote {
    async fn price(&self, article: &str) -> Result<u32, PriceError> {
        match (self.0.fetch_add(1, Ordering::Relaxed), article) {
            (0, _) => Err(PriceError::Unreachable),
            (_, "rope") => Ok(42),
            _ => Err(PriceError::UnknownArticle),
        }
    }

    async fn discount(&self, _article: &str) -> Result<u32, PriceError> {
        Err(PriceError::Unreachable)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let passes = |error: &PriceError| matches!(error, PriceError::Unreachable);
    let prices = PricesProxy::builder(Remote(AtomicU32::new(0)), passes)
        .retries(1)
        .build()?
        .fallback_discount(value(0));
    println!("rope: {}", prices.price("rope").await?);
    match prices.price("sail").await {
        Err(PriceError::UnknownArticle) => println!("sail: not for sale"),
        other => println!("sail: {other:?}"),
    }
    println!("discount: {}", prices.discount("rope").await?);
    Ok(())
}
