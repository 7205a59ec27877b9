//! The files of a small store, changed anywhere; most inputs have their checksums recomputed.
//!
//! **Invariants**
//! - A store that opens can be used in every way, or reports the reason if not; it never panics, hangs or
//!   exceeds its memory.
//! - Without new checksums a closed store gives its earlier answers, or errors.

use std::sync::Arc;

use crate::{
    base_store::{base_stores, open},
    exercise::{content_of, exercise, require_named},
    input::Input,
    patch,
};

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let stores = base_stores();
    let store = &stores[usize::from(input.u8()) % stores.len()];
    let is_sealed = !input.u8().is_multiple_of(8);
    let mut files = store.files.clone();
    patch::apply(&mut files, &mut input, |name| name != "LOCK");
    if is_sealed {
        store.seal(&mut files);
    }
    let machine = store.machine(&files);
    let db = match open(Arc::clone(&machine)) {
        Ok(db) => db,
        Err(error) => return require_named(&error),
    };
    if !is_sealed
        && store.is_closed
        && let Ok(content) = content_of(&db)
    {
        assert!(content == store.content, "damage changed an answer without an error");
    }
    exercise(&machine, db);
}
