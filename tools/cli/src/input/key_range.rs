//! Key ranges: all keys, a range, or a prefix.

use std::ops::Bound;

use clap::Args;
use testudo::{Iter, Keyspace};
use testudo_base::key::prefix_end;

use crate::{failure::Failure, input::format::FormatArguments};

/// Key range on the command line.
#[derive(Args, Debug)]
pub(crate) struct RangeArguments {
    /// First key (inclusive)
    #[arg(long, value_name = "KEY", visible_alias = "start", allow_hyphen_values = true)]
    from: Option<String>,
    /// End of the range (exclusive)
    #[arg(long, value_name = "KEY", visible_alias = "end", allow_hyphen_values = true)]
    to: Option<String>,
    /// Only keys with this prefix
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"], allow_hyphen_values = true)]
    prefix: Option<String>,
}

/// Key range as bytes.
#[derive(Debug)]
pub(crate) enum KeyRange {
    Between(Bound<Vec<u8>>, Bound<Vec<u8>>),
    Prefix(Vec<u8>),
}

impl RangeArguments {
    /// Whether any of the arguments is given.
    pub(crate) fn is_given(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.prefix.is_some()
    }

    /// Parses the key range.
    pub(crate) fn parse(&self, formats: FormatArguments) -> Result<KeyRange, Failure> {
        let parse = |name: &str, key: &Option<String>| {
            let parse = |key: &String| formats.parse_key(key.as_bytes());
            key.as_ref().map(parse).transpose().map_err(|why| Failure::new(format!("{name}: {why}")))
        };
        if let Some(prefix) = parse("--prefix", &self.prefix)? {
            return Ok(KeyRange::Prefix(prefix));
        }
        let (from, to) = (parse("--from", &self.from)?, parse("--to", &self.to)?);
        if let (Some(from), Some(to)) = (&from, &to)
            && from > to
        {
            return Err(Failure::new("--from is greater than --to, so the range is empty"));
        }
        Ok(KeyRange::Between(
            from.map_or(Bound::Unbounded, Bound::Included),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        ))
    }
}

impl KeyRange {
    fn bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        match self {
            Self::Prefix(prefix) => {
                let end = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
                (Bound::Included(prefix.clone()), end)
            }
            Self::Between(from, to) => (from.clone(), to.clone()),
        }
    }

    /// Whether it contains no key.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Between(Bound::Included(from), Bound::Excluded(to)) if from >= to)
    }

    /// Estimates the bytes that these keys and their values take in the tree.
    pub(crate) fn estimate(&self, keyspace: &Keyspace) -> testudo::Result<u64> {
        keyspace.approximate_bytes(self.bounds())
    }

    /// Compacts these keys completely.
    pub(crate) fn compact(&self, keyspace: &Keyspace) -> testudo::Result<()> {
        keyspace.compact_range(self.bounds())
    }

    /// Opens an iterator over the records with these keys.
    pub(crate) fn open(&self, keyspace: &Keyspace) -> testudo::Result<Iter> {
        match self {
            Self::Prefix(prefix) => keyspace.prefix(prefix),
            Self::Between(from, to) => keyspace.range((from.clone(), to.clone())),
        }
    }
}
