//! Closures instead of a trait: one, or several that belong together.

use std::fmt::{self, Display};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::build::{BuildError, Setup, settings};
use super::conduct::{Conduct, Fallback};
use super::error::MethodError;
use super::method::Method;
use super::rules::Judge;

/// A closure that gives a boxed future, as it stands in a plain structure.
pub type Boxed<A, T, E> =
    Box<dyn Fn(A) -> Pin<Box<dyn Future<Output = Result<T, E>> + Send>> + Send + Sync>;

/// Begins a group of closures that share a policy, a circuit and rules, as the methods of one trait do.
///
/// ```
/// use std::io::{Error, ErrorKind};
/// use mainstay::proxied::{Boxed, Method, group};
/// use mainstay::transient;
///
/// struct Prices {
///     get: Boxed<u32, u32, Error>,
///     set: Boxed<(u32, u32), (), Error>,
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let group = group("prices", transient::io)
///     .method(Method::read("get"))
///     .method(Method::write("set"))
///     .build()?;
/// let prices = Prices {
///     get: group.boxed("get", |id| async move { Ok(id * 2) })?,
///     set: group.boxed("set", |(_id, _price)| async { Err(Error::from(ErrorKind::NotFound)) })?,
/// };
/// assert_eq!((prices.get)(21).await?, 42);
/// assert_eq!((prices.set)((1, 2)).await.unwrap_err().kind(), ErrorKind::NotFound);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub fn group<R>(name: &'static str, rules: R) -> GroupBuilder<R> {
    GroupBuilder {
        methods: Vec::new(),
        rules,
        setup: Setup::new(name),
    }
}

/// Protects one closure under the preset `component`: an error that is not transient is handed on as it
/// is, the last transient one wrapped. For other settings make a [`group`] of one.
pub fn function<R, F>(name: &'static str, rules: R, function: F) -> Function<R, F> {
    let built = group(name, rules).method(Method::new(name)).build();
    match built {
        Ok(group) => Function {
            conduct: group.conduct,
            method: 0,
            function,
        },
        Err(problem) => unreachable!("defaults fit every closure: {problem}"),
    }
}

/// What a group is made from.
pub struct GroupBuilder<R> {
    methods: Vec<Method>,
    rules: R,
    setup: Setup,
}

impl<R> GroupBuilder<R> {
    /// Says that a closure of that name will come.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.methods.push(method);
        self
    }

    settings!();

    /// Makes the group.
    ///
    /// # Errors
    /// [`BuildError`] says what does not fit.
    pub fn build(self) -> Result<Group<R>, BuildError> {
        let conduct = self.setup.build(&self.methods, self.rules, true)?;
        Ok(Group { conduct })
    }
}

/// Closures that share a policy, a circuit and rules. Copies share everything.
#[derive(Debug)]
pub struct Group<R> {
    conduct: Conduct<R>,
}

impl<R> Clone for Group<R> {
    fn clone(&self) -> Self {
        Group {
            conduct: self.conduct.clone(),
        }
    }
}

impl<R> Group<R> {
    /// Its source and which methods are included.
    pub fn conduct(&self) -> &Conduct<R> {
        &self.conduct
    }

    fn method(&self, name: &str) -> Result<usize, BuildError> {
        let methods = &self.conduct.shared().methods;
        let found = methods.iter().position(|entry| entry.name == name);
        found.ok_or_else(|| {
            let known: Vec<_> = methods.iter().map(|entry| entry.name).collect();
            BuildError::UnknownMethod {
                name: name.to_owned(),
                known: known.join(", "),
            }
        })
    }

    /// The method of that name as a closure makes it.
    ///
    /// # Errors
    /// If the group has no such method.
    pub fn function<F>(&self, name: &str, function: F) -> Result<Function<R, F>, BuildError> {
        Ok(Function {
            conduct: self.conduct.clone(),
            method: self.method(name)?,
            function,
        })
    }

    /// The same as a boxed closure, for a field of a plain structure.
    ///
    /// # Errors
    /// If the group has no such method.
    pub fn boxed<A, T, E, F, Fut>(
        &self,
        name: &str,
        function: F,
    ) -> Result<Boxed<A, T, E>, BuildError>
    where
        R: Judge<E> + 'static,
        F: Fn(A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        A: Clone + Send + 'static,
        T: Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        let function = Arc::new(self.function(name, function)?);
        Ok(Box::new(move |argument| {
            let function = Arc::clone(&function);
            Box::pin(async move { function.call(argument).await })
        }))
    }

    /// A closure that is not asynchronous, with pauses that block the thread.
    ///
    /// # Errors
    /// If the group has no such method.
    pub fn blocking<A, T, E, F>(
        &self,
        name: &str,
        function: F,
    ) -> Result<impl Fn(A) -> Result<T, E>, BuildError>
    where
        R: Judge<E>,
        F: Fn(A) -> Result<T, E>,
        A: Clone,
        E: Display,
    {
        let conduct = self.conduct.clone();
        let method = self.method(name)?;
        Ok(move |argument: A| conduct.call_blocking(method, None, argument, A::clone, &function))
    }
}

/// One closure with the engine's call around it.
pub struct Function<R, F> {
    conduct: Conduct<R>,
    method: usize,
    function: F,
}

impl<R, F: Clone> Clone for Function<R, F> {
    fn clone(&self) -> Self {
        Function {
            conduct: self.conduct.clone(),
            method: self.method,
            function: self.function.clone(),
        }
    }
}

impl<R, F> Function<R, F> {
    /// Its source and whether it is included.
    pub fn conduct(&self) -> &Conduct<R> {
        &self.conduct
    }

    /// Calls it; several arguments are a tuple. Each attempt gets a clone of the argument; where the policy
    /// allows one attempt, that gets the argument itself.
    ///
    /// # Errors
    /// Its own error as it is, or the last transient one wrapped by the rules.
    ///
    /// # Cancel safety
    /// As [`Source::call`](crate::Source::call).
    pub async fn call<A, T, E, Fut>(&self, argument: A) -> Result<T, E>
    where
        R: Judge<E>,
        F: Fn(A) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        A: Clone,
        E: Display,
    {
        self.conduct
            .call(self.method, None, argument, A::clone, &self.function)
            .await
    }

    /// The same with something that answers in its place once it has failed for good or was refused.
    ///
    /// # Errors
    /// Its own error that is not transient, or what the fallback says.
    pub async fn call_or<A, T, E, Fut>(
        &self,
        argument: A,
        fallback: impl Fn(MethodError<E>) -> Result<T, E> + Send + Sync,
    ) -> Result<T, E>
    where
        R: Judge<E>,
        F: Fn(A) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        A: Clone,
        E: Display,
    {
        let fallback: Fallback<'_, T, E> = &fallback;
        self.conduct
            .call(
                self.method,
                Some(fallback),
                argument,
                A::clone,
                &self.function,
            )
            .await
    }
}

impl<R, F> fmt::Debug for Function<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function")
            .field("conduct", &self.conduct)
            .finish_non_exhaustive()
    }
}
