//! Shapes of methods that are not asynchronous. Time is that of the proxy's own runtime, here a paused
//! one.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay::blocking::Runtime;
use mainstay::proxied::Proxied;

use crate::support::{Bad, Flaky, passes};

/// A runtime whose clock jumps over every pause.
pub(crate) fn paused() -> Arc<Runtime> {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    Arc::new(Runtime::from_tokio(tokio))
}

macro_rules! tried {
    ($proxy:ident, |$it:ident| $ask:expr, $value:expr) => {{
        let flaky = Flaky::failing(2);
        let built = $proxy::builder(flaky.clone(), passes).runtime(paused());
        let $it = built.build().unwrap();
        assert_eq!($ask.unwrap(), $value);
        assert_eq!(flaky.asked(), 3);
    }};
}

#[mainstay::proxied]
trait Plain {
    fn get(&self, key: &str) -> Result<usize, Bad>;
    fn put(&self, value: String) -> Result<usize, Bad>;
    fn count(&self) -> u32;
    fn rename(&mut self, name: &str) -> Result<(), Bad>;
}
impl Plain for Flaky {
    fn get(&self, key: &str) -> Result<usize, Bad> {
        self.ask(key.len())
    }
    fn put(&self, value: String) -> Result<usize, Bad> {
        self.ask(value.len())
    }
    fn count(&self) -> u32 {
        self.asked()
    }
    fn rename(&mut self, name: &str) -> Result<(), Bad> {
        assert!(!name.is_empty());
        self.ask(())
    }
}

#[test]
fn shape_27_a_method_that_is_not_asynchronous() {
    tried!(PlainProxy, |it| it.get("key"), 3);
}

#[test]
fn shape_28_with_an_argument_by_value() {
    tried!(PlainProxy, |it| it.put("value".into()), 5);
}

#[test]
fn shape_29_without_a_result_it_is_handed_through() {
    let it = PlainProxy::new(Flaky::default(), passes);
    assert_eq!(it.count(), 0);
}

#[test]
fn shape_30_with_a_mutable_receiver_it_is_handed_through() {
    let flaky = Flaky::failing(2);
    let mut it = PlainProxy::new(flaky.clone(), passes);
    assert!(matches!(it.rename("new"), Err(Bad::Passing)));
    assert_eq!(flaky.asked(), 1);
}

#[test]
fn shape_31_behind_a_pointer_to_the_trait() {
    let flaky = Flaky::failing(2);
    let built = PlainProxy::builder(flaky.clone(), passes).runtime(paused());
    let it: Box<dyn Plain> = Box::new(built.build().unwrap());
    assert_eq!(it.get("key").unwrap(), 3);
}

#[mainstay::proxied]
trait Unsent {
    fn get(&self, seen: &Cell<u32>) -> Result<u32, Bad>;
}
struct OnOneThread(Cell<u32>);
impl Unsent for OnOneThread {
    fn get(&self, seen: &Cell<u32>) -> Result<u32, Bad> {
        self.0.set(self.0.get() + 1);
        seen.set(self.0.get());
        match self.0.get() {
            3 => Ok(3),
            _ => Err(Bad::Passing),
        }
    }
}

#[test]
fn shape_32_neither_receiver_nor_arguments_need_to_be_sync() {
    let seen = Cell::new(0);
    let built = UnsentProxy::builder(OnOneThread(Cell::new(0)), passes).runtime(paused());
    assert_eq!(built.build().unwrap().get(&seen).unwrap(), 3);
    assert_eq!(seen.get(), 3);
}

#[mainstay::proxied]
trait OfIo {
    fn read(&self, key: &str) -> io::Result<Vec<u8>>;
    fn text(&self) -> Result<String, String>;
}
struct Reset(AtomicU32);
impl OfIo for Reset {
    fn read(&self, _key: &str) -> io::Result<Vec<u8>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err(io::ErrorKind::ConnectionReset.into())
    }
    fn text(&self) -> Result<String, String> {
        Err("no".into())
    }
}
/// Rules for both types of errors.
struct Both;
impl mainstay::proxied::Judge<io::Error> for Both {
    fn is_transient(&self, error: &io::Error) -> bool {
        mainstay::transient::io_kind(error.kind())
    }
    fn wrap(&self, error: mainstay::proxied::MethodError<io::Error>) -> io::Error {
        error.into()
    }
}
impl mainstay::proxied::Judge<String> for Both {
    fn is_transient(&self, _: &String) -> bool {
        true
    }
    fn wrap(&self, error: mainstay::proxied::MethodError<String>) -> String {
        error.into()
    }
}

#[test]
fn shape_33_several_types_of_errors_and_results_of_the_standard_library() {
    let built = OfIoProxy::builder(Reset(AtomicU32::new(0)), Both).runtime(paused());
    let it = built.build().unwrap();
    let error = it.read("key").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let wrapped = error.get_ref().unwrap();
    let text = wrapped.to_string();
    assert!(
        text.starts_with("`read` failed after 3 attempts in "),
        "{text}"
    );
    let text = it.text().unwrap_err();
    assert!(text.ends_with(": no"), "{text}");
}

#[mainstay::proxied]
trait Raw {
    fn r#type(&self, r#in: u32) -> Result<u32, Bad>;
    fn ignored(&self, _: u32, (one, two): (u32, u32)) -> Result<u32, Bad> {
        Ok(self.r#type(one)? + two)
    }
    fn made() -> u32 {
        7
    }
}
impl Raw for Flaky {
    fn r#type(&self, r#in: u32) -> Result<u32, Bad> {
        self.ask(r#in)
    }
}

#[test]
fn shape_34_raw_names_patterns_as_arguments_and_functions_without_a_receiver() {
    tried!(RawProxy, |it| it.r#type(7), 7);
    tried!(RawProxy, |it| it.ignored(1, (2, 3)), 5);
    type Of<F> = RawProxy<Flaky, F>;
    fn made<F: Fn(&Bad) -> bool + Send + Sync>(_: F) -> u32 {
        <Of<F> as Raw>::made()
    }
    assert_eq!(made(passes), 7);
    let names: Vec<_> = <RawProxy<Flaky, ()> as Proxied>::METHODS
        .iter()
        .map(|method| method.name())
        .collect();
    assert_eq!(names, ["type", "ignored", "made"]);
}

#[mainstay::proxied]
trait Copies: Sized {
    fn get(&self) -> Result<u32, Bad>;
    fn same(&self, other: &Self) -> Result<bool, Bad> {
        Ok(self.get()? == other.get()?)
    }
}
impl Copies for Flaky {
    fn get(&self) -> Result<u32, Bad> {
        self.ask(7)
    }
}

#[test]
fn shape_35_a_method_that_names_self_keeps_the_body_of_the_trait() {
    let built = CopiesProxy::builder(Flaky::failing(2), passes).runtime(paused());
    let (it, other) = (
        built.build().unwrap(),
        CopiesProxy::new(Flaky::default(), passes),
    );
    assert!(it.same(&other).unwrap());
}

#[mainstay::proxied]
trait Conditional {
    #[cfg(any())]
    fn absent(&self) -> Result<Missing, Bad>;
    #[cfg(test)]
    fn present(&self) -> Result<u32, Bad>;
}
impl Conditional for Flaky {
    fn present(&self) -> Result<u32, Bad> {
        self.ask(7)
    }
}

#[test]
fn shape_36_methods_under_conditions() {
    tried!(ConditionalProxy, |it| it.present(), 7);
}
