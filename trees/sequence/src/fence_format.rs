//! Encoding of consecutive fences in an object of the manifest.
//!
//! Each is the `u32` length of the prefix shared with the previous one, and the rest as `str`.
//!
//! **Invariants**
//! - A decoded fence is at most one byte longer than the longest key: the end after a key of that length.

use testudo_base::{
    MAX_KEY_BYTES,
    codec::{self, Damage, Reader},
    num::usize_of,
    planted,
};

use crate::Fence;

/// Appends fences, each relative to the previous one.
#[derive(Debug, Default)]
pub struct FenceWriter(Vec<u8>);

impl FenceWriter {
    /// Creates a writer for fences after `before`.
    pub fn after(before: &Fence) -> Self {
        Self(before.to_vec())
    }

    /// Appends a fence.
    pub fn put(&mut self, out: &mut Vec<u8>, fence: &Fence) {
        let key = fence.to_vec();
        codec::put_bytes_after(out, &self.0, &key);
        self.0 = key;
    }
}

/// Reads a fence that [`FenceWriter`] wrote after `before`.
pub fn decode_fence(reader: &mut Reader<'_>, before: &Fence) -> Result<Fence, Damage> {
    let shared = usize_of(u64::from(reader.u32()?));
    if shared > before.len() {
        return Err(Damage("a fence shares more than there is"));
    }
    let tail = reader.bytes((MAX_KEY_BYTES + 1).saturating_sub(shared))?;
    Ok(Fence::after(before, if planted!("shared-start-of-fence-lost") { 0 } else { shared }, tail))
}
