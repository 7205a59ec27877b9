//! How point queries treat pages that are not in the cache, and what they answer.

use std::cell::RefCell;

use testudo_base::Kind;

use crate::PageAddress;

/// How a point query deals with pages that are not in the cache.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    /// Reads them, one after the other.
    Blocking,
    /// Notes them here and gives up; the caller loads them together and asks again.
    Noting(&'a RefCell<Vec<PageAddress>>),
}

/// Answer of a point query to one source of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The source says nothing about the key.
    Absent,
    /// The source's newest entry for the key.
    Found(Kind, Vec<u8>),
    /// A page was missing and has been noted.
    Waiting,
}
