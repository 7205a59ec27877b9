//! The merge operators of test keyspaces, and the model's own implementation of them.
//!
//! Neither is commutative, so the order of operands affects the value. One can combine operands, the other
//! cannot.
//!
//! **Invariants**
//! - The operator of a keyspace depends on its number alone.
//! - A value stays short regardless of the number of operands, except with the built-in operator.

use std::sync::Arc;

use testudo::{Error, MergeOperator, Result};
use testudo_base::checksum::checksum64;

use crate::op::Slot;

const CHAIN: &str = "chain";
/// Maximum bytes of a value; a longer one is replaced by its hash before an append.
const CHAIN_BYTES_MAX: usize = 500;

/// Returns the name of a keyspace's operator.
pub fn operator_name(keyspace: Slot) -> &'static str {
    if keyspace.is_multiple_of(2) { CHAIN } else { "append" }
}

/// A value and an operand that the chain operator refuses; no script writes it.
pub const REFUSED: &str = "refused by the operator";

/// Returns the operator that is not built into the store.
pub fn chain_operator() -> Arc<dyn MergeOperator> {
    Arc::new(Chain)
}

#[derive(Debug)]
struct Chain;

fn refuse(bytes: &[u8]) -> Result<()> {
    if bytes == REFUSED.as_bytes() { Err(Error::invalid("refused on purpose")) } else { Ok(()) }
}

impl MergeOperator for Chain {
    fn name(&self) -> &'static str {
        CHAIN
    }

    fn check_operand(&self, _: &[u8], operand: &[u8]) -> Result<()> {
        refuse(operand)
    }

    fn check_value(&self, _: &[u8], value: &[u8]) -> Result<()> {
        refuse(value)
    }

    fn merge(&self, _: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        let value = operands
            .iter()
            .fold(existing.map(<[u8]>::to_vec), |value, operand| Some(chained(value.as_deref(), operand)));
        Ok(value.unwrap_or_default())
    }
}

fn chained(existing: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
    let mut value = match existing {
        None => vec![b'>'],
        Some(long) if long.len() > CHAIN_BYTES_MAX => checksum64(long, 0).to_le_bytes().to_vec(),
        Some(short) => short.to_vec(),
    };
    value.push(b'|');
    value.extend_from_slice(operand);
    value
}

/// Returns the result of applying an operand to a value.
pub fn merged(keyspace: Slot, existing: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
    if operator_name(keyspace) == CHAIN {
        return chained(existing, operand);
    }
    [existing.unwrap_or_default(), operand].concat()
}
