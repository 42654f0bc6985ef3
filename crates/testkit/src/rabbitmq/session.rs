//! A client of a private broker for a test's own questions: written apart from the driver, so that the two can
//! disagree. It asks one thing at a time.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A broker that takes longer than this for an answer will not give one.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

const CONNECTION_OPEN: (u16, u16) = (10, 40);
const CONNECTION_CLOSE: (u16, u16) = (10, 50);
const CHANNEL_OPEN: (u16, u16) = (20, 10);
const CHANNEL_CLOSE: (u16, u16) = (20, 40);
const CHANNEL_CLOSE_OK: (u16, u16) = (20, 41);
const EXCHANGE_DECLARE: (u16, u16) = (40, 10);
const QUEUE_DECLARE: (u16, u16) = (50, 10);
const QUEUE_BIND: (u16, u16) = (50, 20);
const QUEUE_DELETE: (u16, u16) = (50, 40);
const CONFIRM_SELECT: (u16, u16) = (85, 10);
const BASIC_PUBLISH: (u16, u16) = (60, 40);
const BASIC_GET: (u16, u16) = (60, 70);
const BASIC_GET_OK: (u16, u16) = (60, 71);
const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const NOT_FOUND: u16 = 404;

/// What a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueState {
    /// Messages that wait for a consumer.
    pub messages: u32,
    /// Consumers it has.
    pub consumers: u32,
}

/// A connected client. It ends when dropped.
#[derive(Debug)]
pub struct RabbitmqSession {
    stream: TcpStream,
}

struct Frame {
    kind: u8,
    payload: Vec<u8>,
}

impl RabbitmqSession {
    /// Connects over loopback to the virtual host `/`.
    ///
    /// # Errors
    /// What the broker or the network said.
    pub async fn connect(port: u16, user: &str, password: &str) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let mut session = Self { stream };
        session.stream.write_all(b"AMQP\0\0\x09\x01").await?;
        session.expect(10, 10).await?;
        let mut start_ok = vec![0, 10, 0, 11, 0, 0, 0, 0];
        short(&mut start_ok, "PLAIN");
        long(&mut start_ok, format!("\0{user}\0{password}").as_bytes());
        short(&mut start_ok, "en_US");
        session.send(0, METHOD, &start_ok).await?;
        session.expect(10, 30).await?;
        let tune_ok = [0, 10, 0, 31, 0, 16, 0, 2, 0, 0, 0, 0];
        session.send(0, METHOD, &tune_ok).await?;
        let mut open = vec![];
        short(&mut open, "/");
        open.extend([0, 0]);
        session.call_on(0, CONNECTION_OPEN, &open).await?;
        session.call(CHANNEL_OPEN, &[0]).await?;
        session.call(CONFIRM_SELECT, &[0]).await?;
        Ok(session)
    }

    /// Declares a durable topic exchange.
    ///
    /// # Errors
    /// What the broker or the network said.
    pub async fn declare_exchange(&mut self, name: &str) -> Result<()> {
        let mut arguments = vec![0, 0];
        short(&mut arguments, name);
        short(&mut arguments, "topic");
        arguments.extend([2, 0, 0, 0, 0]);
        self.call(EXCHANGE_DECLARE, &arguments).await.map(drop)
    }

    /// Declares a durable queue and binds it to a topic of an exchange.
    ///
    /// # Errors
    /// What the broker or the network said.
    pub async fn bind(&mut self, queue: &str, exchange: &str, topic: &str) -> Result<()> {
        let mut arguments = vec![0, 0];
        short(&mut arguments, queue);
        arguments.extend([2, 0, 0, 0, 0]);
        self.call(QUEUE_DECLARE, &arguments).await?;
        let mut arguments = vec![0, 0];
        short(&mut arguments, queue);
        short(&mut arguments, exchange);
        short(&mut arguments, topic);
        arguments.extend([0, 0, 0, 0, 0]);
        self.call(QUEUE_BIND, &arguments).await.map(drop)
    }

    /// How much a queue holds; `None` if there is no such queue.
    ///
    /// # Errors
    /// What the broker or the network said.
    pub async fn queue(&mut self, name: &str) -> Result<Option<QueueState>> {
        let mut arguments = vec![0, 0];
        short(&mut arguments, name);
        arguments.extend([1, 0, 0, 0, 0]);
        let answer = self.ask(1, QUEUE_DECLARE, &arguments).await?;
        if method(&answer.payload) == CHANNEL_CLOSE {
            let refused = refusal(&answer.payload);
            if refused.0 != NOT_FOUND {
                bail!("the broker refused: {} {}", refused.0, refused.1);
            }
            let (class, number) = CHANNEL_CLOSE_OK;
            let mut close_ok = class.to_be_bytes().to_vec();
            close_ok.extend(number.to_be_bytes());
            self.send(1, METHOD, &close_ok).await?;
            self.call(CHANNEL_OPEN, &[0]).await?;
            return Ok(None);
        }
        let counts = &answer.payload[answer.payload.len() - 8..];
        Ok(Some(QueueState {
            messages: number(&counts[..4]),
            consumers: number(&counts[4..]),
        }))
    }

    /// Deletes a queue with what is in it.
    ///
    /// # Errors
    /// What the broker or the network said.
    pub async fn delete_queue(&mut self, name: &str) -> Result<()> {
        let mut arguments = vec![0, 0];
        short(&mut arguments, name);
        arguments.push(0);
        self.call(QUEUE_DELETE, &arguments).await.map(drop)
    }

    /// Publishes a persistent message and waits for the broker's confirmation. `header` is the payload of the header
    /// frame behind the body's size: flags and properties as they go over the wire.
    ///
    /// # Errors
    /// What the broker or the network said.
    pub async fn publish(
        &mut self,
        exchange: &str,
        topic: &str,
        header: &[u8],
        body: &[u8],
    ) -> Result<()> {
        let mut arguments = vec![0, 0];
        short(&mut arguments, exchange);
        short(&mut arguments, topic);
        arguments.push(0);
        self.send_method(1, BASIC_PUBLISH, &arguments).await?;
        let mut head = vec![0, 60, 0, 0];
        head.extend((body.len() as u64).to_be_bytes());
        head.extend(header);
        self.send(1, HEADER, &head).await?;
        for part in body.chunks(100_000) {
            self.send(1, BODY, part).await?;
        }
        self.expect(60, 80).await.map(drop)
    }

    /// Takes the next message out of a queue, acknowledged at once: the payload of its header frame behind the body's
    /// size, and its body. `None` if nothing waits.
    ///
    /// # Errors
    /// What the broker or the network said.
    pub async fn take(&mut self, queue: &str) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut arguments = vec![0, 0];
        short(&mut arguments, queue);
        arguments.push(1);
        let answer = self.call(BASIC_GET, &arguments).await?;
        if method(&answer.payload) != BASIC_GET_OK {
            return Ok(None);
        }
        let header = self.receive().await?.payload;
        let size = u64::from_be_bytes(header[4..12].try_into()?);
        let mut body = Vec::new();
        while (body.len() as u64) < size {
            body.extend(self.receive().await?.payload);
        }
        Ok(Some((header[12..].to_vec(), body)))
    }

    async fn call(&mut self, called: (u16, u16), arguments: &[u8]) -> Result<Frame> {
        self.call_on(1, called, arguments).await
    }

    async fn call_on(
        &mut self,
        channel: u16,
        called: (u16, u16),
        arguments: &[u8],
    ) -> Result<Frame> {
        let answer = self.ask(channel, called, arguments).await?;
        refused(&answer)?;
        Ok(answer)
    }

    async fn ask(&mut self, channel: u16, called: (u16, u16), arguments: &[u8]) -> Result<Frame> {
        self.send_method(channel, called, arguments).await?;
        self.receive().await
    }

    async fn send_method(
        &mut self,
        channel: u16,
        (class, number): (u16, u16),
        arguments: &[u8],
    ) -> Result<()> {
        let mut payload = class.to_be_bytes().to_vec();
        payload.extend(number.to_be_bytes());
        payload.extend(arguments);
        self.send(channel, METHOD, &payload).await
    }

    async fn expect(&mut self, class: u16, number: u16) -> Result<Frame> {
        let frame = self.receive().await?;
        refused(&frame)?;
        if method(&frame.payload) != (class, number) {
            bail!(
                "expected {class}.{number}, got {:?}",
                method(&frame.payload)
            );
        }
        Ok(frame)
    }

    async fn send(&mut self, channel: u16, kind: u8, payload: &[u8]) -> Result<()> {
        let mut frame = vec![kind];
        frame.extend(channel.to_be_bytes());
        frame.extend((payload.len() as u32).to_be_bytes());
        frame.extend(payload);
        frame.push(0xce);
        self.stream.write_all(&frame).await?;
        Ok(())
    }

    async fn receive(&mut self) -> Result<Frame> {
        timeout(ANSWER_WITHIN, self.read())
            .await
            .context("the broker does not answer")?
    }

    async fn read(&mut self) -> Result<Frame> {
        loop {
            let mut head = [0; 7];
            self.stream.read_exact(&mut head).await?;
            let mut payload = vec![0; number(&head[3..]) as usize + 1];
            self.stream.read_exact(&mut payload).await?;
            if payload.pop() != Some(0xce) {
                bail!("a frame without its end");
            }
            if [METHOD, HEADER, BODY].contains(&head[0]) {
                return Ok(Frame {
                    kind: head[0],
                    payload,
                });
            }
        }
    }
}

fn refused(frame: &Frame) -> Result<()> {
    let called = method(&frame.payload);
    if frame.kind == METHOD && (called == CONNECTION_CLOSE || called == CHANNEL_CLOSE) {
        let (code, text) = refusal(&frame.payload);
        bail!("the broker refused: {code} {text}");
    }
    Ok(())
}

/// The code and the text of a close.
fn refusal(payload: &[u8]) -> (u16, String) {
    let code = u16::from_be_bytes([payload[4], payload[5]]);
    let length = usize::from(payload[6]);
    let text = String::from_utf8_lossy(&payload[7..7 + length]).into_owned();
    (code, text)
}

fn method(payload: &[u8]) -> (u16, u16) {
    let of = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
    (of(0), of(2))
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

fn short(into: &mut Vec<u8>, text: &str) {
    into.push(text.len() as u8);
    into.extend(text.as_bytes());
}

fn long(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend((bytes.len() as u32).to_be_bytes());
    into.extend(bytes);
}
