//! Which stores this thread is changing a key of by a function of the user, so that the function cannot write
//! to them.
//!
//! The key's stripe is locked while the function runs. A write of the same thread to that stripe would wait
//! for itself; one to another stripe would break the order in which stripes are locked, and could wait for a
//! thread that waits for this one. So every write to the store is refused, whatever its key.
//!
//! **Invariants**
//! - What is noted is the present state of the thread's stack: a scope ends when its value is dropped, also
//!   by a panic.

use std::{cell::RefCell, marker::PhantomData};

use testudo_base::{Error, Result, planted, sync::Arc};
use testudo_store::Store;

struct Noted {
    /// Where the store lies; it lives as long as the scope.
    store: usize,
    keyspace: Arc<str>,
    key: Vec<u8>,
}

testudo_base::sync::thread_local! {
    static SCOPES: RefCell<Vec<Noted>> = const { RefCell::new(Vec::new()) };
}

/// The time in which a function of the user runs under the stripe of a key. Of one thread: it cannot be sent.
pub struct UpdateScope<'s> {
    _store: PhantomData<(&'s Store, *const ())>,
}

impl<'s> UpdateScope<'s> {
    /// Begins one. REQUIRES: the stripe of `key` is locked by this thread.
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

/// Fails in a function that changes a key of this store.
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
