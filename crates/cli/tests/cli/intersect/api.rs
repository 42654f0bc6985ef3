//! The program's own routes.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::program::Server;

/// A caller of the program's routes.
#[derive(Clone)]
pub(super) struct Api {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
}

impl Api {
    pub(super) fn new(server: &Server) -> Self {
        Api {
            client: Client::builder(TokioExecutor::new()).build_http(),
            url: server.url.trim_end_matches('/').to_owned(),
        }
    }

    /// Calls a route; gives the status and the answer.
    pub(super) async fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let text = match body.is_null() {
            true => String::new(),
            false => body.to_string(),
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(text)))
            .unwrap();
        let (head, body) = self.client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        (head.status.as_u16(), body)
    }

    /// How the service stands.
    pub(super) async fn service(&self) -> Value {
        let (status, body) = self.call("GET", "/v1/services/compute", &Value::Null).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    /// One of its counts.
    pub(super) async fn count(&self, name: &str) -> u64 {
        counted(&self.service().await, name)
    }

    /// Waits until the service stands so; gives how it stands then.
    pub(super) async fn until(
        &self,
        what: &str,
        within: std::time::Duration,
        fits: impl Fn(&Value) -> bool,
    ) -> Value {
        let end = tokio::time::Instant::now() + within;
        loop {
            let service = self.service().await;
            if fits(&service) {
                return service;
            }
            let in_time = tokio::time::Instant::now() < end;
            assert!(in_time, "not within {within:?}: {what}: {service:#}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Waits until nothing is under way; gives how the service stands then.
    pub(super) async fn settled(&self, within: std::time::Duration) -> Value {
        let is_settled = |service: &Value| {
            service["requests_open"] == 0
                && service["unconfirmed"] == 0
                && service["jobs_open"] == 0
        };
        self.until("nothing is under way", within, is_settled).await
    }
}

/// A count of a service that was asked for.
pub(super) fn counted(service: &Value, name: &str) -> u64 {
    let count = service["counts"][name].as_u64();
    count.unwrap_or_else(|| panic!("no count {name}: {service}"))
}
