//! Byte-wise key helpers: common prefixes, eight-byte heads, short separators; keys in messages.

/// Length of the longest common prefix of `a` and `b`.
#[inline]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let limit = a.len().min(b.len());
    let mut at = 0;
    while at + 8 <= limit {
        let difference = head(&a[at..]) ^ head(&b[at..]);
        if difference != 0 {
            return at + (difference.leading_zeros() / 8) as usize;
        }
        at += 8;
    }
    if limit >= 8 {
        // Compare the last eight bytes at once; some of them are already known to be equal.
        let from = limit - 8;
        let difference = head(&a[from..limit]) ^ head(&b[from..limit]);
        return from + (difference.leading_zeros() / 8) as usize;
    }
    while at < limit && a[at] == b[at] {
        at += 1;
    }
    at
}

/// The first eight bytes as a big-endian integer, short keys padded with zeros.
///
/// `head(a) < head(b)` implies `a < b`; equal heads are inconclusive.
#[inline]
pub fn head(key: &[u8]) -> u64 {
    if let Some(bytes) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0u8; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

/// Returns the shortest key `s` with `left < s <= right`. REQUIRES: `left < right`.
pub fn separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    debug_assert!(left < right, "keys ascend");
    let shared = common_prefix(left, right);
    let separator = right[..(shared + 1).min(right.len())].to_vec();
    debug_assert!(left < &*separator && &*separator <= right, "it separates them");
    separator
}

/// Returns the least key greater than every key with this `prefix`; `None` if there is no such key.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=keep].to_vec();
    end[keep] += 1;
    debug_assert!(&*end > prefix && !end.starts_with(prefix), "it is beyond all keys with the prefix");
    Some(end)
}

/// Maximum number of key bytes shown in a finding.
const SHOWN_BYTES: usize = 64;

/// Formats a key for findings: quoted, unprintable bytes escaped, truncated if long.
pub fn shown(key: &[u8]) -> String {
    match key.get(..SHOWN_BYTES).filter(|_| key.len() > SHOWN_BYTES) {
        Some(start) => format!("\"{}\"… ({} bytes)", start.escape_ascii(), key.len()),
        None => format!("\"{}\"", key.escape_ascii()),
    }
}

#[cfg(test)]
mod tests;
