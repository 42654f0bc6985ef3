//! Addresses and bit strings, as the text that the server writes.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Garbled, fixed};

/// Family, mask length, whether it is a cidr, length, address. An `inet` leaves a full mask out.
pub(super) fn inet(raw: &[u8], always_masked: bool) -> Result<String, Garbled> {
    let (&[_family, mask, _is_cidr, length], address) =
        raw.split_first_chunk::<4>().ok_or(Garbled)?;
    let (address, full) = match length {
        4 => (Ipv4Addr::from(fixed::<4>(address)?).to_string(), 32),
        16 => (Ipv6Addr::from(fixed::<16>(address)?).to_string(), 128),
        _ => return Err(Garbled),
    };
    let masked = always_masked || mask != full;
    Ok(if masked {
        format!("{address}/{mask}")
    } else {
        address
    })
}

pub(super) fn mac(raw: &[u8]) -> String {
    let parts: Vec<String> = raw.iter().map(|b| format!("{b:02x}")).collect();
    parts.join(":")
}

/// A count of bits, then the bits.
pub(super) fn bits(raw: &[u8]) -> Result<String, Garbled> {
    let (count, bytes) = raw.split_at_checked(4).ok_or(Garbled)?;
    let count = usize::try_from(i32::from_be_bytes(fixed(count)?)).map_err(|_| Garbled)?;
    if bytes.len() != count.div_ceil(8) {
        return Err(Garbled);
    }
    let bit = |n: usize| {
        if bytes[n / 8] & (0x80 >> (n % 8)) != 0 {
            '1'
        } else {
            '0'
        }
    };
    Ok((0..count).map(bit).collect())
}
