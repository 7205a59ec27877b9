//! Arguments shared by many verbs: the store, the keyspace, and the formats of records.

use std::path::PathBuf;

use clap::Args;

use crate::input::{bytes_text::unescape, format::FormatArguments, key_range::RangeArguments};

/// Store directory and memory budget.
#[derive(Args, Debug)]
pub(crate) struct StoreArguments {
    /// Directory of the store; defaults to TESTUDO_DIR
    pub(crate) dir: PathBuf,
    /// Memory budget of the store; a value may take up to a quarter of it [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = testudo_bench::parse_positive)]
    pub(crate) memory: Option<u64>,
}

/// Keyspace, and the formats of keys and values.
#[derive(Args, Debug)]
pub(crate) struct RecordArguments {
    #[command(flatten)]
    pub(crate) keyspace: KeyspaceArgument,
    #[command(flatten)]
    pub(crate) formats: FormatArguments,
}

/// Records to read: store, keyspace, formats and key range.
#[derive(Args, Debug)]
pub(crate) struct RangeOfStore {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) record: RecordArguments,
    #[command(flatten)]
    pub(crate) range: RangeArguments,
}

/// Keyspace argument.
#[derive(Args, Debug)]
pub(crate) struct KeyspaceArgument {
    /// Name of the keyspace
    #[arg(long = "keyspace", value_name = "NAME", default_value = "default", value_parser = parse_name)]
    pub(crate) name: String,
}

/// Parses a keyspace name in escaped form.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    String::from_utf8(unescape(text.as_bytes())?).map_err(|_| "not UTF-8".to_owned())
}
