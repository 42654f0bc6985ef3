//! Reads the fields of a packet.

/// A packet was not what the protocol promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What is left of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.fixed::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.fixed()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.fixed()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.fixed()?))
    }

    /// A number in one, three, four or nine bytes; `None` is the protocol's NULL.
    pub(crate) fn number(&mut self) -> Result<Option<u64>, Malformed> {
        Ok(Some(match self.u8()? {
            0xfb => return Ok(None),
            0xfc => self.u16()?.into(),
            0xfd => {
                let [a, b, c] = self.fixed()?;
                u32::from_le_bytes([a, b, c, 0]).into()
            }
            0xfe => self.u64()?,
            0xff => return Err(Malformed),
            small => small.into(),
        }))
    }

    /// Bytes behind their length; `None` is NULL.
    pub(crate) fn bytes(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let Some(length) = self.number()? else {
            return Ok(None);
        };
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        self.take(length).map(Some)
    }

    /// Text behind its length.
    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        let bytes = self.bytes()?.ok_or(Malformed)?;
        std::str::from_utf8(bytes).map_err(|_| Malformed)
    }

    /// Bytes that end in a zero byte, or with the packet.
    pub(crate) fn until_zero(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0);
        let taken = &self.0[..end.unwrap_or(self.0.len())];
        self.0 = self.0.get(taken.len() + 1..).unwrap_or(&[]);
        taken
    }
}

/// Appends a number in the protocol's shortest form.
pub(crate) fn put_number(out: &mut Vec<u8>, number: u64) {
    match number {
        0..=0xfa => out.push(number as u8),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&(number as u16).to_le_bytes());
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&number.to_le_bytes()[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// Appends bytes behind their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_width_come_back() {
        for number in [
            0,
            0xfa,
            0xfb,
            0xffff,
            0x1_0000,
            0xff_ffff,
            0x100_0000,
            u64::MAX,
        ] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            let mut reader = Reader(&out);
            assert_eq!(reader.number(), Ok(Some(number)));
            assert!(reader.is_empty());
            assert!(Reader(&out[..out.len() - 1]).number().is_err());
        }
        assert_eq!(Reader(&[0xfb]).number(), Ok(None));
        assert_eq!(Reader(&[0xff]).number(), Err(Malformed));
    }

    #[test]
    fn what_is_cut_short_is_malformed() {
        assert_eq!(Reader(&[3, b'a', b'b']).bytes(), Err(Malformed));
        assert_eq!(Reader(&[1]).u16(), Err(Malformed));
        assert_eq!(Reader(b"ab").until_zero(), b"ab");
        let mut two = Reader(b"ab\0c");
        assert_eq!((two.until_zero(), two.0), (&b"ab"[..], &b"c"[..]));
    }
}
