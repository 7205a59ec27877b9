use std::collections::BTreeSet;

use super::Generator;
use crate::{
    Profile,
    op::{Op, Span},
};

#[test]
fn equal_seeds_give_equal_scripts() {
    let profile = Profile::default();
    let script = |seed| Generator::new(&profile, seed).script(300).to_string();
    assert_eq!(script(1), script(1));
    assert_ne!(script(1), script(2));
}

#[test]
fn every_kind_of_op_occurs() {
    let profile = Profile::default();
    let script = Generator::new(&profile, 1).script(30_000);
    let kinds: BTreeSet<String> =
        script.0.iter().filter_map(|op| Some(op.to_string().split(' ').next()?.to_owned())).collect();
    assert_eq!(kinds.len(), 26, "{kinds:?}");
}

#[test]
fn keys_are_distinct_and_within_the_length_limit() {
    for profile in [Profile::default(), Profile::bulky(), Profile::tall(), Profile::alike()] {
        let keys: BTreeSet<_> =
            (0..profile.key_count).map(|number| Generator::key_of(&profile, number).bytes()).collect();
        assert_eq!(keys.len(), usize::try_from(profile.key_count).unwrap());
        assert!(keys.iter().all(|key| key.len() <= testudo_base::MAX_KEY_BYTES));
    }
}

#[test]
fn scans_of_all_forms_occur() {
    let profile = Profile::default();
    let script = Generator::new(&profile, 1).script(30_000);
    let spans = script.0.iter().filter_map(|op| match op {
        Op::Scan { scan, .. } => Some(&scan.span),
        _ => None,
    });
    let forms: BTreeSet<_> = spans
        .map(|span| match span {
            Span::All => "all",
            Span::Prefix(_) => "prefix",
            Span::Range(..) => "range",
        })
        .collect();
    assert_eq!(forms.len(), 3);
}
