//! A server that says what a test wants.

use std::sync::Arc;

use mainstay_engine::tasks::Tasks;
use mainstay_objects::{S3Settings, S3Store};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

/// What the server does with one request.
pub(crate) enum Say {
    /// These bytes, then the end of the connection.
    Bytes(Vec<u8>),
    /// These bytes, and nothing more.
    Hang(Vec<u8>),
}

/// A request as it came.
#[derive(Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) place: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Serves until it is dropped.
pub(crate) struct Scripted {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Received>>>,
    tasks: Tasks,
}

impl Scripted {
    pub(crate) async fn start(answer: impl Fn(&Received) -> Say + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, tasks) = (Arc::new(answer), Tasks::new());
        let (kept, connections) = (Arc::clone(&requests), tasks.clone());
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, kept) = (Arc::clone(&answer), Arc::clone(&kept));
                connections.spawn(serve(stream, move |request| {
                    kept.lock().push(request.clone());
                    answer(&request)
                }));
            }
        });
        Scripted {
            url,
            requests,
            tasks,
        }
    }

    /// Answers each request the same.
    pub(crate) async fn saying(answer: impl Into<String>) -> Self {
        let answer = answer.into();
        Scripted::start(move |_| Say::Bytes(answer.clone().into_bytes())).await
    }

    pub(crate) fn settings(&self) -> S3Settings {
        S3Settings::new(&self.url, "access", "secret")
    }

    pub(crate) fn store(&self) -> S3Store {
        S3Store::new(self.settings()).unwrap()
    }

    pub(crate) fn requests(&self) -> Vec<Received> {
        self.requests.lock().clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

/// One connection with one request.
pub(crate) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl FnOnce(Received) -> Say,
) {
    let Some(request) = read(&mut stream).await else {
        return;
    };
    match answer(request) {
        Say::Bytes(bytes) => {
            // The client may have left.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Say::Hang(bytes) => {
            let _ = stream.write_all(&bytes).await;
            std::future::pending::<()>().await;
        }
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Received> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let mut request = Received {
        method: first.next()?.to_owned(),
        place: first.next()?.to_owned(),
        headers: lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect(),
        body: bytes.split_off(end + 4),
    };
    let length: usize = request
        .header("content-length")
        .unwrap_or("0")
        .parse()
        .unwrap();
    while request.body.len() < length {
        if stream.read_buf(&mut request.body).await.ok()? == 0 {
            return None;
        }
    }
    Some(request)
}

/// An answer with this status line and body, with a true length.
pub(crate) fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// An error as S3 tells it.
pub(crate) fn complaint(status: &str, code: &str) -> String {
    let xml = format!("<Error><Code>{code}</Code><Message>so it is</Message></Error>");
    answer(status, &xml)
}
