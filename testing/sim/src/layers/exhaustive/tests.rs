use std::collections::BTreeSet;

use super::{ALPHABET, script_of};

#[test]
fn every_script_has_a_number() {
    let letters = u64::try_from(ALPHABET.len()).unwrap();
    let count = letters + letters.pow(2) + letters.pow(3);
    let scripts: BTreeSet<_> = (0..count).map(script_of).collect();
    assert_eq!(u64::try_from(scripts.len()).unwrap(), count);
    assert_eq!(script_of(0), [ALPHABET[0]]);
    assert!((0..count).all(|number| script_of(number).len() <= 3));
    assert_eq!(script_of(count).len(), 4);
}
