//! Lookups that find operands: older sources are searched until an entry ends the stack.
//!
//! **Invariants**
//! - Operands are stacked oldest first, on top of the value or tombstone that ends the stack.

use std::cell::Cell;

use testudo_base::{Kind, Result, operands_format::begin_stack};
use testudo_run::{Access, Lookup, LookupProgress};
use testudo_storage::Neighbours;

/// Returns the entry of a key: operands are stacked on top of what older sources have. `find` looks the key
/// up in the sources after the first `passed` ones, and sets that number to those searched.
#[inline]
pub fn find_stacked(
    access: Access<'_>,
    find: impl Fn(Access<'_>, &mut u32) -> Result<Lookup>,
) -> Result<Lookup> {
    let mut passed = access.progress().passed;
    match find(access, &mut passed)? {
        Lookup::Found(Kind::Operands, newest, _) => find_below(access, passed, newest, find),
        found => Ok(found),
    }
}

/// Stacks the operands `newest`, which are in source number `passed`, on top of older entries of their key.
/// `find` is that of [`find_stacked`].
///
/// The progress of `access` stays at the source of the operands: a query that misses a page further down
/// has to collect them again.
#[cold]
fn find_below(
    access: Access<'_>,
    mut passed: u32,
    newest: Vec<u8>,
    find: impl Fn(Access<'_>, &mut u32) -> Result<Lookup>,
) -> Result<Lookup> {
    let progress = Cell::new(LookupProgress::after(passed));
    let access = match access {
        Access::Blocking => Access::Blocking,
        Access::Collecting(wanted, _) => Access::Collecting(wanted, &progress),
        Access::Counting(effort) => {
            effort.take();
            Access::Counting(effort)
        }
    };
    let (mut newer, mut stack) = (vec![newest], Vec::new());
    let kind = loop {
        match find(access, &mut passed)? {
            Lookup::Waiting => return Ok(Lookup::Waiting),
            Lookup::Absent => break Kind::Operands,
            Lookup::Found(Kind::Operands, operands, _) => {
                newer.push(operands);
                access.set_passed(passed);
            }
            Lookup::Found(kind, value, _) => break begin_stack(kind, &value, &mut stack),
        }
    };
    newer.iter().rev().for_each(|operands| stack.extend_from_slice(operands));
    Ok(Lookup::Found(kind, stack, Neighbours::default()))
}
