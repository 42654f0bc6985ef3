//! Reads the protocol's basic types from a payload.

/// A payload that ended too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut;

/// The rest of a payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Cut> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Cut> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| Cut)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Cut> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Cut> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Cut> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Cut> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A text of at most 255 bytes.
    pub(crate) fn short(&mut self) -> Result<&'a [u8], Cut> {
        let length = self.u8()?;
        self.take(usize::from(length))
    }

    /// Bytes behind a length of four; tables and arrays are measured the same way.
    pub(crate) fn long(&mut self) -> Result<&'a [u8], Cut> {
        let length = self.u32()?;
        self.take(length as usize)
    }
}

/// What a broker says to people; what is no text is shown as far as it goes.
pub(crate) fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
