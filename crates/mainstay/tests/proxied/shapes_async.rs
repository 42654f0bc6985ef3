//! Shapes of asynchronous methods. Each is asked through its proxy of something that fails twice: a
//! method that is tried again gives its result at the third attempt, one that is handed through its error
//! at the first.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use async_trait::async_trait;

use crate::support::{Bad, Flaky, passes};

/// Asks a proxy of something that fails twice.
macro_rules! tried {
    ($proxy:ident, |$it:ident| $ask:expr, $value:expr) => {{
        let flaky = Flaky::failing(2);
        let $it = $proxy::new(flaky.clone(), passes);
        assert_eq!($ask.await.unwrap(), $value);
        assert_eq!(flaky.asked(), 3);
    }};
}

/// The same of a method that is handed through.
macro_rules! passed {
    ($proxy:ident, |$it:ident| $ask:expr) => {{
        let flaky = Flaky::failing(2);
        #[allow(unused_mut)]
        let mut $it = $proxy::new(flaky.clone(), passes);
        assert!(matches!($ask.await, Err(Bad::Passing)));
        assert_eq!(flaky.asked(), 1);
    }};
}

#[mainstay::proxied]
trait Plain {
    async fn get(&self) -> Result<u32, Bad>;
}
impl Plain for Flaky {
    async fn get(&self) -> Result<u32, Bad> {
        self.ask(7)
    }
}

#[tokio::test(start_paused = true)]
async fn shape_01_an_async_method_without_arguments() {
    tried!(PlainProxy, |it| it.get(), 7);
}

#[mainstay::proxied]
trait Borrows {
    async fn get(&self, key: &str, more: &[u8]) -> Result<usize, Bad>;
}
impl Borrows for Flaky {
    async fn get(&self, key: &str, more: &[u8]) -> Result<usize, Bad> {
        self.ask(key.len() + more.len())
    }
}

#[tokio::test(start_paused = true)]
async fn shape_02_arguments_by_reference() {
    let key = String::from("key");
    tried!(BorrowsProxy, |it| it.get(&key, &[1, 2]), 5);
}

#[mainstay::proxied]
trait Gives {
    async fn get<'a>(&self, key: &'a str) -> Result<&'a str, Bad>;
    async fn own(&self) -> Result<&Flaky, Bad>;
}
impl Gives for Flaky {
    async fn get<'a>(&self, key: &'a str) -> Result<&'a str, Bad> {
        self.ask(key)
    }
    async fn own(&self) -> Result<&Flaky, Bad> {
        self.ask(self)
    }
}

#[tokio::test(start_paused = true)]
async fn shape_03_a_result_that_borrows_from_an_argument() {
    tried!(GivesProxy, |it| it.get("key"), "key");
}

#[tokio::test(start_paused = true)]
async fn shape_04_a_result_that_borrows_from_the_receiver() {
    let flaky = Flaky::failing(2);
    let it = GivesProxy::new(flaky, passes);
    assert_eq!(it.own().await.unwrap().asked(), 3);
}

#[mainstay::proxied]
trait Owns {
    async fn put(&self, key: String, value: Vec<u8>) -> Result<usize, Bad>;
}
impl Owns for Flaky {
    async fn put(&self, key: String, value: Vec<u8>) -> Result<usize, Bad> {
        self.ask(key.len() + value.len())
    }
}

#[tokio::test(start_paused = true)]
async fn shape_05_arguments_by_value_are_cloned_for_each_attempt() {
    tried!(OwnsProxy, |it| it.put("key".into(), vec![1]), 4);
}

#[mainstay::proxied]
trait Moves {
    async fn add(&self, value: std::cell::Cell<u32>) -> Result<u32, Bad>;
}
impl Moves for Flaky {
    async fn add(&self, value: std::cell::Cell<u32>) -> Result<u32, Bad> {
        value.set(value.get() + 1);
        self.ask(value.get())
    }
}

#[tokio::test(start_paused = true)]
async fn shape_37_an_argument_by_value_that_is_not_sync_and_is_as_it_was_for_each_attempt() {
    tried!(MovesProxy, |it| it.add(std::cell::Cell::new(7)), 8);
}

#[mainstay::proxied]
trait Generic {
    async fn put<T: Into<u64> + Clone + Send>(&self, value: T) -> Result<u64, Bad>;
    async fn named<T: Default + Send>(&self) -> Result<(), Bad>;
    async fn many<const N: usize>(&self, values: [u8; N]) -> Result<usize, Bad>;
    async fn some(&self, value: impl Into<u64> + Clone + Send) -> Result<u64, Bad>;
}
impl Generic for Flaky {
    async fn put<T: Into<u64> + Clone + Send>(&self, value: T) -> Result<u64, Bad> {
        self.ask(value.into())
    }
    async fn named<T: Default + Send>(&self) -> Result<(), Bad> {
        drop(T::default());
        self.ask(())
    }
    async fn many<const N: usize>(&self, values: [u8; N]) -> Result<usize, Bad> {
        self.ask(values.len())
    }
    async fn some(&self, value: impl Into<u64> + Clone + Send) -> Result<u64, Bad> {
        self.ask(value.into())
    }
}

#[tokio::test(start_paused = true)]
async fn shape_06_a_generic_argument() {
    tried!(GenericProxy, |it| it.put(7_u32), 7);
}

#[tokio::test(start_paused = true)]
async fn shape_07_a_parameter_that_nothing_but_the_caller_tells() {
    tried!(GenericProxy, |it| it.named::<u8>(), ());
}

#[tokio::test(start_paused = true)]
async fn shape_08_a_constant_parameter() {
    tried!(GenericProxy, |it| it.many([0; 5]), 5);
}

#[tokio::test(start_paused = true)]
async fn shape_09_an_argument_of_a_hidden_type() {
    tried!(GenericProxy, |it| it.some(9_u8), 9);
}

#[mainstay::proxied]
trait Opaque {
    fn get(&self, key: &str) -> impl Future<Output = Result<usize, Bad>> + Send;
}
impl Opaque for Flaky {
    async fn get(&self, key: &str) -> Result<usize, Bad> {
        self.ask(key.len())
    }
}

#[tokio::test(start_paused = true)]
async fn shape_10_a_method_that_returns_impl_future() {
    tried!(OpaqueProxy, |it| it.get("key"), 3);
}

#[mainstay::proxied]
trait BoxedFuture {
    fn get<'a>(
        &'a self,
        key: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<usize, Bad>> + Send + 'a>>;
    fn aliased<'a>(&'a self, key: &'a str) -> mainstay::sql::BoxFuture<'a, Result<usize, Bad>>;
}
impl BoxedFuture for Flaky {
    fn get<'a>(
        &'a self,
        key: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<usize, Bad>> + Send + 'a>> {
        Box::pin(async move { self.ask(key.len()) })
    }
    fn aliased<'a>(&'a self, key: &'a str) -> mainstay::sql::BoxFuture<'a, Result<usize, Bad>> {
        Box::pin(async move { self.ask(key.len()) })
    }
}

#[tokio::test(start_paused = true)]
async fn shape_11_a_boxed_future() {
    tried!(BoxedFutureProxy, |it| it.get("key"), 3);
}

#[tokio::test(start_paused = true)]
async fn shape_12_a_boxed_future_by_its_alias_behind_a_pointer_to_the_trait() {
    let flaky = Flaky::failing(2);
    let it: Box<dyn BoxedFuture> = Box::new(BoxedFutureProxy::new(flaky.clone(), passes));
    assert_eq!(it.aliased("key").await.unwrap(), 3);
    assert_eq!(flaky.asked(), 3);
}

#[mainstay::proxied]
#[async_trait]
trait Below {
    async fn get(&self, key: &str) -> Result<usize, Bad>;
}
#[async_trait]
impl Below for Flaky {
    async fn get(&self, key: &str) -> Result<usize, Bad> {
        self.ask(key.len())
    }
}

#[tokio::test(start_paused = true)]
async fn shape_13_async_trait_below() {
    tried!(BelowProxy, |it| it.get("key"), 3);
}

#[async_trait]
#[mainstay::proxied]
trait Above {
    async fn get(&self, key: &str) -> Result<usize, Bad>;
}
#[async_trait]
impl Above for Flaky {
    async fn get(&self, key: &str) -> Result<usize, Bad> {
        self.ask(key.len())
    }
}

#[tokio::test(start_paused = true)]
async fn shape_14_async_trait_above() {
    tried!(AboveProxy, |it| it.get("key"), 3);
}

#[mainstay::proxied(local)]
trait Local {
    async fn get(&self, key: std::rc::Rc<str>) -> Result<usize, Bad>;
}
impl Local for Flaky {
    async fn get(&self, key: std::rc::Rc<str>) -> Result<usize, Bad> {
        self.ask(key.len())
    }
}

#[tokio::test(start_paused = true)]
async fn shape_15_futures_that_stay_on_their_thread() {
    tried!(LocalProxy, |it| it.get("key".into()), 3);
}

#[mainstay::proxied]
trait Associated {
    type Item: Send + Sync;
    type Error: std::fmt::Display + Send + Sync;
    const SIZE: usize;
    async fn get(&self) -> Result<Self::Item, Self::Error>;
}
impl Associated for Flaky {
    type Item = u32;
    type Error = Bad;
    const SIZE: usize = 4;
    async fn get(&self) -> Result<u32, Bad> {
        self.ask(7)
    }
}

#[tokio::test(start_paused = true)]
async fn shape_16_associated_types_also_as_the_error_and_constants() {
    tried!(AssociatedProxy, |it| it.get(), 7);
    fn size<A: Associated>(_: &A) -> usize {
        A::SIZE
    }
    assert_eq!(size(&AssociatedProxy::new(Flaky::default(), passes)), 4);
}

#[mainstay::proxied]
trait Repository<K, V: Clone + Send>
where
    K: Clone + Send + Sync,
{
    async fn get(&self, key: K) -> Result<Vec<V>, Bad>;
}
impl Repository<u32, String> for Flaky {
    async fn get(&self, key: u32) -> Result<Vec<String>, Bad> {
        self.ask(vec![key.to_string()])
    }
}

#[tokio::test(start_paused = true)]
async fn shape_17_a_generic_trait_with_conditions() {
    tried!(RepositoryProxy, |it| it.get(7), ["7"]);
}

#[mainstay::proxied]
trait Scoped<'s> {
    async fn get(&self, key: &'s str) -> Result<&'s str, Bad>;
}
impl<'s> Scoped<'s> for Flaky {
    async fn get(&self, key: &'s str) -> Result<&'s str, Bad> {
        self.ask(key)
    }
}

#[tokio::test(start_paused = true)]
async fn shape_18_a_trait_with_a_lifetime() {
    tried!(ScopedProxy, |it| it.get("key"), "key");
}

#[mainstay::proxied]
trait Changes {
    async fn set(&mut self) -> Result<(), Bad>;
    async fn fill(&self, buffer: &mut [u8]) -> Result<(), Bad>;
    async fn end(self) -> Result<(), Bad>;
}
impl Changes for Flaky {
    async fn set(&mut self) -> Result<(), Bad> {
        self.ask(())
    }
    async fn fill(&self, buffer: &mut [u8]) -> Result<(), Bad> {
        buffer[0] = 1;
        self.ask(())
    }
    async fn end(self) -> Result<(), Bad> {
        self.ask(())
    }
}

#[tokio::test(start_paused = true)]
async fn shape_19_a_mutable_receiver_is_handed_through() {
    passed!(ChangesProxy, |it| it.set());
}

#[tokio::test(start_paused = true)]
async fn shape_20_a_mutable_argument_is_handed_through() {
    let mut buffer = [0];
    passed!(ChangesProxy, |it| it.fill(&mut buffer));
    assert_eq!(buffer, [1]);
}

#[tokio::test(start_paused = true)]
async fn shape_21_a_receiver_by_value_is_handed_through() {
    passed!(ChangesProxy, |it| it.end());
}

#[mainstay::proxied]
trait WithBody {
    async fn get(&self) -> Result<u32, Bad>;
    async fn twice(&self) -> Result<u32, Bad> {
        let once = self.get().await?;
        Ok(once * 2)
    }
}
impl WithBody for Flaky {
    async fn get(&self) -> Result<u32, Bad> {
        self.ask(7)
    }
}

#[tokio::test(start_paused = true)]
async fn shape_22_a_method_with_a_body_of_the_trait() {
    tried!(WithBodyProxy, |it| it.twice(), 14);
}

#[mainstay::proxied]
trait OwnError {
    async fn get<E: From<Bad> + Send>(&self) -> Result<u32, E>;
}
impl OwnError for Flaky {
    async fn get<E: From<Bad> + Send>(&self) -> Result<u32, E> {
        Ok(self.ask(7)?)
    }
}

#[tokio::test(start_paused = true)]
async fn shape_23_an_error_that_the_caller_chooses_is_handed_through() {
    passed!(OwnErrorProxy, |it| it.get::<Bad>());
}

type Fetched<T> = Result<T, Bad>;
type FetchResult<T> = Result<T, Bad>;

#[mainstay::proxied]
trait Aliased {
    async fn get(&self, key: &str) -> FetchResult<usize>;
    #[proxied(read)]
    async fn named(&self, key: &str) -> Fetched<usize>;
    async fn unnamed(&self, key: &str) -> Fetched<usize>;
}
impl Aliased for Flaky {
    async fn get(&self, key: &str) -> FetchResult<usize> {
        self.ask(key.len())
    }
    async fn named(&self, key: &str) -> Fetched<usize> {
        self.ask(key.len())
    }
    async fn unnamed(&self, key: &str) -> Fetched<usize> {
        self.ask(key.len())
    }
}

#[tokio::test(start_paused = true)]
async fn shape_24_an_alias_that_is_called_a_result() {
    tried!(AliasedProxy, |it| it.get("key"), 3);
}

#[tokio::test(start_paused = true)]
async fn shape_25_an_alias_by_another_name_is_tried_again_where_the_attribute_says_so() {
    tried!(AliasedProxy, |it| it.named("key"), 3);
    passed!(AliasedProxy, |it| it.unnamed("key"));
}

/// It is known by its type alone.
#[derive(Clone)]
struct Typed<T>(Flaky, PhantomData<T>);

#[mainstay::proxied(name = Guarded)]
pub(crate) trait Lending: std::fmt::Debug {
    type Item<'a>: Send
    where
        Self: 'a;
    fn get<'a>(
        &'a self,
    ) -> impl Future<Output = Result<Self::Item<'a>, super::support::Bad>> + Send + 'a;
}
impl<T: Send + Sync> std::fmt::Debug for Typed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Typed")
    }
}
// As the trait has it.
#[allow(clippy::needless_lifetimes)]
impl<T: Send + Sync> Lending for Typed<T> {
    type Item<'a>
        = &'a Flaky
    where
        Self: 'a;
    async fn get<'a>(&'a self) -> Result<&'a Flaky, Bad> {
        self.0.ask(&self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn shape_26_a_generic_associated_type_and_another_name() {
    let flaky = Flaky::failing(2);
    let it = Guarded::new(Typed(flaky, PhantomData::<u8>), passes);
    assert_eq!(it.get().await.unwrap().asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_futures_of_a_proxy_can_be_sent_to_another_thread() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let it = OwnsProxy::new(Flaky::failing(2), passes);
    let put = is_send(it.put("key".into(), vec![]));
    assert_eq!(put.await.unwrap(), 3);
    let it = GenericProxy::new(Flaky::failing(2), passes);
    assert_eq!(is_send(it.put(7_u8)).await.unwrap(), 7);
}
