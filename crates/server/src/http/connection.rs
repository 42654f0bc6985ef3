//! Connections of clients: how many, how slow, and how they end.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use mainstay_engine::tasks::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::app::App;
use super::paced::{Pace, Paced, Render, Socket};
use super::phase::{Step, Stepping};
use super::routes;
use super::slots::{Slot, Slots};
use crate::problem::Problem;

/// More header lines than any client of ours sends.
const HEADERS_MAX: usize = 64;
/// What is read ahead of a connection: heads are smaller, bodies come in pieces.
const BUFFER_BYTES: usize = 64 << 10;
/// Connections over the limit that are told so at once; further ones are just closed.
const TOLD_MAX: usize = 64;
/// How long telling may take.
const TELLING_MAX: Duration = Duration::from_secs(1);
/// The first byte of an encrypted connection.
const HANDSHAKE: u8 = 0x16;
/// After an error of `accept`, which is usually a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Takes connections until the server stops.
pub(super) async fn accept(app: Arc<App>, listener: TcpListener, tasks: Tasks) {
    let router = routes::router(Arc::clone(&app));
    let mut slots = Slots::new(app.settings().connections_max);
    let telling = Arc::new(Semaphore::new(TOLD_MAX));
    let stopping = app.stopping().clone();
    loop {
        let accepted = tokio::select! {
            () = stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                if is_of_the_client(&error) {
                    continue;
                }
                tracing::warn!(%error, "cannot take a connection");
                // One that asks for nothing has a file descriptor.
                if lacks_descriptors(&error) && slots.make_room() {
                    app.counts().count_evicted_connection();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match slots.take() {
            Some((mut slot, has_room_made)) => {
                if has_room_made {
                    app.counts().count_evicted_connection();
                }
                let (app, router) = (Arc::clone(&app), router.clone());
                let telling = Arc::clone(&telling);
                tasks.spawn(async move {
                    match slot.ready().await {
                        true => serve(app, router, stream, slot).await,
                        // Who was to leave has begun to work.
                        false => turn_away(&app, stream, &telling).await,
                    }
                });
            }
            None => {
                let (app, telling) = (Arc::clone(&app), Arc::clone(&telling));
                tasks.spawn(async move { turn_away(&app, stream, &telling).await });
            }
        }
    }
}

/// The client closed it before it was taken.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

/// ENFILE and EMFILE, which have no kind.
fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

/// All are at work: says so, unless too many are being told so already.
async fn turn_away(app: &App, stream: TcpStream, telling: &Semaphore) {
    app.counts().count_refused_connection();
    if app.tls().is_some() {
        // It could not read why.
        return;
    }
    if let Ok(_permit) = telling.try_acquire() {
        let answer = app.refuse_early(too_many());
        let told = tokio::time::timeout(TELLING_MAX, tell(stream, answer));
        // A client that takes no answer is closed.
        told.await.ok();
    }
}

async fn serve(app: Arc<App>, router: Router, stream: TcpStream, slot: Slot) {
    // Answers are written whole, so that waiting for more to send only delays them.
    let _ = stream.set_nodelay(true);
    let Some(tls) = app.tls().cloned() else {
        return talk(app, router, stream, slot).await;
    };
    let limit = app.settings().header_timeout;
    let stopping = app.stopping().clone();
    let handshake = tokio::time::timeout(limit, async {
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1) if first[0] != HANDSHAKE => {
                let answer = app.refuse_early(not_encrypted());
                tokio::time::timeout(TELLING_MAX, tell(stream, answer))
                    .await
                    .ok();
                None
            }
            _ => Some(tls.accept(stream).await),
        }
    });
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = stopping.cancelled() => return,
        () = slot.close.cancelled() => return,
    };
    match shaken {
        Ok(Some(Ok(stream))) => talk(app, router, stream, slot).await,
        Ok(Some(Err(error))) => tracing::debug!(%error, "a handshake failed"),
        Ok(None) | Err(_) => {}
    }
}

async fn talk(app: Arc<App>, router: Router, stream: impl Socket + Send + 'static, slot: Slot) {
    let settings = app.settings();
    let phase = slot.phase.clone();
    let pace = Pace {
        head: settings.header_timeout,
        answer: settings.request_timeout,
    };
    let render: Render = {
        let app = Arc::clone(&app);
        Box::new(move |problem| app.refuse_early(problem))
    };
    let socket = TokioIo::new(Paced::new(stream, phase.clone(), pace, render));
    let stopping = app.stopping().clone();
    let service = service_fn(move |request: Request<Incoming>| {
        phase.begin(request.version(), !request.body().is_end_stream());
        let (app, router, phase) = (Arc::clone(&app), router.clone(), phase.clone());
        async move {
            let incoming = |body| Body::new(Stepping::request(body, phase.clone()));
            let response = app.answer(router, request.map(incoming)).await;
            phase.answer();
            Ok::<_, Infallible>(response.map(|body| Stepping::answer(body, phase)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // Of the time between two requests; that of a head alone is the socket's matter.
        .header_read_timeout(settings.idle_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(socket, service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = slot.close.cancelled() => {
            if slot.phase.step() <= Step::Head {
                return;
            }
            // A request came in the meantime.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

fn not_encrypted() -> Problem {
    Problem::bad_request(
        "the request is not encrypted, and this port takes encrypted ones only",
        "call it as https://",
    )
}

fn too_many() -> Problem {
    Problem::new(
        "queue_full",
        "as many connections are at work as server.connections_max allows",
        "send fewer requests at once, or raise server.connections_max",
    )
    .retry_after(Duration::from_secs(1))
}

/// Writes a whole answer, and lets the client read it before closing.
async fn tell(mut stream: TcpStream, answer: Vec<u8>) {
    if stream.write_all(&answer).await.is_ok() && stream.shutdown().await.is_ok() {
        let mut ignored = [0; 1024];
        while stream.read(&mut ignored).await.is_ok_and(|count| count > 0) {}
    }
}
