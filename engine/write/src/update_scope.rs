//! Stores in which this thread is updating a key with a function of the user, so that the function cannot
//! write to them.
//!
//! The key's stripe is locked while the function runs. A write of the same thread to that stripe would
//! deadlock. A write to another stripe would break the lock order of stripes, and could deadlock with another
//! thread. So every write to the store is refused, whatever its key.
//!
//! **Invariants**
//! - The list mirrors the thread's stack: a scope ends when its value is dropped, also by a panic.

use std::{cell::RefCell, marker::PhantomData};

use testudo_base::{Error, Result, planted, sync::Arc};
use testudo_store::Store;

struct Noted {
    /// Address of the store, which outlives the scope.
    store: usize,
    keyspace: Arc<str>,
    key: Vec<u8>,
}

testudo_base::sync::thread_local! {
    static SCOPES: RefCell<Vec<Noted>> = const { RefCell::new(Vec::new()) };
}

/// Scope in which a function of the user runs under the stripe of a key. Bound to its thread: not `Send`.
pub struct UpdateScope<'s> {
    _store: PhantomData<(&'s Store, *const ())>,
}

impl<'s> UpdateScope<'s> {
    /// Begins a scope. REQUIRES: the stripe of `key` is locked by this thread.
    pub fn enter(store: &'s Store, keyspace: &Arc<str>, key: &[u8]) -> Self {
        let noted = Noted { store: address(store), keyspace: Arc::clone(keyspace), key: key.to_vec() };
        SCOPES.with(|scopes| scopes.borrow_mut().push(noted));
        Self { _store: PhantomData }
    }
}

impl Drop for UpdateScope<'_> {
    fn drop(&mut self) {
        SCOPES.with(|scopes| scopes.borrow_mut().pop());
    }
}

fn address(store: &Store) -> usize {
    std::ptr::from_ref(store).addr()
}

/// Fails if called inside a function that updates a key of this store.
#[inline]
pub fn check_outside_updates(store: &Store) -> Result<()> {
    SCOPES.with(|scopes| {
        let scopes = scopes.borrow();
        if scopes.is_empty() || planted!("write-inside-update") {
            Ok(())
        } else {
            check_none_of(store, &scopes)
        }
    })
}

#[cold]
fn check_none_of(store: &Store, scopes: &[Noted]) -> Result<()> {
    let Some(noted) = scopes.iter().find(|noted| noted.store == address(store)) else { return Ok(()) };
    Err(Error::invalid(format!(
        "a write from inside the function that updates a key of keyspace {:?}, which may only read the \
         store",
        noted.keyspace
    ))
    .about_key(&noted.key))
}
