//! Asks a running server over HTTP.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::exit::BadUsage;

/// Where `mainstay serve` listens unless it is told otherwise.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:7717";

/// A server on loopback answers a connection at once or not at all.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The server bounds its calls itself; this is for one that hangs.
const ANSWER_MAX: Duration = Duration::from_secs(150);

/// Whether one lives is asked without any work that takes time.
const ALIVE_MAX: Duration = Duration::from_secs(10);

/// A server refuses larger plain answers by default; one that allows more is believed.
const BODY_MAX: usize = 1 << 30;

/// Which server to ask.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Target {
    /// The running server
    #[arg(long, value_name = "URL", default_value = DEFAULT_URL, env = "MAINSTAY_URL")]
    url: String,
    /// The key to show, where the server asks for one
    #[arg(long, value_name = "KEY", env = "MAINSTAY_KEY", hide_env_values = true)]
    key: Option<String>,
    /// The authority (PEM) that the certificate of an https:// server comes from
    #[arg(long, value_name = "FILE", env = "MAINSTAY_CA")]
    ca: Option<PathBuf>,
}

impl Target {
    /// The client for it.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        self.client_of(&self.url)
    }

    /// Finds out whether a server is there, or at another URL. No key is shown.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub(crate) fn prober(&self, other: Option<&str>) -> anyhow::Result<Client> {
        Client::prober(other.unwrap_or(&self.url), self.ca.as_deref())
    }

    /// The client for another URL, with the same key.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub(crate) fn client_of(&self, url: &str) -> anyhow::Result<Client> {
        let client = Client::new(url, self.ca.as_deref())?;
        match &self.key {
            Some(key) => client.with_key(key),
            None => Ok(client),
        }
    }
}

/// One server. Every question has a connection of its own: there is nothing to keep and nothing that is
/// tried twice.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    host: String,
    port: u16,
    authority: String,
    key: Option<header::HeaderValue>,
    /// `None`: plain HTTP.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Client {
    /// The client for a URL such as `http://127.0.0.1:7717`, whose scheme may be left out. `ca`: whom to
    /// believe about the certificate of `https://`.
    ///
    /// # Errors
    /// The URL or the file cannot be used.
    pub(crate) fn new(url: &str, ca: Option<&Path>) -> anyhow::Result<Self> {
        let (mut client, encrypts) = Client::plain(url)?;
        if encrypts {
            let ca = ca.ok_or_else(|| {
                BadUsage(format!(
                    "the URL {url:?} asks for TLS: name the authority of its certificate by --ca FILE"
                ))
            })?;
            client.tls = Some(trusting(&client.host, ca)?);
        }
        Ok(client)
    }

    /// Without encryption, and whether the URL asks for it.
    fn plain(url: &str) -> anyhow::Result<(Self, bool)> {
        let wrong = |what: &str| {
            BadUsage(format!(
                "the URL {url:?} {what}; write it like {DEFAULT_URL} or https://db.example:7717"
            ))
        };
        let whole = match url.contains("://") {
            true => url.to_owned(),
            false => format!("http://{url}"),
        };
        let uri: Uri = whole.parse().map_err(|_| wrong("is not one"))?;
        let encrypts = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!(wrong("begins neither with http:// nor with https://")),
        };
        if uri.path() != "/" || uri.query().is_some() {
            bail!(wrong("has a path, which is not wanted"));
        }
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("names no host"))?;
        let usual = if encrypts { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(usual);
        let name = host.trim_matches(['[', ']']).to_owned();
        let client = Client {
            authority: format!("{host}:{port}"),
            host: name,
            port,
            key: None,
            tls: None,
        };
        Ok((client, encrypts))
    }

    /// One that finds out who is [`alive`](Client::alive). It shows no key; without an authority it asks also a
    /// server with TLS in plain HTTP, which that one refuses in our words.
    ///
    /// # Errors
    /// As [`new`](Client::new).
    pub(crate) fn prober(url: &str, ca: Option<&Path>) -> anyhow::Result<Self> {
        match ca {
            Some(_) => Client::new(url, ca),
            None => Ok(Client::plain(url)?.0),
        }
    }

    /// Shows a key with every question.
    ///
    /// # Errors
    /// It cannot be one.
    pub(crate) fn with_key(mut self, key: &str) -> anyhow::Result<Self> {
        let value = header::HeaderValue::try_from(format!("Bearer {key}"));
        let value =
            value.map_err(|_| BadUsage("the key has characters that no key has".to_owned()));
        self.key = Some(value?);
        Ok(self)
    }

    /// What `GET` gives.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// What `POST` of a text of JSON gives.
    pub(crate) async fn post(&self, path: &str, body: String) -> anyhow::Result<Value> {
        self.ask(Method::POST, path, body.into()).await
    }

    /// The server's address as people write it.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// The source to use where the user names none: the only one there is.
    pub(crate) async fn only_source(&self) -> anyhow::Result<String> {
        let answer = self.get("/v1/sources").await?;
        let names: Vec<&str> = answer["sources"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|source| source["name"].as_str())
            .collect();
        match names.as_slice() {
            [only] => Ok((*only).to_owned()),
            [] => bail!("the server has no source; add one to its configuration"),
            _ => bail!(BadUsage(format!(
                "the server has several sources; name one with --source: {}",
                names.join(", ")
            ))),
        }
    }

    /// Finds out whether a Mainstay server is there, even if it wants to be asked in another way.
    ///
    /// # Errors
    /// Nothing answers in time, or something else does.
    pub(crate) async fn alive(&self) -> anyhow::Result<()> {
        let asking = self.answer(Method::GET, "/healthz", Bytes::new(), ALIVE_MAX);
        let (status, answer) = asking.await?;
        ensure!(
            is_ours(status, &answer),
            "{} answered {status}, but not as a Mainstay server does; name one with --url",
            self.url()
        );
        Ok(())
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Value> {
        let (status, answer) = self.answer(method, path, body, ANSWER_MAX).await?;
        if status.is_success() {
            Ok(answer)
        } else {
            Err(refusal(status, &answer))
        }
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let exchanged = tokio::time::timeout(limit, self.exchange(method, path, body)).await;
        let (status, body) = exchanged.with_context(|| {
            format!(
                "{} did not answer within {} s; does it hang?",
                self.url(),
                limit.as_secs()
            )
        })??;
        let answer = serde_json::from_slice(&body).with_context(|| {
            format!(
                "{} answered {status} and no JSON; is it a Mainstay server?",
                self.url()
            )
        })?;
        Ok((status, answer))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let lost = || {
            format!(
                "the connection to {} broke off; is the server still there?",
                self.url()
            )
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(self.connect().await?))
            .await
            .with_context(lost)?;
        let mut request = Request::builder();
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, key);
        }
        let request = request
            .method(method)
            .uri(path)
            .header(header::HOST, &self.authority)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .body(Full::new(body))?;
        let answer = async move {
            let response = sender.send_request(request).await.with_context(lost)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), BODY_MAX).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!("the answer was cut: {error}"))?;
            Ok((status, body.to_bytes()))
        };
        // The connection ends when the answer is there; an error of its own is told by the answer.
        let (answer, _) = tokio::join!(answer, connection);
        answer
    }

    async fn connect(&self) -> anyhow::Result<Box<dyn Stream>> {
        let stream = self.reach().await?;
        let Some((config, name)) = self.tls.clone() else {
            return Ok(Box::new(stream));
        };
        let handshake = TlsConnector::from(config).connect(name, stream);
        let shaken = tokio::time::timeout(CONNECT_MAX, handshake).await;
        let shaken = shaken.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let stream = shaken.with_context(|| {
            format!(
                "{} is not encrypted as wanted; check that it has [server.tls], and that --ca is its authority",
                self.url()
            )
        })?;
        Ok(Box::new(stream))
    }

    async fn reach(&self) -> anyhow::Result<TcpStream> {
        let address = (self.host.as_str(), self.port);
        let connected = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(address)).await;
        let connected = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        connected.with_context(|| {
            format!(
                "no server answers at {}; start one with `mainstay serve`, or name another with --url",
                self.url()
            )
        })
    }
}

/// A connection, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Believes that authority and nobody else.
fn trusting(host: &str, ca: &Path) -> anyhow::Result<(Arc<ClientConfig>, ServerName<'static>)> {
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|_| BadUsage(format!("no certificate can be for {host:?}")))?;
    let refused = || {
        format!(
            "--ca {}: not a certificate in PEM that can be read",
            ca.display()
        )
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).with_context(refused)? {
        roots
            .add(certificate.with_context(refused)?)
            .with_context(refused)?;
    }
    if roots.is_empty() {
        bail!(refused());
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((Arc::new(config), name))
}

/// A name as one step of a path.
pub(crate) fn encoded(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                path.push(char::from(byte));
            }
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

/// What `/healthz` says, or a problem document such as that of a server that is called without its TLS.
fn is_ours(status: StatusCode, answer: &Value) -> bool {
    let kind = answer["type"].as_str();
    match status.is_success() {
        true => answer["status"] == "ok",
        false => kind.is_some_and(|kind| kind.starts_with("urn:mainstay:problem:")),
    }
}

/// A problem document as an error: what happened, its code, what to do.
fn refusal(status: StatusCode, problem: &Value) -> anyhow::Error {
    let member = |name: &str| problem.get(name).and_then(Value::as_str);
    let detail = member("detail").or(member("title"));
    let mut text = detail.map_or_else(|| format!("the server answered {status}"), str::to_owned);
    if let Some(code) = member("code") {
        text.push_str(&format!(" [{code}]"));
    }
    match member("sent") {
        Some("maybe") => text.push_str("; it may have taken effect"),
        Some("yes_unprocessed") => text.push_str("; nothing was changed"),
        _ => {}
    }
    if let Some(hint) = member("hint") {
        text.push_str(&format!("; {hint}"));
    }
    anyhow::anyhow!(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_cannot_be_used_are_refused_with_their_reason() {
        let table = [
            ("https://localhost", "TLS"),
            (
                "postgres://localhost",
                "begins neither with http:// nor with https://",
            ),
            ("htps://localhost", "nor with https://"),
            ("ftp://localhost", "nor with https://"),
            ("://localhost", "nor with https://"),
            ("http://localhost/v1", "path"),
            ("http://local host", "is not one"),
            ("", "is not one"),
        ];
        for (url, expected) in table {
            let error = Client::new(url, None).unwrap_err();
            assert!(error.is::<BadUsage>(), "{url}");
            assert!(error.to_string().contains(expected), "{url}: {error}");
        }
        let client = Client::new("http://[::1]:7717/", None).unwrap();
        assert_eq!((client.host.as_str(), client.port), ("::1", 7717));
        let client = Client::new("localhost:7718", None).unwrap();
        assert_eq!(client.url(), "http://localhost:7718");
    }

    #[test]
    fn names_are_encoded_for_a_path() {
        assert_eq!(encoded("a b/ü"), "a%20b%2F%C3%BC");
    }

    #[test]
    fn a_problem_document_becomes_one_line_that_says_what_to_do() {
        let problem = serde_json::json!({
            "title": "No primary", "detail": "nobody takes writes", "code": "no_primary",
            "sent": "no", "hint": "try again",
        });
        let text = refusal(StatusCode::SERVICE_UNAVAILABLE, &problem).to_string();
        assert_eq!(text, "nobody takes writes [no_primary]; try again");
    }
}
