//! The message face: a resilience proxy that stands in front of an INTERSECT service and takes over its
//! identity. Callers change nothing.
//!
//! A request goes through two phases: until its acknowledgement the caller waits and the engine retries
//! and fails over; after it a job is watched until its last result. Brokers are reached through the port
//! in [`broker`]; what INTERSECT puts on the wire is in [`identity`] and [`envelope`].

pub mod broker;
pub mod counts;
pub mod envelope;
pub mod expression;
pub mod hooks;
pub mod identity;
mod jobs;
pub mod life;
pub mod object;
mod outbox;
mod pending;
pub mod refusal;
mod request;
pub mod service;
pub mod settings;
pub mod store;
mod target;

pub use broker::{
    Acknowledge, Broker, Deliveries, Delivery, Headers, Link, Persistence, Publication,
    PublishError, PublishErrorKind, Queue, Registration, Subscription, SubscriptionState, Topic,
    TopicFilter,
};
pub use expression::{Expression, ExpressionError, Pointer};
pub use hooks::{Body, Hooks, JobFailure, JobResult, NoHooks};
pub use identity::{Identity, IdentityError};
pub use object::{Object, ObjectError, ObjectPlace, ObjectStore};
pub use service::{
    FailedJob, JobStatus, Service, ServiceParts, ServiceStatus, StartError, TargetError,
    TargetStatus,
};
pub use settings::{
    Discovery, ErrorRule, MessageLimits, ObjectStoreSettings, OperationKind, OperationSettings,
    ServiceSettings, Spread, TargetSettings, Timeouts,
};
pub use store::{Change, JobStore, MemoryStore, StoreError};
pub use target::Target;
