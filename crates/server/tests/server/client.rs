//! A small HTTP client: one connection a request, so that nothing is shared between tests.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use mainstay_engine::tasks::Tasks;
use serde_json::Value;
use tokio::net::TcpStream;

use super::contract::{Contract, Exchange};

/// Far longer than any request of a test takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    /// What every exchange is held against.
    contract: Contract,
    tasks: Tasks,
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: hyper::HeaderMap,
    pub(super) text: String,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of an answer that went well.
    #[track_caller]
    pub(super) fn good(self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.json()
    }

    /// The problem, once it is one with that code.
    #[track_caller]
    pub(super) fn bad(self, status: u16, code: &str) -> Value {
        assert!(
            self.is_problem(status, code),
            "not {status} {code}: {self:?}"
        );
        self.json()
    }

    /// Whether it is a complete problem document with that code.
    pub(super) fn is_problem(&self, status: u16, code: &str) -> bool {
        let kind = self.headers.get("content-type");
        if self.status != status || kind.is_none_or(|kind| kind != "application/problem+json") {
            return false;
        }
        let problem = self.json();
        let members = ["type", "title", "detail", "sent", "correlation_id", "hint"];
        problem["code"] == code
            && problem["status"] == status
            && members.iter().all(|member| problem[member].is_string())
    }
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        Client {
            address,
            contract: Contract::new(),
            tasks: Tasks::new(),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) async fn open(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        self.tasks.spawn(async move {
            let _ = connection.await;
        });
        sender.send_request(request).await.unwrap()
    }

    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let sent: Bytes = body.into();
        let request = request.body(Full::new(sent.clone())).unwrap();
        let exchange = async {
            let response = self.open(request).await;
            let (head, body) = response.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Reply {
                status: head.status,
                headers: head.headers,
                text: String::from_utf8(body.to_vec()).unwrap(),
            }
        };
        let reply = tokio::time::timeout(PATIENCE, exchange).await;
        let reply = reply.expect("an answer in time");
        let media = reply.headers.get("content-type");
        self.contract.hold(&Exchange {
            method,
            path,
            sent: &sent,
            status: reply.status.as_u16(),
            media: media.map_or("", |media| media.to_str().unwrap()),
            answered: &reply.text,
        });
        reply
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "").await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, &[], body.to_string()).await
    }

    /// Posts to a verb of the source `s`.
    pub(super) async fn verb(&self, verb: &str, body: Value) -> Reply {
        self.post(&format!("/v1/sources/s/{verb}"), body).await
    }
}
