//! Making a proxy: which methods, under which policy.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{
    Chance, EndpointId, EndpointSpec, Observer, Operation, Policy, PolicyProblem, Preset, Source,
    source::ControlError,
};

use super::conduct::{Conduct, Entry, Operations, Shared};
use super::method::{Method, Way};
use crate::blocking::Runtime;

/// A type that [`#[mainstay::proxied]`](macro@crate::proxied) makes.
pub trait Proxied: Sized {
    /// What is proxied.
    type Inner;
    /// What says what errors mean.
    type Rules;
    /// The trait's name.
    const NAME: &'static str;
    /// The trait's methods.
    const METHODS: &'static [Method];
    /// Whether one of them may be tried again and is not asynchronous.
    const BLOCKS: bool;

    /// Puts it together.
    fn assemble(inner: Self::Inner, conduct: Conduct<Self::Rules>) -> Self;

    /// Every method that can be tried again is, under the preset `component`.
    fn with_defaults(inner: Self::Inner, rules: Self::Rules) -> Self {
        match Builder::<Self>::new(inner, rules).build() {
            Ok(proxy) => proxy,
            Err(problem) => unreachable!("defaults fit every trait: {problem}"),
        }
    }
}

/// A proxy that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There is no such method.
    #[error("there is no method `{name}`; use some of: {known}")]
    UnknownMethod {
        /// As it was given.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The method can only be handed through.
    #[error("`{name}` cannot be included, because {because}; leave it out of `include`")]
    NotRetried {
        /// The method.
        name: &'static str,
        /// Why.
        because: &'static str,
    },
    /// The settings make no policy.
    #[error("the settings are refused: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Policy(Vec<PolicyProblem>),
    /// The engine refuses the source.
    #[error("the source is refused; give it another name")]
    Source(#[source] ControlError),
    /// Methods that are not asynchronous need a clock for their pauses.
    #[error("no runtime could be made for the pauses of methods that are not asynchronous")]
    Runtime(#[source] io::Error),
}

/// What every proxy is made from, whatever it proxies.
pub(super) struct Setup {
    pub(super) name: Arc<str>,
    pub(super) include: Vec<String>,
    pub(super) exclude: Vec<String>,
    pub(super) policy: Arc<Policy>,
    pub(super) retries: Option<u32>,
    pub(super) deadline: Option<Duration>,
    pub(super) chance: Option<Chance>,
    pub(super) observers: Vec<Arc<dyn Observer>>,
    pub(super) runtime: Option<Arc<Runtime>>,
}

impl Setup {
    pub(super) fn new(name: impl Into<Arc<str>>) -> Self {
        Setup {
            name: name.into(),
            include: Vec::new(),
            exclude: Vec::new(),
            policy: Policy::preset(Preset::Component),
            retries: None,
            deadline: None,
            chance: None,
            observers: Vec::new(),
            runtime: None,
        }
    }

    pub(super) fn build<R>(
        self,
        methods: &[Method],
        rules: R,
        blocks: bool,
    ) -> Result<Conduct<R>, BuildError> {
        let methods = self.choose(methods)?;
        let policy = self.policy()?;
        let endpoint = EndpointSpec::new(EndpointId::from(&self.name), ());
        let mut source = Source::<()>::builder(self.name, policy).endpoint(endpoint);
        if let Some(chance) = self.chance {
            source = source.chance(chance);
        }
        for observer in self.observers {
            source = source.observer(move |event: &mainstay_engine::Event| observer.observe(event));
        }
        let runtime = match self.runtime {
            None if blocks => Some(Arc::new(Runtime::on_demand().map_err(BuildError::Runtime)?)),
            given => given,
        };
        Ok(Conduct::new(Shared {
            source: source.build().map_err(BuildError::Source)?,
            methods,
            rules,
            runtime,
        }))
    }

    fn policy(&self) -> Result<Arc<Policy>, BuildError> {
        let Some(retries) = self.retries else {
            return Ok(Arc::clone(&self.policy));
        };
        let mut settings = self.policy.to_settings();
        settings.retry.attempts_max = retries.saturating_add(1);
        Policy::new(settings).map_err(BuildError::Policy)
    }

    /// What is done with each method.
    fn choose(&self, methods: &[Method]) -> Result<Box<[Entry]>, BuildError> {
        let include = resolve(&self.include, methods)?;
        let exclude = resolve(&self.exclude, methods)?;
        let excluded = |method: &Method| exclude.contains(method);
        for method in include.iter().filter(|method| !excluded(method)) {
            if let Way::Passed { because } = method.conduct {
                let name = method.name;
                return Err(BuildError::NotRetried { name, because });
            }
        }
        let entry = |method: &Method| {
            let chosen = (include.is_empty() || include.contains(method)) && !excluded(method);
            let operations = match method.conduct {
                Way::Retried { safety, declared } if chosen => {
                    let mut operation = Operation::new(method.name, safety).declared(declared);
                    operation.deadline = self.deadline;
                    Some(Operations::new(operation))
                }
                _ => None,
            };
            Entry {
                name: method.name,
                operations,
            }
        };
        Ok(methods.iter().map(entry).collect())
    }
}

/// The methods that these names mean, whatever their case.
fn resolve(names: &[String], methods: &[Method]) -> Result<Vec<Method>, BuildError> {
    let mut found = Vec::new();
    for name in names {
        let wanted = name.to_lowercase();
        let before = found.len();
        let fits = |method: &&Method| method.name.to_lowercase() == wanted;
        found.extend(methods.iter().filter(fits));
        if found.len() == before {
            let known: Vec<_> = methods.iter().map(Method::name).collect();
            return Err(BuildError::UnknownMethod {
                name: name.clone(),
                known: known.join(", "),
            });
        }
    }
    Ok(found)
}

/// The settings that all builders have.
macro_rules! settings {
    () => {
        /// Tries these methods again and hands all others through. Names are compared without case; none
        /// at all means every method that can be tried again.
        #[must_use]
        pub fn include<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
            self.setup.include.extend(names.into_iter().map(Into::into));
            self
        }

        /// Hands these methods through, also where `include` names them.
        #[must_use]
        pub fn exclude<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
            self.setup.exclude.extend(names.into_iter().map(Into::into));
            self
        }

        /// Names the source in events and audit. Default: the name of what is proxied.
        #[must_use]
        pub fn name(mut self, name: impl Into<std::sync::Arc<str>>) -> Self {
            self.setup.name = name.into();
            self
        }

        /// Uses another policy. Default: the preset `component`.
        #[must_use]
        pub fn policy(mut self, policy: std::sync::Arc<mainstay_engine::Policy>) -> Self {
            self.setup.policy = policy;
            self
        }

        /// Tries so many times after the first failure, instead of what the policy says.
        #[must_use]
        pub fn retries(mut self, retries: u32) -> Self {
            self.setup.retries = Some(retries);
            self
        }

        /// Bounds each call, pauses included. Default: the policy's.
        #[must_use]
        pub fn deadline(mut self, deadline: std::time::Duration) -> Self {
            self.setup.deadline = Some(deadline);
            self
        }

        /// Uses this source of randomness.
        #[must_use]
        pub fn chance(mut self, chance: mainstay_engine::Chance) -> Self {
            self.setup.chance = Some(chance);
            self
        }

        /// Adds an observer of its events.
        #[must_use]
        pub fn observer(mut self, observer: impl mainstay_engine::Observer + 'static) -> Self {
            self.setup.observers.push(std::sync::Arc::new(observer));
            self
        }

        /// Waits there between attempts of methods that are not asynchronous. Default: a runtime of its
        /// own without threads.
        #[must_use]
        pub fn runtime(mut self, runtime: std::sync::Arc<crate::blocking::Runtime>) -> Self {
            self.setup.runtime = Some(runtime);
            self
        }
    };
}
pub(super) use settings;

/// What a proxy is made from.
pub struct Builder<P: Proxied> {
    inner: P::Inner,
    rules: P::Rules,
    setup: Setup,
}

impl<P: Proxied> Builder<P> {
    /// Begins a proxy of `inner`.
    pub fn new(inner: P::Inner, rules: P::Rules) -> Self {
        Builder {
            inner,
            rules,
            setup: Setup::new(P::NAME),
        }
    }

    settings!();

    /// Makes the proxy.
    ///
    /// # Errors
    /// [`BuildError`] says what does not fit: an unknown method, one that cannot be tried again.
    pub fn build(self) -> Result<P, BuildError> {
        let conduct = self.setup.build(P::METHODS, self.rules, P::BLOCKS)?;
        Ok(P::assemble(self.inner, conduct))
    }
}

impl<P: Proxied> std::fmt::Debug for Builder<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.setup.name)
            .finish_non_exhaustive()
    }
}
