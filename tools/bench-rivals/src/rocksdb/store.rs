//! An open RocksDB database: the operations of the workloads over the C interface.
//!
//! **Invariants**
//! - Bytes borrowed from the library are used only within the borrow.
//! - Iterators and values are destroyed on every exit path, before the database is closed.
#![expect(unsafe_code, reason = "functions of a foreign library")]

use std::{
    ffi::{CStr, CString, c_char},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr::null_mut,
    slice,
};

use testudo::Result;

use super::{
    library::{Functions, Object},
    options::Options,
};
use crate::failure::failed;

/// A database with its options and its default read and write options.
pub(crate) struct Store {
    functions: &'static Functions,
    db: Object,
    column_family: Object,
    read_options: Object,
    write_options: Object,
    /// Destroyed last.
    options: Options,
}

// SAFETY: RocksDB's database object may be used by any number of threads concurrently; the options are only
// read.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

/// Calls a function of the library.
macro_rules! call {
    ($functions:expr, $name:ident($($argument:expr),*)) => {{
        // SAFETY: every object was made by the library for this use and is not destroyed; every pointer comes
        // with its length from a slice that outlives the call.
        unsafe { ($functions.$name)($($argument),*) }
    }};
}

/// Calls a function that reports errors through its last argument.
macro_rules! try_call {
    ($functions:expr, $name:ident($($argument:expr),*)) => {{
        let mut message = null_mut();
        let result = call!($functions, $name($($argument,)* &raw mut message));
        checked($functions, message).map(|()| result)
    }};
}

impl Store {
    /// Opens the database in `dir`, or creates it.
    pub(crate) fn open(
        functions: &'static Functions,
        dir: &Path,
        options: Options,
        sync: bool,
    ) -> Result<Self> {
        let dir = CString::new(dir.as_os_str().as_bytes()).map_err(failed("--dir"))?;
        let db = try_call!(functions, open(options.options, dir.as_ptr()))?;
        let write_options = call!(functions, writeoptions_create());
        call!(functions, writeoptions_set_sync(write_options, u8::from(sync)));
        Ok(Self {
            functions,
            db,
            column_family: call!(functions, get_default_column_family_handle(db)),
            read_options: call!(functions, readoptions_create()),
            write_options,
            options,
        })
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (functions, db, options) = (self.functions, self.db, self.write_options);
        try_call!(functions, put(db, options, pointer(key), key.len(), pointer(value), value.len()))
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<()> {
        let (functions, db, options) = (self.functions, self.db, self.write_options);
        try_call!(functions, delete(db, options, pointer(key), key.len()))
    }

    pub(crate) fn get<T>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        let (functions, db, options) = (self.functions, self.db, self.read_options);
        let found = try_call!(functions, get_pinned(db, options, pointer(key), key.len()))?;
        let value = Pinned { functions, slice: found };
        Ok(see(value.bytes()))
    }

    pub(crate) fn multi_get(
        &self,
        keys: &[Vec<u8>],
        mut see: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let functions = self.functions;
        let pointers: Vec<*const c_char> = keys.iter().map(|key| pointer(key)).collect();
        let lengths: Vec<usize> = keys.iter().map(Vec::len).collect();
        let (mut values, mut messages) = (vec![null_mut(); keys.len()], vec![null_mut(); keys.len()]);
        call!(
            functions,
            batched_multi_get_cf(
                self.db,
                self.read_options,
                self.column_family,
                keys.len(),
                pointers.as_ptr(),
                lengths.as_ptr(),
                values.as_mut_ptr(),
                messages.as_mut_ptr(),
                false
            )
        );
        let values: Vec<Pinned> = values.into_iter().map(|slice| Pinned { functions, slice }).collect();
        for message in messages {
            checked(functions, message)?;
        }
        for (index, value) in values.iter().enumerate() {
            see(index, value.bytes());
        }
        Ok(())
    }

    /// Visits the records from `first` (inclusive) to `end` (exclusive), until `see` returns false. A full
    /// scan uses a large readahead and does not fill the cache.
    pub(crate) fn scan(
        &self,
        first: &[u8],
        end: Option<&[u8]>,
        is_long: bool,
        mut see: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let functions = self.functions;
        let options = ReadOptions { functions, options: call!(functions, readoptions_create()) };
        if is_long {
            call!(
                functions,
                readoptions_set_readahead_size(options.options, self.options.scan_readahead_bytes())
            );
            call!(functions, readoptions_set_fill_cache(options.options, 0));
        }
        if let Some(end) = end {
            call!(functions, readoptions_set_iterate_upper_bound(options.options, pointer(end), end.len()));
        }
        let cursor =
            Cursor { functions, iterator: call!(functions, create_iterator(self.db, options.options)) };
        call!(functions, iter_seek(cursor.iterator, pointer(first), first.len()));
        while call!(functions, iter_valid(cursor.iterator)) != 0 {
            let (mut key_bytes, mut value_bytes) = (0, 0);
            let key = call!(functions, iter_key(cursor.iterator, &raw mut key_bytes));
            let value = call!(functions, iter_value(cursor.iterator, &raw mut value_bytes));
            // SAFETY: the key is valid until the iterator moves.
            let key = unsafe { slice::from_raw_parts(key.cast(), key_bytes) };
            // SAFETY: and so is its value.
            let value = unsafe { slice::from_raw_parts(value.cast(), value_bytes) };
            if !see(key, value) {
                return Ok(());
            }
            call!(functions, iter_next(cursor.iterator));
        }
        try_call!(functions, iter_get_error(cursor.iterator))
    }

    /// Flushes the active write buffer and waits for it.
    pub(crate) fn flush(&self) -> Result<()> {
        let options = call!(self.functions, flushoptions_create());
        let result = try_call!(self.functions, flush(self.db, options));
        call!(self.functions, flushoptions_destroy(options));
        result
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        call!(self.functions, column_family_handle_destroy(self.column_family));
        call!(self.functions, close(self.db));
        call!(self.functions, readoptions_destroy(self.read_options));
        call!(self.functions, writeoptions_destroy(self.write_options));
    }
}

/// A value pinned by the library; null if there is none.
struct Pinned {
    functions: &'static Functions,
    slice: Object,
}

impl Pinned {
    fn bytes(&self) -> Option<&[u8]> {
        if self.slice.is_null() {
            return None;
        }
        let mut length = 0;
        let bytes = call!(self.functions, pinnableslice_value(self.slice, &raw mut length));
        // SAFETY: the bytes are valid until the slice is destroyed, with `self`.
        Some(unsafe { slice::from_raw_parts(bytes.cast(), length) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !self.slice.is_null() {
            call!(self.functions, pinnableslice_destroy(self.slice));
        }
    }
}

struct Cursor {
    functions: &'static Functions,
    iterator: Object,
}

impl Drop for Cursor {
    fn drop(&mut self) {
        call!(self.functions, iter_destroy(self.iterator));
    }
}

struct ReadOptions {
    functions: &'static Functions,
    options: Object,
}

impl Drop for ReadOptions {
    fn drop(&mut self) {
        call!(self.functions, readoptions_destroy(self.options));
    }
}

fn pointer(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

/// Returns an error if there is a message.
#[inline]
fn checked(functions: &Functions, message: *mut c_char) -> Result<()> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: messages of the library are zero-terminated.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    call!(functions, free(message.cast()));
    Err(failed("rocksdb")(text))
}
