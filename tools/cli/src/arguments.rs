//! The arguments that many verbs share: which store, which keyspace, in which form records are written.

use std::path::PathBuf;

use clap::Args;

use crate::input::{bytes_text::unescape, format::FormatArguments, key_range::RangeArguments};

/// Which store.
#[derive(Args, Debug)]
pub(crate) struct StoreArguments {
    /// Directory of the store; TESTUDO_DIR where it is left out
    pub(crate) dir: PathBuf,
    /// Memory that the store may use; a value can be as long as a quarter of it [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = testudo_bench::parse_positive)]
    pub(crate) memory: Option<u64>,
}

/// Which keyspace, and how keys and values are written.
#[derive(Args, Debug)]
pub(crate) struct RecordArguments {
    #[command(flatten)]
    pub(crate) keyspace: KeyspaceArgument,
    #[command(flatten)]
    pub(crate) formats: FormatArguments,
}

/// Which records, to be read.
#[derive(Args, Debug)]
pub(crate) struct RangeOfStore {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) record: RecordArguments,
    #[command(flatten)]
    pub(crate) range: RangeArguments,
}

/// Which keyspace.
#[derive(Args, Debug)]
pub(crate) struct KeyspaceArgument {
    /// Keyspace
    #[arg(long = "keyspace", value_name = "NAME", default_value = "default", value_parser = parse_name)]
    pub(crate) name: String,
}

/// The name of a keyspace as it is typed: escaped.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    String::from_utf8(unescape(text.as_bytes())?).map_err(|_| "not UTF-8".to_owned())
}
