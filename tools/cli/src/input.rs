//! Input from users and scripts: keys and values as text, records, lines.
//!
//! **Invariants**
//! - Printed output reads back as the same bytes.

pub(crate) mod bytes_text;
pub(crate) mod format;
pub(crate) mod interruptible_input;
pub(crate) mod json_record;
pub(crate) mod key_range;
pub(crate) mod line_reader;
pub(crate) mod long_json;
pub(crate) mod long_value;
pub(crate) mod spool;
