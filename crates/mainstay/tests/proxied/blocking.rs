//! Code without async, outside and inside of runtimes of either kind. Every wait has a limit: what
//! would hang fails.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use mainstay::blocking::{Database, Runtime, Source};
use mainstay::sql::{Begin, Options, Plain, Value};
use mainstay::sqlite::{SqliteDriver, SqliteSettings};
use mainstay::{
    Chance, DataProxy, EndpointSpec, Operation, Policy, Preset, Role, Safety, tasks::Tasks,
    transient,
};

use crate::support::{Bad, Flaky, passes};

const LIMIT: Duration = Duration::from_secs(60);

/// Runs in a thread of its own, at most for a time.
fn bounded(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    match ended.recv_timeout(LIMIT) {
        Ok(()) => thread.join().unwrap(),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().unwrap_err())
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
    }
}

/// Runs the same work outside of any runtime, and inside of each kind in each way.
fn everywhere(work: impl Fn() + Clone + Send + Sync + 'static) {
    let outside = work.clone();
    bounded(outside);
    for threads in [0, 1, 2] {
        let build = move || {
            let mut builder = match threads {
                0 => tokio::runtime::Builder::new_current_thread(),
                _ => tokio::runtime::Builder::new_multi_thread(),
            };
            if threads > 0 {
                builder.worker_threads(threads);
            }
            builder.enable_all().build().unwrap()
        };
        let inside = work.clone();
        bounded(move || build().block_on(async move { inside() }));
        let tasks = Tasks::new();
        let in_task = work.clone();
        bounded(move || {
            build().block_on(async move {
                tasks.spawn(async move { in_task() }).await.unwrap();
            });
        });
        let in_local = work.clone();
        bounded(move || {
            let local = tokio::task::LocalSet::new();
            build().block_on(local.run_until(async move { in_local() }));
        });
        let in_blocking = work.clone();
        bounded(move || {
            build().block_on(async move {
                tokio::task::spawn_blocking(in_blocking).await.unwrap();
            });
        });
    }
}

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let number = Chance::from_entropy().u128();
        let name = format!("mainstay-blocking-{}-{number:x}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn proxy(folder: &Folder) -> Database<DataProxy> {
    let file = folder.0.join("parts.db");
    let made = Database::start(|| {
        let policy = Policy::preset(Preset::Balanced);
        let mut settings = SqliteSettings::new(&file);
        settings.create = true;
        let driver = Arc::new(SqliteDriver::new(settings)?);
        let plain = Plain::new(driver, &policy, Tasks::new(), Chance::from_entropy());
        DataProxy::builder("parts", policy)
            .endpoint(EndpointSpec::new("a", Arc::new(plain) as _).role(Role::Primary))
            .build()
            .map_err(Box::<dyn std::error::Error + Send + Sync>::from)
    });
    made.unwrap()
}

#[test]
fn verbs_of_a_database_work_everywhere() {
    everywhere(|| {
        let folder = Folder::new();
        let parts = proxy(&folder);
        let none = Options::default;
        let create = "CREATE TABLE parts (id INTEGER PRIMARY KEY, name TEXT)";
        parts.execute(create, vec![], none()).unwrap();
        let insert = "INSERT INTO parts (id, name) VALUES (?, ?)";
        for id in 0..10 {
            let row = vec![Value::I64(id), Value::Text("rope".into())];
            parts.execute(insert, row, none()).unwrap();
        }
        let count = parts.scalar("SELECT count(*) FROM parts", vec![], none());
        assert_eq!(count.unwrap(), Some(Value::I64(10)));
        let rows = parts.query("SELECT id FROM parts ORDER BY id", vec![], none());
        assert_eq!(rows.unwrap().rows.len(), 10);
        assert!(parts.exists("parts").unwrap());
        let streamed = parts.stream_query("SELECT id FROM parts", vec![], none());
        let batches = streamed.unwrap().map(|batch| batch.unwrap().rows.len());
        assert_eq!(batches.sum::<usize>(), 10);
        let inside = parts.transaction(Begin::default(), 1, |transaction| {
            transaction.execute("UPDATE parts SET name = 'line' WHERE id = 1", vec![])?;
            transaction.savepoint("one")?;
            transaction.execute("DELETE FROM parts", vec![])?;
            transaction.rollback_to("one")?;
            transaction.scalar("SELECT count(*) FROM parts", vec![])
        });
        assert_eq!(inside.unwrap(), Some(Value::I64(10)));
        let lent = parts.run(Safety::Read, none(), |lent| {
            lent.scalar("SELECT name FROM parts WHERE id = 1", vec![])
        });
        assert_eq!(lent.unwrap(), Some(Value::Text("line".into())));
        let mut left = parts.begin(&Begin::default()).unwrap();
        left.execute("DELETE FROM parts", vec![]).unwrap();
        drop(left);
        let mut kept = parts.begin(&Begin::default()).unwrap();
        kept.execute("DELETE FROM parts WHERE id = 9", vec![])
            .unwrap();
        kept.commit().unwrap();
        let count = parts.scalar("SELECT count(*) FROM parts", vec![], none());
        assert_eq!(count.unwrap(), Some(Value::I64(9)));
        parts.close(Duration::from_secs(5));
    });
}

#[mainstay::proxied]
trait Store {
    fn get(&self) -> Result<u32, Bad>;
}
impl Store for Flaky {
    fn get(&self) -> Result<u32, Bad> {
        self.ask(7)
    }
}

/// Short pauses: time is real here.
fn quick() -> Arc<Policy> {
    let mut settings = Preset::Component.settings();
    settings.retry.delay = Duration::from_millis(5);
    Policy::new(settings).unwrap()
}

#[test]
fn pauses_of_a_proxy_that_is_not_asynchronous_work_everywhere() {
    everywhere(|| {
        let flaky = Flaky::failing(2);
        let built = StoreProxy::builder(flaky.clone(), passes).policy(quick());
        assert_eq!(built.build().unwrap().get().unwrap(), 7);
        assert_eq!(flaky.asked(), 3);
    });
}

#[test]
fn the_engines_call_works_everywhere() {
    everywhere(|| {
        let source = Source::new(mainstay::Source::single("work", quick())).unwrap();
        let calls = AtomicU32::new(0);
        let classify = transient::by(passes);
        let done = source.call(&Operation::read("work"), &classify, |attempt| {
            calls.fetch_add(1, Ordering::SeqCst);
            match attempt.number {
                3 => Ok(7),
                _ => Err(Bad::Passing),
            }
        });
        assert_eq!(done.unwrap(), 7);
        assert_eq!(calls.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn a_wait_within_a_wait_on_the_same_runtime_ends() {
    for start in [Runtime::start, Runtime::on_demand] {
        everywhere(move || {
            let runtime = start().unwrap();
            let pause = || tokio::time::sleep(Duration::from_millis(5));
            let answer = runtime.wait(async {
                pause().await;
                runtime.wait(async {
                    pause().await;
                    7
                })
            });
            assert_eq!(answer, 7);
        });
    }
}

#[test]
fn a_task_of_the_runtime_itself_may_wait_on_it() {
    bounded(|| {
        let runtime = Arc::new(Runtime::start().unwrap());
        let tasks = Tasks::new();
        // As many as it has workers: each blocks one.
        let joined: Vec<_> = (0..4)
            .map(|_| {
                let inner = Arc::clone(&runtime);
                let waits = async move {
                    inner.wait(async { tokio::time::sleep(Duration::from_millis(5)).await });
                };
                runtime.enter(|| tasks.spawn(waits))
            })
            .collect();
        for task in joined {
            runtime.wait(task).unwrap();
        }
    });
}

#[test]
fn many_threads_wait_on_one_runtime_without_threads() {
    bounded(|| {
        let runtime = Runtime::on_demand().unwrap();
        let wait = &|millis| {
            // Within the future: a timer belongs to the runtime that it is made in.
            runtime.wait(async { tokio::time::sleep(Duration::from_millis(millis)).await });
        };
        std::thread::scope(|scope| {
            for number in 0..16 {
                scope.spawn(move || {
                    // Whoever drives it ends first or last; the others must go on in both cases.
                    for turn in 0..20 {
                        wait((number + turn) % 8);
                    }
                });
                // The same within a runtime, where another thread has to drive it.
                scope.spawn(move || {
                    let mut builder = tokio::runtime::Builder::new_current_thread();
                    builder.build().unwrap().block_on(async {
                        for turn in 0..20 {
                            wait((number + turn) % 8);
                        }
                    });
                });
            }
        });
    });
}

#[test]
fn a_task_that_has_used_up_its_turns_can_wait() {
    bounded(|| {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        tokio.unwrap().block_on(async {
            let runtime = Runtime::on_demand().unwrap();
            // Far more than a task may do before it must let others run.
            for _ in 0..1000 {
                runtime.wait(async { tokio::time::sleep(Duration::ZERO).await });
            }
        });
    });
}
