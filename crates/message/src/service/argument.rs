//! Arguments by reference: read once from their store, put there anew for each try, removed when nobody reads them
//! any more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::envelope::fresh_id;
use crate::object::{Object, ObjectError, ObjectPlace, ObjectStore};
use crate::request::Request;

use super::shared::Shared;

/// How often an object is asked for, and the wait between two tries.
const FETCHES: u32 = 3;
const FETCH_PAUSE: Duration = Duration::from_millis(200);
/// How long the removal of an object may take.
const REMOVAL_MAX: Duration = Duration::from_secs(10);

/// An argument that could not be fetched.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct FetchError(String);

impl Shared {
    /// Reads the object that a request points to, once, and makes it the request's body. Gives also where
    /// it was: as whoever reads it, the proxy has to remove it.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        request: &Arc<Request>,
    ) -> Result<(Arc<Request>, ObjectPlace), FetchError> {
        let place: ObjectPlace = serde_json::from_slice(&request.message.body)
            .map_err(|error| FetchError(format!("the body is no place of an object ({error})")))?;
        let store = self.object_store(&place.minio_url).ok_or_else(|| {
            FetchError(format!(
                "no store of objects has the address {}",
                place.minio_url
            ))
        })?;
        let mut tries = 0;
        let object = loop {
            tries += 1;
            let length_max = self.settings.limits.body_max;
            match store
                .get(&place.minio_bucket, &place.minio_object_id, length_max)
                .await
            {
                Ok(object) => break object,
                Err(ObjectError::Failed { .. }) if tries < FETCHES => {
                    tokio::time::sleep(FETCH_PAUSE).await;
                }
                Err(error) => return Err(FetchError(error.to_string())),
            }
        };
        Ok((self.with_object(request, object), place))
    }

    fn with_object(&self, request: &Arc<Request>, object: Object) -> Arc<Request> {
        let fetched = Arc::new(request.fetched(object.content));
        self.seen
            .lock()
            .open
            .insert(fetched.id.clone(), Arc::clone(&fetched));
        fetched
    }

    /// The store of that address.
    fn object_store(&self, url: &str) -> Option<&Arc<dyn ObjectStore>> {
        let url = url.trim_end_matches('/');
        self.objects
            .iter()
            .find(|store| store.url().trim_end_matches('/') == url)
    }

    /// Puts an argument where a target reads it: it removes it by reading.
    pub(super) async fn put_object(
        &self,
        request: &Request,
        content: Bytes,
    ) -> Result<ObjectPlace, ObjectError> {
        let store = self
            .objects
            .first()
            .ok_or_else(|| ObjectError::Unknown { url: String::new() })?;
        let place = ObjectPlace {
            minio_url: store.url().into(),
            minio_bucket: self.settings.caller.bucket().into(),
            minio_object_id: fresh_id(),
        };
        let object = Object {
            content,
            content_type: request.message.content_type.clone(),
        };
        store
            .put(&place.minio_bucket, &place.minio_object_id, object)
            .await?;
        Ok(place)
    }

    /// Removes an argument that nobody reads any more, in the background.
    pub(super) fn remove_object(self: &Arc<Self>, place: ObjectPlace) {
        let shared = Arc::clone(self);
        self.tasks.spawn_bounded(REMOVAL_MAX, async move {
            if let Some(store) = shared.object_store(&place.minio_url) {
                let removed = store
                    .remove(&place.minio_bucket, &place.minio_object_id)
                    .await;
                if let Err(error) = removed {
                    tracing::debug!(%error, "an argument that nobody reads stays in its store");
                }
            }
        });
    }
}
