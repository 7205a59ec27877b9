//! Raw access to a store's files, for dumps that must work on damaged stores.
//!
//! **Invariants**
//! - Nothing is opened for writing, locked or trusted.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use serde_json::{Map, Value, json};
use testudo::Error;
use testudo_base::{Entry, Kind, StoreId, ValueReference, operands_format::Stack};
use testudo_env::Env;
use testudo_storage::{DATA_FILE, SlotContents, inspect_superblock};
use testudo_wal::survey_log;

use crate::{
    context::Context,
    failure::{Failure, Missing},
    input::bytes_text::{escape, to_hex},
};

/// Longer values are truncated in human-readable output.
const SHOWN_BYTES: usize = 100;

/// Directory of the raw files.
#[derive(Args, Debug)]
pub(crate) struct RawArguments {
    /// Directory of the store; may be damaged or in use (then the end of a file may be half written)
    pub(crate) dir: PathBuf,
}

impl RawArguments {
    /// Failed read of the store's files.
    pub(crate) fn failure(&self, error: &Error) -> Failure {
        Failure::store(&self.dir, error)
    }

    /// Returns the environment with the directory held open; fails if there is no store.
    pub(crate) fn enter(&self, context: &Context) -> Result<Arc<dyn Env>, Failure> {
        enter(context, &self.dir)
    }
}

/// Returns the environment with the directory held open; `dir` may be a link. Fails if there is no such
/// directory, or no file of a store in it. Does not check the contents of the files.
pub(crate) fn enter(context: &Context, dir: &Path) -> Result<Arc<dyn Env>, Failure> {
    let missing = |why: &str| Err(Failure::missing(Missing::Store, dir.display(), why));
    let entered = match context.env.anchor(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return missing("there is no such directory");
        }
        entered => entered.map_err(|error| Failure::about(dir.display(), error))?,
    };
    // If the directory cannot be listed, a file in it may still be readable.
    match entered.list_dir(dir) {
        Ok(entries) if !entries.iter().any(|entry| may_be_of_store(&entry.name)) => {
            missing("there are no files of a Testudo store in this directory")
        }
        _ => Ok(entered),
    }
}

fn may_be_of_store(name: &str) -> bool {
    let beginnings = ["superblock", "manifest-", "wal-", "UNFINISHED"];
    name == DATA_FILE || beginnings.iter().any(|beginning| name.starts_with(beginning))
}

/// Id of the store, from the superblock or from the log.
pub(crate) fn find_store_id(env: &Arc<dyn Env>, dir: &Path) -> Option<StoreId> {
    let mut newest = None;
    for slot in inspect_superblock(&**env, dir).into_iter().flatten() {
        if let SlotContents::Superblock(superblock) = slot {
            newest = newest.max(Some((superblock.generation, superblock.store.0)));
        }
    }
    if let Some((_, store)) = newest {
        return Some(StoreId(store));
    }
    survey_log(env, dir).ok()?.segments().iter().find_map(|segment| segment.store)
}

/// Key or value in human-readable form, truncated if it is long.
pub(crate) fn shown(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN_BYTES) {
        Some(head) if bytes.len() > SHOWN_BYTES => format!("{}… ({} bytes)", escape(head), bytes.len()),
        _ => escape(bytes),
    }
}

/// Operation as JSON: `key` and `value`, or `key_hex` and `value_hex` if they are not UTF-8; no value for a
/// removal. Operands are `operands_hex`, with the `value` that they change if the entry has it (`null` if the
/// key is absent).
pub(crate) fn operation_document(entry: &Entry<'_>) -> Map<String, Value> {
    let mut document = Map::new();
    let stack = stack_of(entry);
    let (operation, value) = match (entry.kind, &stack) {
        (Kind::Value, _) => ("put", Some(entry.value)),
        (Kind::Tombstone, _) => ("remove", None),
        (Kind::Operands | Kind::Unmerged, None) => ("merge", Some(entry.value)),
        (Kind::Operands | Kind::Unmerged, Some(stack)) => ("merge", stack.existing),
        (Kind::Reference | Kind::UnmergedReference, _) => ("refer", None),
        (Kind::Referred, _) => ("referred", ValueReference::split(entry.value).ok().map(|split| split.1)),
    };
    if let Ok((reference, _)) = ValueReference::split(entry.value)
        && matches!(entry.kind, Kind::Reference | Kind::UnmergedReference | Kind::Referred)
    {
        match reference.long_value() {
            Some(value) => document.insert("pieces".to_owned(), json!(value)),
            None => {
                document.insert("segment".to_owned(), json!(reference.segment.0));
                document.insert("number".to_owned(), json!(reference.number))
            }
        };
        document.insert("length".to_owned(), json!(reference.length));
    }
    document.insert("operation".to_owned(), json!(operation));
    if let Some(stack) = &stack {
        let operands: Vec<_> = stack.operands.iter().map(|operand| to_hex(operand)).collect();
        document.insert("operands_hex".to_owned(), json!(operands));
        if entry.kind == Kind::Unmerged && value.is_none() {
            document.insert("value".to_owned(), Value::Null);
        }
    }
    for (name, bytes) in [("key", Some(entry.key)), ("value", value)] {
        let Some(bytes) = bytes else { continue };
        match std::str::from_utf8(bytes) {
            Ok(text) => document.insert(name.to_owned(), json!(text)),
            Err(_) => document.insert(format!("{name}_hex"), json!(to_hex(bytes))),
        };
    }
    document
}

/// Decoded operands of an entry; `None` for other entries and for bytes that do not decode.
fn stack_of<'e>(entry: &Entry<'e>) -> Option<Stack<'e>> {
    let has_operands = matches!(entry.kind, Kind::Operands | Kind::Unmerged);
    has_operands.then(|| Stack::decode(entry.kind, entry.value).ok()).flatten()
}

/// Human-readable form of an entry that refers to a value, or of a value in a value segment.
fn reference_line(key: &str, entry: &Entry<'_>) -> String {
    let Ok((reference, rest)) = ValueReference::split(entry.value) else {
        return format!("refer {key}: damaged reference {}", shown(entry.value));
    };
    let ValueReference { segment, number, length } = reference;
    let what = match reference.long_value() {
        Some(value) => format!("value {value} in pieces, {length} bytes"),
        None => format!("value {number} of segment {segment}, {length} bytes"),
    };
    match entry.kind {
        Kind::Referred => format!("{what}: {key} = {}", shown(rest)),
        Kind::UnmergedReference => format!("merge {key} = {what} + operands"),
        _ => format!("refer {key} = {what}"),
    }
}

/// Operation in human-readable form.
pub(crate) fn operation_line(entry: &Entry<'_>) -> String {
    let key = shown(entry.key);
    let Some(Stack { existing, operands }) = stack_of(entry) else {
        return match entry.kind {
            Kind::Value => format!("put {key} = {}", shown(entry.value)),
            Kind::Tombstone => format!("remove {key}"),
            Kind::Operands | Kind::Unmerged => {
                format!("merge {key}: damaged operands {}", shown(entry.value))
            }
            Kind::Reference | Kind::UnmergedReference | Kind::Referred => reference_line(&key, entry),
        };
    };
    let operands: Vec<_> = operands.into_iter().map(shown).collect();
    let onto = match (entry.kind, existing) {
        (Kind::Unmerged, Some(value)) => format!(" = {}", shown(value)),
        (Kind::Unmerged, None) => " = nothing".to_owned(),
        _ => String::new(),
    };
    format!("merge {key}{onto} + {}", operands.join(" + "))
}
