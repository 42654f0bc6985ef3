//! Frames: the pieces that a connection's bytes come in.

/// What surrounds a payload: kind, channel, length, and the end's octet.
pub(crate) const OVERHEAD: usize = 8;
/// Before the payload.
const HEAD: usize = 7;
/// The last octet of each frame.
pub(crate) const END: u8 = 0xce;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Method,
    Header,
    Body,
    Heartbeat,
}

impl Kind {
    pub(crate) fn octet(self) -> u8 {
        match self {
            Kind::Method => 1,
            Kind::Header => 2,
            Kind::Body => 3,
            Kind::Heartbeat => 8,
        }
    }

    fn of(octet: u8) -> Option<Self> {
        [Kind::Method, Kind::Header, Kind::Body, Kind::Heartbeat]
            .into_iter()
            .find(|kind| kind.octet() == octet)
    }
}

/// A frame within the bytes that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: Kind,
    pub(crate) channel: u16,
    pub(crate) payload: &'a [u8],
}

impl Frame<'_> {
    /// How many bytes it takes on the wire.
    pub(crate) fn length(&self) -> usize {
        self.payload.len() + OVERHEAD
    }
}

/// Bytes that are no frame. There is no way to find the next one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("it speaks another protocol: it asks for AMQP {}.{}.{}", .0[0], .0[1], .0[2])]
    OtherProtocol([u8; 3]),
    #[error("it sent a frame of the unknown kind {0}; is it an AMQP 0-9-1 broker?")]
    Kind(u8),
    #[error("it sent a frame of {length} bytes and {length_max} were agreed")]
    TooLong { length: usize, length_max: usize },
    #[error("it sent a frame without its end")]
    NoEnd,
}

/// The first frame of these bytes; `None`: it is not whole yet. `length_max` is the whole frame's.
pub(crate) fn split(bytes: &[u8], length_max: usize) -> Result<Option<Frame<'_>>, FrameError> {
    let Some(first) = bytes.first() else {
        return Ok(None);
    };
    let Some(kind) = Kind::of(*first) else {
        return match bytes {
            // A broker that knows another version answers with the head that it wants, and hangs up.
            [b'A', b'M', b'Q', b'P', _, version @ ..] if version.len() >= 3 => {
                Err(FrameError::OtherProtocol([
                    version[0], version[1], version[2],
                ]))
            }
            [b'A', ..] if b"AMQP".starts_with(&bytes[..bytes.len().min(4)]) && bytes.len() < 8 => {
                Ok(None)
            }
            _ => Err(FrameError::Kind(*first)),
        };
    };
    if bytes.len() < HEAD {
        return Ok(None);
    }
    let payload = u32::from_be_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]) as usize;
    let length = payload.saturating_add(OVERHEAD);
    if length > length_max {
        return Err(FrameError::TooLong { length, length_max });
    }
    if bytes.len() < length {
        return Ok(None);
    }
    if bytes[length - 1] != END {
        return Err(FrameError::NoEnd);
    }
    Ok(Some(Frame {
        kind,
        channel: u16::from_be_bytes([bytes[1], bytes[2]]),
        payload: &bytes[HEAD..length - 1],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_or_waited_for() {
        let bytes = [1, 0, 2, 0, 0, 0, 3, 7, 8, 9, END, 8];
        for length in 0..11 {
            assert_eq!(split(&bytes[..length], 100), Ok(None), "{length}");
        }
        let frame = split(&bytes, 100).unwrap().unwrap();
        let read = (frame.kind, frame.channel, frame.payload, frame.length());
        assert_eq!(read, (Kind::Method, 2, &[7u8, 8, 9][..], 11));
    }

    #[test]
    fn what_is_no_frame_is_told_apart() {
        for (bytes, error) in [
            (&b"HTTP/1.1 400"[..], FrameError::Kind(b'H')),
            (
                b"AMQP\x00\x01\x00\x00",
                FrameError::OtherProtocol([1, 0, 0]),
            ),
            (
                &[1, 0, 0, 0xff, 0, 0, 0],
                FrameError::TooLong {
                    length: 0xff00_0008,
                    length_max: 100,
                },
            ),
            (&[1, 0, 0, 0, 0, 0, 1, 5, 0], FrameError::NoEnd),
            (&[4, 0, 0], FrameError::Kind(4)),
        ] {
            assert_eq!(split(bytes, 100), Err(error));
        }
        assert_eq!(split(b"AMQ", 100), Ok(None));
    }
}
