//! Streams through the source: the first batch belongs to the call and may be tried again; from then on
//! the stream holds its endpoint, and a break counts against it.

use mainstay_engine::source::Leased;
use mainstay_engine::{Attempt, CallErrorKind, EndpointId};

use super::route::{path, route};
use super::sessions::Writing;
use super::{DataProxy, Member, errors, refuse_key};
use crate::database::{Access, BoxFuture, Meta, Request, Scope};
use crate::error::SqlError;
use crate::stream::{Batch, Batches, RowStream};

impl DataProxy {
    pub(super) async fn stream_request(
        &self,
        request: &Request,
        scope: Scope,
    ) -> Result<RowStream, SqlError> {
        self.refuse_unavailable(&request.options)?;
        refuse_key(&request.options)?;
        let operation = self.operation(request, request.safety, &scope);
        let wanted = self.wanted(&request.options, request.safety, &scope).await;
        let filter = |placed: &mainstay_engine::endpoint::Placed<Member>| wanted.admits(placed);
        let route = route(wanted, &filter, &request.options, request.access, &scope);
        let scope = &scope;
        let work = |attempt: Attempt<Member>| {
            let (member, attempt) = attempt.split();
            let correlation_id = attempt.correlation_id;
            let number = attempt.number;
            let endpoint = attempt.endpoint.clone();
            async move {
                let scope = self.within(attempt, wanted, scope);
                let at = |error| errors::at(&endpoint, error);
                let mut stream = member.stream(request, scope).await.map_err(at)?;
                let first = stream.next().await.map_err(at)?;
                stream.meta.correlation_id = Some(correlation_id);
                stream.meta.attempts = number;
                Ok((stream, first))
            }
        };
        let writing = self.begin_write(&request.options, request.safety);
        let leased = self
            .source()
            .lease(&operation, route, &errors::classify, work)
            .await;
        match leased {
            Ok(leased) => Ok(self.hand_on(leased, writing).await),
            Err(error) => {
                writing.failed(error.sent());
                let parts = error.into_parts();
                let is_write = matches!(parts.kind, CallErrorKind::Redirected { .. })
                    && request.access == Access::ReadOnly
                    && request.options.safety.is_none()
                    && scope.attempt.is_none();
                if is_write {
                    // Rows of a write are not streamed: whoever asks again runs it as one.
                    self.learn(request);
                }
                Err(self.failed(parts, &operation, request.access, request.safety))
            }
        }
    }

    async fn hand_on(
        &self,
        leased: Leased<(RowStream, Option<Batch>)>,
        writing: Writing,
    ) -> RowStream {
        let endpoint = leased.endpoint.clone();
        let (parts, held) = leased.split();
        let (stream, first) = parts;
        let columns = stream.columns.clone();
        let meta = Meta {
            endpoint: Some(path(&endpoint, stream.meta.endpoint.as_deref())),
            cache: "off",
            policy_version: self.source().snapshot().policy.version,
            ..stream.meta.clone()
        };
        let mut writing = Some(writing);
        if first.is_none()
            && let Some(writing) = writing.take()
        {
            self.acknowledged(writing, &endpoint).await;
        }
        let batches = Held {
            proxy: self.clone(),
            endpoint,
            stream,
            first,
            writing,
            _held: held,
        };
        RowStream::new(columns, meta, Box::new(batches))
    }
}

/// The rest of a stream with the endpoint it holds.
struct Held {
    proxy: DataProxy,
    endpoint: EndpointId,
    stream: RowStream,
    first: Option<Batch>,
    /// `None`: the stream has ended. Dropped before, what it wrote is in doubt.
    writing: Option<Writing>,
    _held: Leased<()>,
}

impl Batches for Held {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>, SqlError>> {
        Box::pin(async move {
            if let Some(first) = self.first.take() {
                return Ok(Some(first));
            }
            let Some(writing) = self.writing.take() else {
                return Ok(None);
            };
            match self.stream.next().await {
                Ok(Some(batch)) => {
                    self.writing = Some(writing);
                    Ok(Some(batch))
                }
                Ok(None) => {
                    self.proxy.acknowledged(writing, &self.endpoint).await;
                    Ok(None)
                }
                Err(error) => {
                    writing.failed(error.sent());
                    self.proxy.source().blame(&self.endpoint, error.failure());
                    Err(errors::outward(&self.endpoint, error))
                }
            }
        })
    }
}
