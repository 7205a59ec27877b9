//! Immutable sorted runs: blocks, index, filter, writer, reader, cursor.
