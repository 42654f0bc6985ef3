//! What a protected call costs when nothing fails and nothing waits, beside its peers.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::io::Error;
use std::sync::Arc;
use std::time::Duration;

use mainstay_benches::{compare, is_measuring, report, timed};
use mainstay_engine::policy::PoolSettings;
use mainstay_engine::tasks::Tasks;
use mainstay_engine::{
    Attempt, BoxFuture, Chance, Connector, Failure, Mode, Operation, Outcome, Policy, Pool, Preset,
    Source, transient,
};
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt};

/// A whole call at most this many nanoseconds; a measured run fails at twice that.
const CALL_NS_MAX: f64 = 250.0;
/// What the proxy of a trait adds to a call written by hand.
const PROXY_NS_MAX: f64 = 50.0;
/// Checkout and return.
const POOL_NS_MAX: f64 = 150.0;

fn main() {
    let runtime = runtime();
    let call = bare_against_source(&runtime);
    let proxy = proxy_against_source(&runtime);
    source_against_tower(&runtime);
    circuit_against_peers();
    let pool = pool_against_deadpool(&runtime);
    two_threads();
    if is_measuring() {
        assert!(call <= 2.0 * CALL_NS_MAX, "a call costs {call:.0} ns");
        assert!(
            proxy <= 2.0 * PROXY_NS_MAX,
            "the proxy of a trait adds {proxy:.0} ns"
        );
        assert!(
            pool <= 2.0 * POOL_NS_MAX,
            "checkout and return cost {pool:.0} ns"
        );
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be built")
}

fn source() -> Source {
    let mut settings = Preset::Balanced.settings();
    settings.health.enabled = false;
    Source::single(
        "bench",
        Policy::new(settings).expect("the bench's policy is valid"),
    )
}

fn classify(result: &Result<u64, Failure>) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(failure) => Outcome::Failure(failure.clone()),
    }
}

async fn work(_attempt: Attempt) -> Result<u64, Failure> {
    Ok(black_box(7))
}

fn run<F: Future>(runtime: &Runtime, times: u64, mut one: impl FnMut() -> F) -> Duration {
    runtime.block_on(async {
        let began = Instant::now();
        for _ in 0..times {
            black_box(one().await);
        }
        began.elapsed()
    })
}

fn bare_against_source(runtime: &Runtime) -> f64 {
    let source = source();
    let operation = Operation::read("read");
    let result = compare(
        &mut |times| run(runtime, times, || source.call(&operation, &classify, work)),
        &mut |times| {
            run(runtime, times, || async {
                Ok::<u64, Failure>(black_box(7))
            })
        },
    );
    report("source call", "bare future", result);
    result.first_ns - result.second_ns
}

#[mainstay::proxied]
trait Store {
    #[proxied(read)]
    async fn get(&self, key: &str) -> Result<u64, Error>;
    #[proxied(read)]
    fn get_now(&self, key: &str) -> Result<u64, Error>;
}

struct Here;

impl Store for Here {
    async fn get(&self, key: &str) -> Result<u64, Error> {
        Ok(black_box(key.len() as u64))
    }

    fn get_now(&self, key: &str) -> Result<u64, Error> {
        Ok(black_box(key.len() as u64))
    }
}

/// The same trait twice under the same policy: behind its proxy, and in a call written by hand.
fn proxy_against_source(runtime: &Runtime) -> f64 {
    let store = StoreProxy::new(Here, transient::io::<Error>);
    let source = Source::single("Store", Policy::preset(Preset::Component));
    let operation = Operation::read("get");
    let classify = transient::by(transient::io::<Error>);
    let here = &Here;
    let by_hand = || source.call(&operation, &classify, |_| here.get("key"));
    let result = compare(
        &mut |times| run(runtime, times, || store.get("key")),
        &mut |times| run(runtime, times, by_hand),
    );
    report("trait proxy", "source call by hand", result);
    let blocking = compare(
        &mut |times| timed(times, || drop(black_box(store.get_now("key")))),
        &mut |times| run(runtime, times, by_hand),
    );
    report(
        "trait proxy, not asynchronous",
        "source call by hand",
        blocking,
    );
    result.added_ns.median
}

#[derive(Clone)]
struct Never;

impl<Req: Clone, Res> tower::retry::Policy<Req, Res, tower::BoxError> for Never {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Req,
        result: &mut Result<Res, tower::BoxError>,
    ) -> Option<Self::Future> {
        result.is_err().then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

fn source_against_tower(runtime: &Runtime) {
    let source = source();
    let operation = Operation::read("read");
    let mut service = ServiceBuilder::new()
        .retry(Never)
        .concurrency_limit(1024)
        .timeout(Duration::from_secs(30))
        .service(tower::service_fn(|_: ()| async {
            Ok::<u64, Infallible>(black_box(7))
        }));
    let mut tower_side = |times: u64| {
        runtime.block_on(async {
            let began = Instant::now();
            for _ in 0..times {
                let ready = service.ready().await.expect("the service never fails");
                black_box(ready.call(()).await.expect("the service never fails"));
            }
            began.elapsed()
        })
    };
    let result = compare(
        &mut |times| run(runtime, times, || source.call(&operation, &classify, work)),
        &mut tower_side,
    );
    report("source call", "tower retry + limit + timeout", result);
}

fn circuit_against_peers() {
    use mainstay_engine::{Circuit, Verdict};
    let circuit = Circuit::new();
    let settings = mainstay_engine::policy::CircuitSettings::default();
    let now = Instant::now();
    let lease = Duration::from_secs(30);
    let mut ours = |times: u64| {
        timed(times, || {
            let pass = circuit.admit(&settings, lease, now).expect("it is closed");
            black_box(circuit.record(&settings, pass, Verdict::success(), now));
        })
    };
    let recloser = recloser::Recloser::default();
    let mut theirs = |times: u64| {
        timed(times, || {
            black_box(recloser.call(|| Ok::<u64, ()>(black_box(7))).ok());
        })
    };
    report(
        "circuit admit + record",
        "recloser",
        compare(&mut ours, &mut theirs),
    );

    let breaker = failsafe::Config::new().build();
    let mut theirs = |times: u64| {
        use failsafe::CircuitBreaker;
        timed(times, || {
            black_box(breaker.call(|| Ok::<u64, ()>(black_box(7))).ok());
        })
    };
    report(
        "circuit admit + record",
        "failsafe",
        compare(&mut ours, &mut theirs),
    );
}

struct Free;

impl Connector for Free {
    type Connection = u64;

    fn connect(&self, _: Mode) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(std::future::ready(Ok(7)))
    }

    fn is_closed(&self, _: &u64) -> bool {
        false
    }

    fn check<'a>(&'a self, _: &'a mut u64) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }

    fn reset<'a>(&'a self, _: &'a mut u64) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }

    fn clean_up<'a>(&'a self, _: &'a mut u64) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }
}

struct FreeToo;

impl deadpool::managed::Manager for FreeToo {
    type Type = u64;
    type Error = Infallible;

    async fn create(&self) -> Result<u64, Infallible> {
        Ok(7)
    }

    async fn recycle(
        &self,
        _: &mut u64,
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

fn pool_against_deadpool(runtime: &Runtime) -> f64 {
    let _inside = runtime.enter();
    let settings = PoolSettings::default();
    let pool = Pool::new(Free, settings, Tasks::new(), Chance::seeded(1));
    let theirs = deadpool::managed::Pool::<FreeToo>::builder(FreeToo)
        .max_size(50)
        .build()
        .expect("the pool's settings are valid");
    let result = compare(
        &mut |times| run(runtime, times, || pool.checkout(Mode(0), ())),
        &mut |times| run(runtime, times, || theirs.get()),
    );
    report("pool checkout + return", "deadpool", result);
    result.first_ns
}

/// Two threads on one endpoint against one thread: calls per second.
fn two_threads() {
    let source = Arc::new(source());
    let on_one = |source: Arc<Source>, times: u64| {
        let operation = Operation::read("read");
        let runtime = runtime();
        run(&runtime, times, || source.call(&operation, &classify, work))
    };
    let mut both = |times: u64| {
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let source = Arc::clone(&source);
                scope.spawn(move || on_one(source, times / 2));
            }
        });
        began.elapsed()
    };
    let single = Arc::clone(&source);
    let mut one = move |times: u64| on_one(Arc::clone(&single), times);
    report(
        "two threads on one endpoint",
        "one thread",
        compare(&mut both, &mut one),
    );
}
