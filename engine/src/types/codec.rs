//! Little-endian integers, varints and length-prefixed bytes, written to a `Vec` and read with every length
//! checked before use. Nothing here allocates by a length it has not compared with the bytes at hand.

/// The reason why bytes could not be decoded; the caller adds file and offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed(pub &'static str);

pub(crate) type Decoded<T> = Result<T, Malformed>;

pub(crate) fn put_u32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// JSON with a checksum: eight hexadecimal digits and a space before it.
pub(crate) fn sealed(json: &str) -> String {
    format!("{:08x} {json}", crc32c::crc32c(json.as_bytes()))
}

/// The JSON of such a text, if the checksum is right.
pub(crate) fn unsealed(text: &[u8]) -> Decoded<&[u8]> {
    let (sum, json) = text.split_at_checked(9).ok_or(Malformed("text shorter than its checksum"))?;
    let right = format!("{:08x} ", crc32c::crc32c(json));
    if sum == right.as_bytes() { Ok(json) } else { Err(Malformed("text with a wrong checksum")) }
}

/// The length of the varint that the eight bytes begin with; more than eight if it does not end within them.
#[inline]
pub(crate) fn varint_len(eight: u64) -> usize {
    const ENDS: u64 = 0x8080_8080_8080_8080;
    (!eight & ENDS).trailing_zeros() as usize / 8 + 1
}

/// The varint that the eight bytes begin with, and its length; `None` if it does not end within them.
#[inline]
pub(crate) fn varint_in(eight: u64) -> Option<(u64, usize)> {
    let len = varint_len(eight);
    if len > 8 {
        return None;
    }
    // Seven bits of each byte move together: those of two bytes, of four, of all.
    let sevens = eight & (0x7f7f_7f7f_7f7f_7f7f >> (64 - 8 * len));
    let of_two = (sevens & 0x007f_007f_007f_007f) | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
    let of_four = (of_two & 0x0000_3fff_0000_3fff) | (of_two & 0x3fff_0000_3fff_0000) >> 2;
    Some(((of_four & 0x0fff_ffff) | (of_four & 0x0fff_ffff_0000_0000) >> 4, len))
}

/// A cursor over bytes to decode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Decoded<u8> {
        let (first, rest) = self.rest.split_first().ok_or(Malformed("byte missing"))?;
        self.rest = rest;
        Ok(*first)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Decoded<u32> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(Malformed("u32 cut short"))?;
        self.rest = rest;
        Ok(u32::from_le_bytes(*first))
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Decoded<u64> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(Malformed("u64 cut short"))?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*first))
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Decoded<u64> {
        // Most are lengths below 128.
        if let Some((&byte, rest)) = self.rest.split_first()
            && byte < 0x80
        {
            self.rest = rest;
            return Ok(u64::from(byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Decoded<u64> {
        if let Some(eight) = self.rest.first_chunk()
            && let Some((n, len)) = varint_in(u64::from_le_bytes(*eight))
        {
            self.rest = &self.rest[len..];
            return Ok(n);
        }
        let mut n = 0u64;
        for (i, &byte) in self.rest.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if i == 9 && bits > 1 {
                break;
            }
            n |= bits << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Ok(n);
            }
        }
        Err(Malformed("varint cut short or too long"))
    }

    /// A varint that must fit and count bytes or items that are still left.
    #[inline]
    pub(crate) fn length(&mut self) -> Decoded<usize> {
        let n = self.varint()?;
        usize::try_from(n).map_err(|_| Malformed("length over the platform's limit"))
    }

    #[inline]
    pub(crate) fn take(&mut self, n: usize) -> Decoded<&'a [u8]> {
        if n > self.rest.len() {
            return Err(Malformed("length over the bytes at hand"));
        }
        let (taken, rest) = self.rest.split_at(n);
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn bytes(&mut self) -> Decoded<&'a [u8]> {
        let n = self.length()?;
        self.take(n)
    }

    /// Checks that nothing is left.
    pub(crate) fn finish(self) -> Decoded<()> {
        if self.is_empty() { Ok(()) } else { Err(Malformed("bytes left over")) }
    }
}
