//! The port to stores of objects: where arguments and results are that messages only point to (data
//! handler `MINIO`).

use bytes::Bytes;
use mainstay_engine::{BoxFuture, Sent};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Where an object is, as the SDK writes it into the body of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ObjectPlace {
    /// The store's base address.
    pub minio_url: SmolStr,
    /// The bucket.
    pub minio_bucket: SmolStr,
    /// The object's name in it.
    pub minio_object_id: SmolStr,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its content.
    pub content: Bytes,
    /// Its media type, where the store knows it.
    pub content_type: Option<SmolStr>,
}

/// A store that did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// There is no such object.
    #[error("{bucket}/{object} is not in the store; was it read before?")]
    Missing {
        /// The bucket.
        bucket: String,
        /// The object.
        object: String,
    },
    /// The store refuses us.
    #[error("the store refused: {reason}; check the keys and what they may do")]
    Refused {
        /// Its words.
        reason: String,
    },
    /// The object is larger than is taken.
    #[error("the object has more than {length_max} bytes; raise limits.body_max")]
    TooLarge {
        /// What is taken.
        length_max: usize,
    },
    /// It could not be reached or broke off.
    #[error("the store of objects failed: {reason}; it is worth another try")]
    Failed {
        /// Why.
        reason: String,
        /// Whether it may have done what it was asked for.
        sent: Sent,
    },
    /// No store of that address is configured.
    #[error("no store of objects has the address {url}; list it under object_stores")]
    Unknown {
        /// The address.
        url: String,
    },
}

/// One store of objects, addressed by path (`/bucket/object`). Every call has a time limit of its own.
pub trait ObjectStore: Send + Sync + std::fmt::Debug + 'static {
    /// Its base address, as it stands in messages.
    fn url(&self) -> &str;

    /// Reads an object of at most `length_max` bytes.
    ///
    /// # Errors
    /// If it is missing, larger, or the store fails.
    fn get<'a>(
        &'a self,
        bucket: &'a str,
        object: &'a str,
        length_max: usize,
    ) -> BoxFuture<'a, Result<Object, ObjectError>>;

    /// Writes an object; the bucket is made if it is missing.
    ///
    /// # Errors
    /// If the store fails.
    fn put<'a>(
        &'a self,
        bucket: &'a str,
        object: &'a str,
        content: Object,
    ) -> BoxFuture<'a, Result<(), ObjectError>>;

    /// Removes an object; one that is not there is no error.
    ///
    /// # Errors
    /// If the store fails.
    fn remove<'a>(
        &'a self,
        bucket: &'a str,
        object: &'a str,
    ) -> BoxFuture<'a, Result<(), ObjectError>>;
}
