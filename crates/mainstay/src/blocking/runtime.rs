//! Waiting for a future on a thread, wherever that thread stands.

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::Notify;

/// Workers of a runtime of our own. One could be held up by an observer that waits on it.
const WORKERS: usize = 2;

/// Where futures wait that a thread blocks for.
///
/// The future itself always runs on the thread that waits for it; the runtime has the clock, the sockets
/// and the background work. So neither the future nor its result needs to be `Send`, and waiting within
/// a task of another runtime is no error.
pub struct Runtime {
    /// `None` only while it is being dropped.
    tokio: Option<tokio::runtime::Runtime>,
    own_threads: Arc<OwnThreads>,
}

/// Threads that carry a runtime of ours.
#[derive(Default)]
struct OwnThreads(Mutex<HashSet<ThreadId>>);

impl OwnThreads {
    fn change(&self, change: impl FnOnce(&mut HashSet<ThreadId>) -> bool) -> bool {
        // A set of ids is whole whatever happened to whoever held the lock.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has_this_one(&self) -> bool {
        let id = thread::current().id();
        self.change(|threads| threads.contains(&id))
    }
}

impl Runtime {
    /// A runtime with two threads of its own: for connections, health checks and whatever else goes on
    /// while nobody waits.
    ///
    /// # Errors
    /// If the system gives no thread or no poll.
    pub fn start() -> io::Result<Runtime> {
        let own_threads = Arc::<OwnThreads>::default();
        let (came, left) = (Arc::clone(&own_threads), Arc::clone(&own_threads));
        let tokio = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("mainstay-blocking")
            .on_thread_start(move || {
                came.change(|threads| threads.insert(thread::current().id()));
            })
            .on_thread_stop(move || {
                left.change(|threads| threads.remove(&thread::current().id()));
            })
            .enable_all()
            .build()?;
        Ok(Runtime {
            tokio: Some(tokio),
            own_threads,
        })
    }

    /// A runtime without threads, whose clock goes on while somebody waits and which has no sockets: for
    /// the pauses between attempts of a function that is not asynchronous.
    ///
    /// A task that is started in it must not wait on it: the thread that it would block is the one that drives
    /// it, so that wait never ends.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn on_demand() -> io::Result<Runtime> {
        let tokio = Builder::new_current_thread().enable_time().build()?;
        Ok(Runtime::from_tokio(tokio))
    }

    /// Takes a runtime that was built elsewhere, such as one with a paused clock for tests. Its own tasks must
    /// not wait on it: its threads are not known here as ours, as those of [`Runtime::start`] are.
    pub fn from_tokio(tokio: tokio::runtime::Runtime) -> Runtime {
        Runtime {
            tokio: Some(tokio),
            own_threads: Arc::default(),
        }
    }

    /// Runs `make` within the runtime, without waiting: what it starts in the background (connections,
    /// health checks) then belongs to this runtime.
    pub fn enter<T>(&self, make: impl FnOnce() -> T) -> T {
        let _inside = self.tokio().enter();
        make()
    }

    /// Waits for a future, which runs on this thread.
    ///
    /// It blocks the thread as any blocking call does. Within a task of another runtime nothing else on
    /// that thread goes on meanwhile: other workers of a multi-thread runtime take its tasks over, but for
    /// the one that it woke last; on a current-thread runtime all tasks stand still. So there it is for short work; use
    /// `spawn_blocking`, or the asynchronous form, for the rest. A future that needs a task of the
    /// blocked runtime to go on waits for it until its own deadline, or for ever where it has none.
    ///
    /// The future is polled within this runtime, but what is made before it is not: a timer or a socket
    /// belongs to the runtime that it is made in, or finds none and panics. So make them inside:
    /// `runtime.wait(async { sleep(pause).await })`.
    ///
    /// # Panics
    /// Where the future does; on a runtime without threads, within another runtime, if the system gives no
    /// thread; and on a blocking thread of a [`Runtime::start`] that runs a current-thread runtime or a
    /// `LocalSet` of its own.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        // Without a budget: the one of a task that we may stand in is not renewed while we block it.
        let mut future = pin!(tokio::task::unconstrained(future));
        // What ends at once needs no waker.
        if let Poll::Ready(output) = self.poll(future.as_mut(), Waker::noop()) {
            return output;
        }
        let signal = Arc::new(Signal {
            woken: AtomicBool::new(false),
            thread: thread::current(),
            notify: Notify::new(),
        });
        let waker = Waker::from(Arc::clone(&signal));
        loop {
            if let Poll::Ready(output) = self.poll(future.as_mut(), &waker) {
                return output;
            }
            self.drive(&signal);
        }
    }

    fn poll<F: Future>(&self, future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
        let _inside = self.tokio().enter();
        future.poll(&mut Context::from_waker(waker))
    }

    /// Lets the runtime go on until the signal comes. No code of a caller runs in here.
    fn drive(&self, signal: &Signal) {
        let tokio = self.tokio();
        if tokio.handle().runtime_flavor() != RuntimeFlavor::CurrentThread {
            // Its threads go on by themselves, unless we stand on one: then another takes its work over.
            match self.own_threads.has_this_one() {
                true => tokio::task::block_in_place(|| signal.park()),
                false => signal.park(),
            }
        } else if Handle::try_current().is_err() {
            tokio.block_on(signal.notify.notified());
        } else {
            // Within a runtime this thread must not drive another one.
            thread::scope(|scope| {
                scope.spawn(|| tokio.block_on(signal.notify.notified()));
            });
        }
    }

    fn tokio(&self) -> &tokio::runtime::Runtime {
        match &self.tokio {
            Some(tokio) => tokio,
            None => unreachable!("it is taken out by drop alone"),
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(tokio) = self.tokio.take() {
            // Waiting for its threads would be refused within a task.
            tokio.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

/// Tells a waiting thread that its future may go on.
struct Signal {
    woken: AtomicBool,
    thread: Thread,
    notify: Notify,
}

impl Signal {
    fn park(&self) {
        while !self.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.notify.notify_one();
        self.thread.unpark();
    }
}
