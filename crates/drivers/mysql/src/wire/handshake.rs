//! From a TCP connection to a session: greeting, encryption, login.

use mainstay_transport::{Tls, TlsMode};
use tokio::net::TcpStream;

use super::auth::{self, CACHING, NATIVE};
use super::channel::Channel;
use super::frame::{Frames, Stream};
use super::packet::ServerError;
use super::reader::{Malformed, Reader, put_bytes};
use super::{Broken, capability as can, extended};

/// utf8mb4_general_ci, which every server knows.
const CHARSET: u8 = 45;
/// What a client says it can take; the server's own limit is smaller or equal.
const PACKET_MAX: u32 = 1 << 30;
/// The caching plugin's answers.
const FAST_OK: u8 = 3;
const WANTS_PASSWORD: u8 = 4;

/// Whose server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    Mariadb,
    Mysql,
}

/// What a server says first.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) flavour: Flavour,
    /// The server's number of this connection.
    pub(crate) connection: u32,
    capabilities: u32,
    extended: u32,
    nonce: Vec<u8>,
    plugin: String,
}

impl Greeting {
    fn read(packet: &[u8]) -> Result<Self, Broken> {
        let mut reader = Reader(packet);
        match reader.u8()? {
            10 => {}
            0xff => return Err(Broken::Refused(ServerError::read(packet)?)),
            other => {
                let problem = format!("it speaks version {other} of the protocol, not 10");
                return Err(Broken::Protocol(problem));
            }
        }
        let version = String::from_utf8_lossy(reader.until_zero()).into_owned();
        let connection = reader.u32()?;
        let mut nonce = reader.take(8)?.to_vec();
        reader.u8()?;
        let low = u32::from(reader.u16()?);
        reader.take(3)?;
        let capabilities = low | u32::from(reader.u16()?) << 16;
        let nonce_length = reader.u8()?;
        reader.take(6)?;
        let its_own = reader.u32()?;
        let rest = usize::from(nonce_length).saturating_sub(8).max(13);
        nonce.extend_from_slice(reader.take(rest.min(reader.0.len()))?);
        nonce.truncate(20);
        let plugin = String::from_utf8_lossy(reader.until_zero()).into_owned();
        // Only MariaDB uses these bytes, and says so by leaving this capability out.
        let is_mariadb = capabilities & can::LONG_PASSWORD == 0 || version.contains("MariaDB");
        Ok(Greeting {
            flavour: if is_mariadb {
                Flavour::Mariadb
            } else {
                Flavour::Mysql
            },
            connection,
            capabilities,
            extended: match capabilities & can::LONG_PASSWORD {
                0 => its_own & (extended::METADATA | extended::CACHE_METADATA),
                _ => 0,
            },
            nonce,
            plugin,
        })
    }
}

/// Whom to log in as.
pub(crate) struct Login<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
    pub(crate) database: &'a str,
    pub(crate) program: &'a str,
}

/// Reads the greeting and encrypts if that is wanted.
///
/// # Errors
/// The server refuses at once, or has no encryption where it is required.
pub(crate) async fn greet(
    stream: TcpStream,
    tls: &Tls,
    has_database: bool,
) -> Result<(Greeted, Greeting), Broken> {
    let mut frames = Frames::new(Stream::Plain(stream));
    let greeting = Greeting::read(&frames.packet().await?)?;
    let offers = greeting.capabilities & can::SSL != 0;
    match (tls.mode(), offers) {
        (TlsMode::Off, _) | (TlsMode::Prefer, false) => return Ok((Greeted(frames), greeting)),
        (_, true) => {}
        (mode, false) => {
            return Err(Broken::Protocol(format!(
                "the server offers no encryption, and tls is {mode:?}"
            )));
        }
    }
    // The server goes by these capabilities when it reads the login.
    frames.push(&opening(&greeting, can::SSL, has_database));
    frames.flush().await?;
    let Stream::Plain(plain) = frames.stream else {
        return Err(Broken::Protocol("encrypted twice".to_owned()));
    };
    let Some(handshake) = tls.connect(plain) else {
        return Err(Broken::Protocol("encryption is off".to_owned()));
    };
    let mut frames = Frames::new(Stream::Encrypted(Box::new(handshake.await?)));
    frames.resume(2);
    Ok((Greeted(frames), greeting))
}

/// A server that has been greeted and waits for a login.
pub(crate) struct Greeted(Frames);

/// The fixed part of the answer to a greeting.
fn opening(greeting: &Greeting, more: u32, has_database: bool) -> Vec<u8> {
    let mut wanted = can::FOUND_ROWS
        | can::LONG_FLAG
        | can::PROTOCOL_41
        | can::TRANSACTIONS
        | can::SECURE_CONNECTION
        | can::MULTI_RESULTS
        | can::PS_MULTI_RESULTS
        | can::PLUGIN_AUTH
        | can::CONNECT_ATTRS
        | can::PLUGIN_AUTH_LENENC
        | can::SESSION_TRACK
        | can::DEPRECATE_EOF
        | more;
    if has_database {
        wanted |= can::CONNECT_WITH_DB;
    }
    if greeting.extended == 0 {
        wanted |= can::LONG_PASSWORD;
    }
    let mut packet = (wanted & (greeting.capabilities | can::LONG_PASSWORD))
        .to_le_bytes()
        .to_vec();
    packet.extend_from_slice(&PACKET_MAX.to_le_bytes());
    packet.push(CHARSET);
    packet.extend_from_slice(&[0; 19]);
    packet.extend_from_slice(&greeting.extended.to_le_bytes());
    packet
}

/// Logs in and gives the channel of the session.
///
/// # Errors
/// The server refuses the login, or asks for a plugin that is not known.
pub(crate) async fn log_in(
    Greeted(mut frames): Greeted,
    greeting: &Greeting,
    login: &Login<'_>,
    is_checked: bool,
) -> Result<Channel, Broken> {
    let is_encrypted = frames.stream.is_encrypted();
    let more = if is_encrypted { can::SSL } else { 0 };
    let mut packet = opening(greeting, more, !login.database.is_empty());
    let capabilities = u32::from_le_bytes([packet[0], packet[1], packet[2], packet[3]]);
    // A password is shown in clear only to a server whose certificate was checked.
    let may_show = is_encrypted && is_checked;
    let mut plugin = greeting.plugin.clone();
    let mut nonce = greeting.nonce.clone();
    let first = auth::answer(&plugin, login.password, &nonce, may_show);
    if first.is_none() {
        // The server will ask for the plugin that the user has.
        plugin = NATIVE.to_owned();
    }
    packet.extend_from_slice(login.user.as_bytes());
    packet.push(0);
    put_bytes(&mut packet, &first.unwrap_or_default());
    if !login.database.is_empty() {
        packet.extend_from_slice(login.database.as_bytes());
        packet.push(0);
    }
    packet.extend_from_slice(plugin.as_bytes());
    packet.push(0);
    put_bytes(&mut packet, &attributes(login.program));
    frames.push(&packet);
    frames.flush().await?;
    loop {
        let said = frames.packet().await?;
        match said.first() {
            Some(0x00) => return Ok(Channel::new(frames, capabilities, greeting.extended)),
            Some(0xff) => return Err(Broken::Refused(ServerError::read(&said)?)),
            Some(0xfe) => {
                (plugin, nonce) = switched(&said)?;
                let Some(answer) = auth::answer(&plugin, login.password, &nonce, may_show) else {
                    return Err(unknown_plugin(&plugin));
                };
                frames.push(&answer);
            }
            Some(0x01) if plugin == CACHING => match said.get(1) {
                Some(&FAST_OK) => {}
                Some(&WANTS_PASSWORD) if is_encrypted => frames.push(&auth::shown(login.password)),
                _ => return Err(needs_encryption()),
            },
            _ => return Err(Malformed.into()),
        }
        frames.flush().await?;
    }
}

/// Another plugin and what it is to be answered with.
fn switched(packet: &[u8]) -> Result<(String, Vec<u8>), Malformed> {
    let mut reader = Reader(packet);
    reader.u8()?;
    let plugin = String::from_utf8_lossy(reader.until_zero()).into_owned();
    let mut nonce = reader.0.to_vec();
    nonce.truncate(20);
    Ok((plugin, nonce))
}

fn attributes(program: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for text in ["_client_name", "mainstay", "program_name", program] {
        put_bytes(&mut out, text.as_bytes());
    }
    out
}

fn unknown_plugin(plugin: &str) -> Broken {
    Broken::Refused(ServerError {
        number: 1045,
        state: "28000".to_owned(),
        message: format!(
            "the user's plugin {plugin} is not known here or not safe without a checked certificate; \
             known: mysql_native_password, caching_sha2_password, mysql_clear_password"
        ),
    })
}

fn needs_encryption() -> Broken {
    Broken::Refused(ServerError {
        number: 1045,
        state: "28000".to_owned(),
        message:
            "caching_sha2_password asks for the password itself, which is only given over TLS: \
                  set tls to prefer or more"
                .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(version: &str, low: u16) -> Vec<u8> {
        let mut packet = vec![10];
        packet.extend_from_slice(version.as_bytes());
        packet.extend_from_slice(b"\0\x07\0\0\0abcdefgh\0");
        packet.extend_from_slice(&low.to_le_bytes());
        packet.extend_from_slice(&[45, 2, 0, 0x08, 0, 21, 0, 0, 0, 0, 0, 0, 0x1d, 0, 0, 0]);
        packet.extend_from_slice(b"ijklmnopqrst\0mysql_native_password\0");
        packet
    }

    #[test]
    fn a_greeting_tells_whose_server_it_is() {
        let maria = Greeting::read(&greeting("5.5.5-10.11.19-MariaDB", 0xfffe)).unwrap();
        assert_eq!(maria.flavour, Flavour::Mariadb);
        assert_eq!((maria.connection, maria.nonce.len()), (7, 20));
        assert_eq!(maria.plugin, NATIVE);
        assert_eq!(
            maria.extended,
            extended::METADATA | extended::CACHE_METADATA
        );
        let mysql = Greeting::read(&greeting("8.0.36", 0xffff)).unwrap();
        assert_eq!((mysql.flavour, mysql.extended), (Flavour::Mysql, 0));
    }

    #[test]
    fn a_server_that_is_full_says_so_instead() {
        let said = Greeting::read(b"\xff\x10\x04Too many connections");
        assert!(matches!(said, Err(Broken::Refused(error)) if error.number == 1040));
        assert!(Greeting::read(b"\x09").is_err());
        let whole = greeting("8.0.36", 0xffff);
        for end in 0..30 {
            assert!(Greeting::read(&whole[..end]).is_err(), "{end}");
        }
    }
}
