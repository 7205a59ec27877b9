//! Little-endian encoding into a `Vec` and bounds-checked decoding.
//!
//! **Invariants**
//! - A [`Reader`] never reads past its slice and never allocates more than the remaining bytes.
//! - Its errors are plain [`Damage`]; the caller, which has the file name and the offset, turns them into
//!   [`crate::ErrorKind::Corruption`].

use crate::{
    key::common_prefix,
    num::{u32_of, usize_of},
};

/// Bytes that do not decode, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage(pub &'static str);

/// Appends `value` as a LEB128 varint of at most ten bytes.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    let end = out.len() + varint_bytes(value);
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
    debug_assert_eq!(out.len(), end, "the promised length");
}

/// Writes `value` in the encoding of [`put_varint`] to the start of `out`; returns its length. Panics if
/// there is no room.
#[inline]
pub fn write_varint(out: &mut [u8], mut value: u64) -> usize {
    let length = varint_bytes(value);
    let mut at = 0;
    while value >= 0x80 {
        out[at] = (value & 0x7f) as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    out[at] = (value & 0x7f) as u8;
    debug_assert_eq!(at + 1, length, "the promised length");
    length
}

/// Length of `value` in the encoding of [`put_varint`].
#[inline]
pub const fn varint_bytes(value: u64) -> usize {
    if value < 0x80 {
        return 1;
    }
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends the length (32 bits) and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, u32_of(bytes.len()));
    out.extend_from_slice(bytes);
}

/// Appends `bytes` prefix-compressed against `before`: the length of the shared prefix (32 bits), and the
/// rest as in [`put_bytes`].
pub fn put_bytes_after(out: &mut Vec<u8>, before: &[u8], bytes: &[u8]) {
    let shared = common_prefix(before, bytes);
    debug_assert!(shared <= before.len() && shared <= bytes.len(), "both have the prefix");
    put_u32(out, u32_of(shared));
    put_bytes(out, &bytes[shared..]);
}

macro_rules! fixed {
    ($put:ident, $get:ident, $ty:ty) => {
        /// Appends a fixed-width little-endian integer.
        pub fn $put(out: &mut Vec<u8>, value: $ty) {
            out.extend_from_slice(&value.to_le_bytes());
        }

        impl Reader<'_> {
            /// Reads a fixed-width little-endian integer.
            #[inline]
            pub fn $get(&mut self) -> Result<$ty, Damage> {
                let (bytes, rest) = self.0.split_first_chunk().ok_or(Damage("ends too early"))?;
                self.0 = rest;
                Ok(<$ty>::from_le_bytes(*bytes))
            }
        }
    };
}

/// A position in bytes that are being decoded.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

fixed!(put_u8, u8, u8);
fixed!(put_u16, u16, u16);
fixed!(put_u32, u32, u32);
fixed!(put_u64, u64, u64);
fixed!(put_u128, u128, u128);

impl<'a> Reader<'a> {
    /// A reader positioned at the first byte.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes not yet read.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Whether all bytes were read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Damage("ends too early"))?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Reads bytes written by [`put_bytes`], at most `limit`.
    pub fn bytes(&mut self, limit: usize) -> Result<&'a [u8], Damage> {
        let count = usize_of(u64::from(self.u32()?));
        if count > limit {
            return Err(Damage("a length is beyond its limit"));
        }
        self.take(count)
    }

    /// Reads bytes written by [`put_bytes_after`] with the same `before`, at most `limit`.
    pub fn bytes_after(&mut self, before: &[u8], limit: usize) -> Result<Vec<u8>, Damage> {
        let shared = before.get(..usize_of(u64::from(self.u32()?)));
        let shared = shared.ok_or(Damage("a shared prefix is longer than the bytes before"))?;
        if shared.len() > limit {
            return Err(Damage("a length is beyond its limit"));
        }
        Ok([shared, self.bytes(limit - shared.len())?].concat())
    }

    /// Reads a varint.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Damage> {
        // Most lengths are short.
        if let Some((&byte, rest)) = self.0.split_first()
            && byte < 0x80
        {
            self.0 = rest;
            return Ok(u64::from(byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, Damage> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Damage("a varint is too long"))
    }

    /// Fails unless all bytes were read.
    #[inline]
    pub fn finish(self) -> Result<(), Damage> {
        if self.0.is_empty() { Ok(()) } else { Err(Damage("has trailing bytes")) }
    }
}

#[cfg(test)]
mod tests;
