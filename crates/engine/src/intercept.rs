//! One place before an attempt where demos and tests inject faults. It costs nothing while absent.

use std::time::Duration;

use crate::attempt::EndpointId;
use crate::failure::Failure;
use crate::operation::Operation;

/// What to do to an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Fail without calling.
    Error(Failure),
    /// Wait, then call.
    Delay(Duration),
    /// Never answer.
    Hang,
}

/// Decides about faults. Called on the path of each attempt: it must not block.
pub trait Interceptor: Send + Sync {
    /// The fault for this attempt, if any.
    fn before(&self, operation: &Operation, endpoint: &EndpointId, attempt: u32) -> Option<Fault>;
}

impl<F> Interceptor for F
where
    F: Fn(&Operation, &EndpointId, u32) -> Option<Fault> + Send + Sync,
{
    fn before(&self, operation: &Operation, endpoint: &EndpointId, attempt: u32) -> Option<Fault> {
        self(operation, endpoint, attempt)
    }
}
