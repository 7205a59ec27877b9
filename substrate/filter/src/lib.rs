//! Page-partitioned quotient filter, built in bulk.
