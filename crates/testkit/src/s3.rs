//! A private S3 server, in memory: moto.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::port::PortLease;
use crate::python::{PythonCommand, PythonEnvironment, PythonProgram};

const PATIENCE: Duration = Duration::from_secs(30);

/// One S3 server on a free loopback port, spoken to without TLS and by paths. It takes every key; what it holds is gone
/// when it ends.
#[derive(Debug)]
pub struct S3Server {
    program: PythonProgram,
    port: PortLease,
}

impl S3Server {
    /// Starts a server and waits until it takes connections.
    ///
    /// # Errors
    /// It did not within 30 s; the message holds the end of its output.
    pub async fn start(environment: &PythonEnvironment) -> Result<Self> {
        let port = PortLease::take()?;
        let number = port.port().to_string();
        let program = PythonCommand::program(environment, "moto_server")
            .arguments(["-H", "127.0.0.1", "-p", &number])
            .start()?;
        let server = Self { program, port };
        server.wait_ready().await?;
        Ok(server)
    }

    /// The loopback port it listens on.
    pub fn port(&self) -> u16 {
        self.port.port()
    }

    /// The requests so far, each as its method and its path with what is asked for: `GET /bucket/object`.
    ///
    /// # Errors
    /// It printed more than a program may.
    pub fn requests(&self) -> Result<Vec<String>> {
        let lines = self.program.lines()?;
        Ok(lines.iter().filter_map(|line| request(line)).collect())
    }

    async fn wait_ready(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port()))
            .await
            .is_err()
        {
            if !self.program.is_running() || Instant::now() > end {
                let printed = self.program.lines().context("the S3 server is not ready")?;
                bail!("the S3 server is not ready:\n{}", printed.join("\n"));
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

/// `127.0.0.1 - - [date] "GET /bucket/object HTTP/1.1" 200 -`, where colours may stand around the request.
fn request(line: &str) -> Option<String> {
    let (_, quoted) = line.split_once("] \"")?;
    let (request, _) = quoted.split_once(" HTTP/")?;
    let start = request.find(|letter: char| letter.is_ascii_uppercase())?;
    Some(request[start..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::request;

    #[test]
    fn a_line_of_the_log_gives_its_request() {
        for (line, expected) in [
            (
                "127.0.0.1 - - [30/Nov/2026 15:40:04] \"PUT /a/x HTTP/1.1\" 200 -",
                Some("PUT /a/x"),
            ),
            (
                "127.0.0.1 - - [30/Nov/2026 15:40:04] \"\u{1b}[35m\u{1b}[1mDELETE /a/x HTTP/1.1\u{1b}[0m\" 204 -",
                Some("DELETE /a/x"),
            ),
            (" * Running on http://127.0.0.1:19555", None),
        ] {
            assert_eq!(request(line).as_deref(), expected, "{line}");
        }
    }
}
