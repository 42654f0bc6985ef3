//! A TCP proxy between a client and PostgreSQL, MySQL or MariaDB that follows the conversation and strikes a statement
//! at a chosen moment: before it leaves, after it left, after it ran and before its answer arrives.
//! It tells what it really did, so that a test can compare that with what it was told.
//!
//! It reads the protocols in the clear. An encrypted connection passes unread, and so do all
//! connections of [`FaultProxy::start_raw`]: they can be refused, held and cut, not struck at a
//! statement.

mod conversation;
mod ledger;
mod mysql;
mod plan;
mod relay;
mod talk;
mod wire;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub use self::ledger::{Answer, Counts, Struck};
pub use self::plan::{Action, Cut, Fault, FaultPlan, Kind, Moment, Point, none, queue, seeded};
pub use self::wire::Parameter;

use self::ledger::Ledger;
use crate::port::PortLease;

/// Connections open at once; further ones are reset.
const CONNECTIONS_MAX: usize = 2000;
/// How long an order to the proxy may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A fault proxy on a loopback port of its own, in a thread of its own: it works also while the
/// test's runtime is busy. Dropping it ends all its connections.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    control: Option<watch::Sender<Control>>,
    listening: watch::Receiver<bool>,
    thread: Option<JoinHandle<()>>,
    port: PortLease,
}

/// What a proxy can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Postgres,
    Mysql,
    /// Bytes pass unread.
    Unknown,
}

/// What is ordered from outside.
#[derive(Debug, Clone, Copy)]
struct Control {
    down: bool,
    black_hole: bool,
    /// How often all connections were to be cut, and how the last time.
    cut: (u64, Cut),
}

struct Shared {
    upstream: u16,
    protocol: Protocol,
    plan: Mutex<Box<dyn FaultPlan>>,
    ledger: Mutex<Ledger>,
    statements: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("upstream", &self.upstream)
            .finish_non_exhaustive()
    }
}

impl FaultProxy {
    /// Starts a proxy before the PostgreSQL server on this loopback port.
    ///
    /// # Errors
    /// No free port, no thread.
    pub fn start(upstream: u16, plan: impl FaultPlan + 'static) -> Result<Self> {
        Self::launch(upstream, Protocol::Postgres, Box::new(plan))
    }

    /// Starts a proxy before the MySQL or MariaDB server on this loopback port.
    ///
    /// # Errors
    /// No free port, no thread.
    pub fn start_mysql(upstream: u16, plan: impl FaultPlan + 'static) -> Result<Self> {
        Self::launch(upstream, Protocol::Mysql, Box::new(plan))
    }

    /// Starts a proxy before any TCP server on this loopback port. It does not read the bytes: no
    /// plan, but [`set_down`](Self::set_down), [`black_hole`](Self::black_hole) and
    /// [`cut_all`](Self::cut_all) work.
    ///
    /// # Errors
    /// No free port, no thread.
    pub fn start_raw(upstream: u16) -> Result<Self> {
        Self::launch(upstream, Protocol::Unknown, Box::new(none()))
    }

    fn launch(upstream: u16, protocol: Protocol, plan: Box<dyn FaultPlan>) -> Result<Self> {
        let port = PortLease::take()?;
        let shared = Arc::new(Shared {
            upstream,
            protocol,
            plan: Mutex::new(plan),
            ledger: Mutex::default(),
            statements: AtomicU64::new(0),
        });
        let begin = Control {
            down: false,
            black_hole: false,
            cut: (0, Cut::Rst),
        };
        let (control, orders) = watch::channel(begin);
        let (listens, listening) = watch::channel(false);
        // Bound here, so that a client can connect as soon as this returns.
        let listener = std::net::TcpListener::bind(("127.0.0.1", port.port()))?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let served = shared.clone();
        let thread = std::thread::Builder::new()
            .name("fault-proxy".to_owned())
            .spawn(move || {
                runtime.block_on(serve(served, listener, orders, listens));
            })?;
        Ok(Self {
            shared,
            control: Some(control),
            listening,
            thread: Some(thread),
            port,
        })
    }

    /// The loopback port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port.port()
    }

    /// `postgres://postgres@127.0.0.1:PORT/database`, through the proxy, as the superuser.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable",
            self.port()
        )
    }

    /// Follows another plan from the next statement on.
    pub fn set_plan(&self, plan: impl FaultPlan + 'static) {
        *self.shared.plan() = Box::new(plan);
    }

    /// While down, new connections are refused by the kernel: nothing listens. Open ones go on, see
    /// [`cut_all`](Self::cut_all). In force when this returns.
    ///
    /// # Errors
    /// Another program took the port while the proxy was down.
    pub async fn set_down(&self, down: bool) -> Result<()> {
        self.order(|control| control.down = down);
        let mut listening = self.listening.clone();
        let obeyed = listening.wait_for(|listening| *listening != down);
        match tokio::time::timeout(PATIENCE, obeyed).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => bail!("the proxy cannot listen on port {} again", self.port()),
        }
    }

    /// While it is a black hole, connections are accepted, old and new ones stay open, and no byte
    /// passes in either direction. Afterwards what was held passes on, as after a network's outage:
    /// also statements of clients that have left meanwhile.
    pub fn black_hole(&self, on: bool) {
        self.order(|control| control.black_hole = on);
    }

    /// Cuts every open connection. Their unanswered statements are entered in the ledger.
    pub fn cut_all(&self, form: Cut) {
        self.order(|control| control.cut = (control.cut.0 + 1, form));
    }

    fn order(&self, change: impl FnOnce(&mut Control)) {
        if let Some(control) = &self.control {
            control.send_modify(change);
        }
    }

    /// What the proxy has done so far.
    pub fn counts(&self) -> Counts {
        let statements = self.shared.statements.load(Ordering::SeqCst);
        Counts {
            statements,
            ..self.shared.ledger().counts
        }
    }

    /// Every statement that was struck so far, in order: the ground truth. A statement that is not
    /// here either passed whole, with its answer, or had not reached the proxy.
    pub fn struck(&self) -> Vec<Struck> {
        self.shared.ledger().struck()
    }

    /// Waits until every struck statement is over: answered, or its connection ended at both sides
    /// (after a hang the client's part of that is to give up). [`Struck::answer`] then says all that
    /// it will ever say.
    ///
    /// # Errors
    /// Some are not over after 10 s.
    pub async fn settle(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let open = self.shared.ledger().open();
            match open {
                0 => return Ok(()),
                _ if Instant::now() > end => bail!("{open} struck statements are not over"),
                _ => sleep(Duration::from_millis(2)).await,
            }
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        // The thread sees that nobody orders any more.
        drop(self.control.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Box<dyn FaultPlan>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_statement(&self) -> u64 {
        self.statements.fetch_add(1, Ordering::SeqCst)
    }
}

/// Accepts connections until nobody orders any more.
async fn serve(
    shared: Arc<Shared>,
    first: std::net::TcpListener,
    mut orders: watch::Receiver<Control>,
    listens: watch::Sender<bool>,
) {
    let Ok(address) = first.local_addr() else {
        return;
    };
    let mut first = Some(first);
    // Its connections end with this set, at the latest when the proxy is dropped.
    let mut connections = JoinSet::new();
    let mut gone = false;
    while !gone {
        let Ok(listener) = listener(first.take(), address).await else {
            return;
        };
        listens.send_replace(true);
        gone = accept(&shared, &listener, &mut connections, &mut orders)
            .await
            .is_err();
        drop(listener);
        listens.send_replace(false);
        gone |= orders.wait_for(|control| !control.down).await.is_err();
    }
}

async fn listener(
    first: Option<std::net::TcpListener>,
    address: SocketAddr,
) -> Result<TcpListener> {
    match first {
        Some(listener) => Ok(TcpListener::from_std(listener)?),
        None => TcpListener::bind(address)
            .await
            .context("cannot listen again"),
    }
}

/// Accepts until the proxy is to be down; an error when it is dropped.
async fn accept(
    shared: &Arc<Shared>,
    listener: &TcpListener,
    connections: &mut JoinSet<()>,
    orders: &mut watch::Receiver<Control>,
) -> Result<()> {
    let watched = orders.clone();
    loop {
        tokio::select! {
            ordered = orders.wait_for(|control| control.down) => {
                return ordered.map(drop).context("the proxy is dropped");
            }
            Ok((client, _)) = listener.accept() => {
                let number = shared.ledger().counts.connections;
                shared.ledger().counts.connections += 1;
                if connections.len() < CONNECTIONS_MAX {
                    connections.spawn(relay::carry(shared.clone(), number, client, watched.clone()));
                } else {
                    shared.ledger().counts.turned_away += 1;
                    let _ = client.set_zero_linger();
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
