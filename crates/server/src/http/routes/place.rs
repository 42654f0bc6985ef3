//! The source that a route names, and the other names in its path.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use mainstay_engine::Safety;

use crate::assembly::Served;
use crate::http::app::App;
use crate::http::caller::Caller;
use crate::problem::Problem;

/// What the path of `/v1/sources/{source}/…` names.
pub(super) struct Place {
    pub(super) served: Arc<Served>,
    names: RawPathParams,
}

impl Place {
    /// Whether the source's settings say that its writes have no further effect when repeated.
    pub(super) fn writes_may_repeat(&self) -> bool {
        self.served.settings().safety == Safety::IdempotentWrite
    }

    /// The name at `{name}` in the route.
    pub(super) fn name(&self, name: &str) -> Result<&str, Problem> {
        let found = self.names.iter().find(|(known, _)| *known == name);
        let value = found
            .map(|(_, value)| value)
            .ok_or_else(Problem::internal)?;
        if value.contains('\0') {
            return Err(Problem::bad_request(
                format!("the {name} in the path has a NUL byte"),
                "leave it out",
            ));
        }
        Ok(value)
    }
}

impl FromRequestParts<Arc<App>> for Place {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let names = RawPathParams::from_request_parts(parts, app).await;
        let names = names.map_err(|error| {
            let hint = "percent-encode names as UTF-8";
            Problem::bad_request(format!("the path: {}", error.body_text()), hint)
        })?;
        let source = names.iter().find(|(name, _)| *name == "source");
        let (_, source) = source.ok_or_else(Problem::internal)?;
        let caller = parts.extensions.get::<Caller>();
        caller
            .ok_or_else(Problem::internal)?
            .holder
            .check_source(source)?;
        let served = app.source(source)?;
        Ok(Place { served, names })
    }
}
