//! The store behind the port.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue};
use mainstay_engine::{BoxFuture, Sent};
use mainstay_message::{Object, ObjectError, ObjectStore};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use tokio::time::timeout;
use url::Url;

use crate::answer::Complaint;
use crate::connect::connect;
use crate::exchange::{Answer, Broken, exchange};
use crate::name::are_names;
use crate::settings::{REGION_DEFAULT, S3Settings, SettingsError};
use crate::trust::Trust;

/// How long a signature holds: as far as S3 lets two clocks differ.
const SIGNED_FOR: Duration = Duration::from_secs(15 * 60);

/// One store that speaks S3's API.
pub struct S3Store {
    settings: S3Settings,
    endpoint: Url,
    credentials: Credentials,
    trust: Trust,
}

/// What one request does.
enum Action<'a> {
    Get {
        object: &'a str,
        length_max: usize,
    },
    Put {
        object: &'a str,
        content: &'a Object,
    },
    Remove {
        object: &'a str,
    },
    MakeBucket,
}

impl S3Store {
    /// A store; nothing is connected before the first call.
    ///
    /// # Errors
    /// If the address is none, or a key is empty.
    pub fn new(settings: S3Settings) -> Result<Self, SettingsError> {
        if settings.user.is_empty() || settings.password.is_empty() {
            return Err(SettingsError::Keys);
        }
        Ok(S3Store {
            endpoint: settings.endpoint()?,
            credentials: Credentials::new(&settings.user, &settings.password),
            settings,
            trust: Trust::default(),
        })
    }

    /// One request; an answer of whatever status.
    async fn ask(&self, bucket: &str, action: Action<'_>) -> Result<Answer, ObjectError> {
        let url = self.sign(bucket, &action)?;
        let request = self.request(&url, &action)?;
        let limit = self.settings.connect_timeout;
        let stream = match timeout(limit, connect(&self.settings, &self.trust, &url)).await {
            Ok(stream) => stream.map_err(|error| failed(error.to_string(), Sent::No))?,
            Err(_) => return Err(failed(format!("no connection within {limit:?}"), Sent::No)),
        };
        let length_max = match action {
            Action::Get { length_max, .. } => length_max,
            _ => 0,
        };
        let limit = self.settings.timeout;
        match timeout(limit, exchange(stream, request, length_max)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Broken::TooLarge)) => Err(ObjectError::TooLarge { length_max }),
            Ok(Err(Broken::Off(reason))) => Err(failed(reason, Sent::Maybe)),
            Err(_) => Err(failed(format!("no answer within {limit:?}"), Sent::Maybe)),
        }
    }

    fn sign(&self, bucket: &str, action: &Action<'_>) -> Result<Url, ObjectError> {
        let region = self.settings.region.clone();
        let bucket = Bucket::new(
            self.endpoint.clone(),
            UrlStyle::Path,
            bucket.to_owned(),
            region,
        )
        .map_err(|error| refused(&format!("the bucket {bucket} has no address ({error})")))?;
        let keys = &self.credentials;
        Ok(match action {
            Action::Get { object, .. } => bucket.get_object(Some(keys), object).sign(SIGNED_FOR),
            Action::Put { object, .. } => bucket.put_object(Some(keys), object).sign(SIGNED_FOR),
            Action::Remove { object } => bucket.delete_object(Some(keys), object).sign(SIGNED_FOR),
            Action::MakeBucket => bucket.create_bucket(keys).sign(SIGNED_FOR),
        })
    }

    fn request(&self, url: &Url, action: &Action<'_>) -> Result<Request<Full<Bytes>>, ObjectError> {
        let (method, body, content_type) = match action {
            Action::Get { .. } => ("GET", Bytes::new(), None),
            Action::Put { content, .. } => (
                "PUT",
                content.content.clone(),
                content.content_type.as_deref(),
            ),
            Action::Remove { .. } => ("DELETE", Bytes::new(), None),
            Action::MakeBucket => ("PUT", self.location(), None),
        };
        let host = match (url.host_str().unwrap_or_default(), url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        };
        let place = format!("{}?{}", url.path(), url.query().unwrap_or_default());
        let mut request = Request::builder()
            .method(method)
            .uri(place)
            .header(HOST, host);
        if method == "PUT" {
            // Also of nothing, which is not said otherwise and then refused.
            request = request.header(CONTENT_LENGTH, body.len());
        }
        // One that no header can carry is left out; the store does not need it.
        if let Some(content_type) = content_type.and_then(|it| HeaderValue::from_str(it).ok()) {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let request = request.body(Full::new(body));
        request.map_err(|error| refused(&format!("no request can be made of it ({error})")))
    }

    /// Where a bucket is made: only the default region goes without saying.
    fn location(&self) -> Bytes {
        let region = &self.settings.region;
        if region == REGION_DEFAULT {
            return Bytes::new();
        }
        let namespace = "http://s3.amazonaws.com/doc/2006-03-01/";
        format!(
            "<CreateBucketConfiguration xmlns=\"{namespace}\"><LocationConstraint>{region}</LocationConstraint>\
             </CreateBucketConfiguration>"
        )
        .into()
    }

    async fn read(
        &self,
        bucket: &str,
        object: &str,
        length_max: usize,
    ) -> Result<Object, ObjectError> {
        let missing = || ObjectError::Missing {
            bucket: bucket.to_owned(),
            object: object.to_owned(),
        };
        if !are_names(bucket, object) {
            return Err(missing());
        }
        let answer = self.ask(bucket, Action::Get { object, length_max }).await?;
        if answer.status.as_u16() == 200 {
            return Ok(Object {
                content: answer.content,
                content_type: answer.content_type.map(Into::into),
            });
        }
        let complaint = Complaint::read(&answer);
        Err(match complaint.is_missing() {
            true => missing(),
            false => complaint.into_error(),
        })
    }

    async fn write(&self, bucket: &str, object: &str, content: &Object) -> Result<(), ObjectError> {
        check(bucket, object)?;
        let complaint = match self.ask(bucket, Action::Put { object, content }).await? {
            answer if answer.status.is_success() => return Ok(()),
            answer => Complaint::read(&answer),
        };
        if !complaint.is_missing_bucket() {
            return Err(complaint.into_error());
        }
        self.make_bucket(bucket).await?;
        let answer = self.ask(bucket, Action::Put { object, content }).await?;
        match answer.status.is_success() {
            true => Ok(()),
            false => Err(Complaint::read(&answer).into_error()),
        }
    }

    async fn make_bucket(&self, bucket: &str) -> Result<(), ObjectError> {
        let answer = self.ask(bucket, Action::MakeBucket).await?;
        let complaint = Complaint::read(&answer);
        match answer.status.is_success() || complaint.is_there_already() {
            true => Ok(()),
            false => Err(complaint.into_error()),
        }
    }

    async fn drop_object(&self, bucket: &str, object: &str) -> Result<(), ObjectError> {
        check(bucket, object)?;
        let answer = self.ask(bucket, Action::Remove { object }).await?;
        let complaint = Complaint::read(&answer);
        match answer.status.is_success() || complaint.is_missing() {
            true => Ok(()),
            false => Err(complaint.into_error()),
        }
    }
}

fn check(bucket: &str, object: &str) -> Result<(), ObjectError> {
    match are_names(bucket, object) {
        true => Ok(()),
        false => Err(refused(&format!(
            "{bucket:?}/{object:?} is no name of an object"
        ))),
    }
}

fn refused(reason: &str) -> ObjectError {
    ObjectError::Refused {
        reason: reason.to_owned(),
    }
}

fn failed(reason: String, sent: Sent) -> ObjectError {
    ObjectError::Failed { reason, sent }
}

impl ObjectStore for S3Store {
    fn url(&self) -> &str {
        &self.settings.url
    }

    fn get<'a>(
        &'a self,
        bucket: &'a str,
        object: &'a str,
        length_max: usize,
    ) -> BoxFuture<'a, Result<Object, ObjectError>> {
        Box::pin(self.read(bucket, object, length_max))
    }

    fn put<'a>(
        &'a self,
        bucket: &'a str,
        object: &'a str,
        content: Object,
    ) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async move { self.write(bucket, object, &content).await })
    }

    fn remove<'a>(
        &'a self,
        bucket: &'a str,
        object: &'a str,
    ) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(self.drop_object(bucket, object))
    }
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Store")
            .field("url", &self.settings.url)
            .finish_non_exhaustive()
    }
}
