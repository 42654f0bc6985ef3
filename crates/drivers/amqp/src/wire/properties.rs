//! Headers of contents: the size of a body and what is said about it.

use std::time::Duration;

use bytes::BytesMut;
use mainstay_message::{Headers, Persistence, Publication};
use smol_str::SmolStr;

use super::frame::Kind;
use super::reader::{Cut, Reader};
use super::table;
use super::writer::FrameWriter;

const BASIC: u16 = 60;
const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const PRIORITY: u16 = 1 << 11;
const CORRELATION_ID: u16 = 1 << 10;
const EXPIRATION: u16 = 1 << 8;

/// What a header frame says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) size: u64,
    pub(crate) content_type: Option<SmolStr>,
    pub(crate) headers: Headers,
    /// Headers that are no text.
    pub(crate) ignored: u64,
}

/// A returned message: the body's size, and the number that it was sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReturnedTo {
    pub(crate) size: u64,
    pub(crate) number: Option<u64>,
}

/// Reads a header frame of a delivery.
pub(crate) fn read_content(payload: &[u8]) -> Result<Content, Cut> {
    let mut reader = Reader::new(payload);
    let (size, flags) = begin(&mut reader)?;
    let (content_type, table) = read_first(&mut reader, flags)?;
    let mut headers = Headers::with_capacity(if table.is_empty() { 0 } else { 12 });
    let ignored = table::read_headers(table, &mut headers);
    let text = content_type.map(std::str::from_utf8);
    Ok(Content {
        size,
        content_type: text
            .and_then(Result::ok)
            .filter(|text| !text.is_empty())
            .map(SmolStr::new),
        headers,
        ignored,
    })
}

/// Reads a header frame of a message that comes back.
pub(crate) fn read_correlation(payload: &[u8]) -> Result<ReturnedTo, Cut> {
    let mut reader = Reader::new(payload);
    let (size, flags) = begin(&mut reader)?;
    read_first(&mut reader, flags)?;
    for flag in [DELIVERY_MODE, PRIORITY] {
        if flags & flag != 0 {
            reader.u8()?;
        }
    }
    let number = match flags & CORRELATION_ID {
        0 => None,
        _ => std::str::from_utf8(reader.short()?)
            .ok()
            .and_then(|text| text.parse().ok()),
    };
    Ok(ReturnedTo { size, number })
}

fn begin(reader: &mut Reader<'_>) -> Result<(u64, u16), Cut> {
    reader.take(4)?;
    let size = reader.u64()?;
    let flags = reader.u16()?;
    let mut more = flags;
    while more & 1 != 0 {
        more = reader.u16()?;
    }
    Ok((size, flags))
}

/// The content type and the table, which come first.
fn read_first<'a>(
    reader: &mut Reader<'a>,
    flags: u16,
) -> Result<(Option<&'a [u8]>, &'a [u8]), Cut> {
    let content_type = match flags & CONTENT_TYPE {
        0 => None,
        _ => Some(reader.short()?),
    };
    if flags & CONTENT_ENCODING != 0 {
        reader.short()?;
    }
    let table = match flags & HEADERS {
        0 => &[][..],
        _ => reader.long()?,
    };
    Ok((content_type, table))
}

/// Writes the header frame of a message. `number` comes back with it if nobody takes it. That of a message with an
/// expiry is completed by [`write_expiration`].
pub(crate) fn write_properties(
    into: &mut BytesMut,
    channel: u16,
    message: &Publication,
    number: Option<u64>,
) {
    let given = |flag: u16, is_given: bool| if is_given { flag } else { 0 };
    let flags = given(CONTENT_TYPE, message.content_type.is_some())
        | given(HEADERS, !message.headers.is_empty())
        | DELIVERY_MODE
        | given(CORRELATION_ID, number.is_some())
        | given(EXPIRATION, message.expiry.is_some());
    let mut frame = FrameWriter::begin(into, Kind::Header, channel)
        .u16(BASIC)
        .u16(0)
        .u64(message.body.len() as u64)
        .u16(flags);
    if let Some(content_type) = &message.content_type {
        frame = frame.short(content_type);
    }
    if !message.headers.is_empty() {
        frame = frame.table(|table| write_headers(table, &message.headers));
    }
    frame = frame.u8(match message.persistence {
        Persistence::Transient => 1,
        Persistence::Persistent => 2,
    });
    if let Some(number) = number {
        frame = frame.short(&number.to_string());
    }
    frame.end();
}

/// Completes the header frame that begins at `at`, the last there, of a message with an expiry: it has so long left.
pub(crate) fn write_expiration(into: &mut BytesMut, at: usize, left: Duration) {
    let millis = left.as_nanos().div_ceil(1_000_000);
    let millis = millis.min(u128::from(u32::MAX)).to_string();
    FrameWriter::again(into, at).short(&millis).end();
}

/// Writes the argument of a queue that ends when nobody reads it for so long.
pub(crate) fn write_expires(table: &mut BytesMut, unused_for: Duration) {
    use bytes::BufMut;
    const NAME: &[u8] = b"x-expires";
    let millis = unused_for.as_millis().clamp(1, u128::from(u32::MAX));
    table.put_u8(NAME.len() as u8);
    table.put_slice(NAME);
    table.put_u8(b'l');
    table.put_i64(millis as i64);
}

fn write_headers(table: &mut BytesMut, headers: &Headers) {
    use bytes::BufMut;
    for (name, value) in headers.iter() {
        table.put_u8(name.len() as u8);
        table.put_slice(name.as_bytes());
        table.put_u8(b'S');
        table.put_u32(value.len() as u32);
        table.put_slice(value.as_bytes());
    }
}
