use std::panic::resume_unwind;

use super::*;

fn operands(operands: &[&[u8]]) -> Vec<u8> {
    operands.iter().flat_map(|operand| encode_operand(operand)).collect()
}

fn settled(full_merge: &FullMerge, kind: Kind, value: &[u8], is_oldest: bool) -> Option<(Kind, Vec<u8>)> {
    full_merge.try_full_merge(&Entry { key: b"key", kind, value }, is_oldest)
}

fn unmerged(kind: Kind, value: &[u8], newer: &[&[u8]]) -> Vec<u8> {
    let mut stack = Vec::new();
    begin_stack(kind, value, &mut stack);
    stack.extend(operands(newer));
    stack
}

#[test]
fn built_in_operators_work_as_documented() {
    let operators = MergeOperators::default();
    assert_eq!(operators.names().collect::<Vec<_>>(), ["add-u64", "append", "max", "min"]);
    let answer = |name: &str, existing: Option<&[u8]>, operands: &[&[u8]]| {
        operators.full_merge("k", Some(name)).operator().unwrap().merge(b"", existing, operands)
    };
    let (one, max) = (1_u64.to_le_bytes(), u64::MAX.to_le_bytes());
    assert_eq!(answer("add-u64", Some(&one), &[&one, &max]).unwrap(), one);
    assert_eq!(answer("add-u64", None, &[&one]).unwrap(), one);
    assert_eq!(answer("add-u64", Some(b"text"), &[&one]).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(answer("append", Some(b"a"), &[b"b", b"", b"c"]).unwrap(), b"abc");
    assert_eq!(answer("max", Some(b"b"), &[b"ab", b"ba"]).unwrap(), b"ba");
    assert_eq!(answer("min", None, &[b"ab", b"ba"]).unwrap(), b"ab");
}

#[test]
fn operands_and_values_are_checked_before_they_are_written() {
    let full_merge = MergeOperators::default().full_merge("k", Some("add-u64"));
    let operator = full_merge.operator().unwrap();
    assert!(operator.check_operand(b"", &[0; 8]).is_ok() && operator.check_value(b"", &[0; 8]).is_ok());
    assert_eq!(operator.check_operand(b"", b"7").unwrap_err().kind(), ErrorKind::Invalid);
    let error = full_merge.check_value(b"a", b"7").unwrap_err();
    assert_eq!(error.to_string(), "keyspace \"k\": add-u64: a value is not 8 bytes long");
    assert_eq!(error.key(), Some(&b"a"[..]));
    assert!(MergeOperators::default().full_merge("k", None).check_value(b"a", b"7").is_ok());
}

#[test]
fn entries_merge_as_far_as_older_state_is_known() {
    let full_merge = MergeOperators::default().full_merge("k", Some("append"));
    let list = operands(&[b"b", b"c"]);
    assert_eq!(
        settled(&full_merge, Kind::Operands, &list, false),
        Some((Kind::Operands, operands(&[b"bc"])))
    );
    assert_eq!(settled(&full_merge, Kind::Operands, &list, true), Some((Kind::Value, b"bc".to_vec())));
    assert_eq!(settled(&full_merge, Kind::Operands, &operands(&[b"b"]), false), None);
    let stack = unmerged(Kind::Value, b"a", &[b"b"]);
    assert_eq!(settled(&full_merge, Kind::Unmerged, &stack, false), Some((Kind::Value, b"ab".to_vec())));
    assert_eq!(settled(&full_merge, Kind::Value, b"a", true), None);
    assert_eq!(settled(&full_merge, Kind::Tombstone, b"", true), None);
}

#[test]
fn missing_operator_loses_nothing() {
    let operators = MergeOperators::default();
    let list = operands(&[b"b", b"c"]);
    for name in [None, Some("somebody's")] {
        let full_merge = operators.full_merge("k", name);
        assert_eq!(settled(&full_merge, Kind::Operands, &list, false), None);
        let whole = unmerged(Kind::Tombstone, b"", &[b"b", b"c"]);
        assert_eq!(settled(&full_merge, Kind::Operands, &list, true), Some((Kind::Unmerged, whole.clone())));
        assert_eq!(settled(&full_merge, Kind::Unmerged, &whole, true), None);
        let error = full_merge.merge(&Entry { key: b"", kind: Kind::Operands, value: &list }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(name.is_none_or(|name| error.to_string().contains(name)), "{error}");
    }
}

#[test]
fn refused_operands_are_kept() {
    let mut operators = MergeOperators::default();
    let refuse = |_: &[u8], _: Option<&[u8]>, _: &[&[u8]]| Err(Error::invalid("no"));
    operators.register(Arc::new(MergeFunction::new("no", refuse)));
    let full_merge = operators.full_merge("k", Some("no"));
    let list = operands(&[b"b", b"c"]);
    assert_eq!(settled(&full_merge, Kind::Operands, &list, false), None);
    let whole = unmerged(Kind::Tombstone, b"", &[b"b", b"c"]);
    assert_eq!(settled(&full_merge, Kind::Operands, &list, true), Some((Kind::Unmerged, whole)));
}

#[test]
fn operator_panic_is_a_refusal() {
    #[derive(Debug)]
    struct Panics;
    impl MergeOperator for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }
        fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>> {
            resume_unwind(Box::new("merge"))
        }
        fn combine(&self, _: &[u8], _: &[&[u8]]) -> Option<Vec<u8>> {
            resume_unwind(Box::new("combine"))
        }
    }
    let mut operators = MergeOperators::default();
    operators.register(Arc::new(Panics));
    let full_merge = operators.full_merge("k", Some("panics"));
    let list = operands(&[b"b", b"c"]);
    assert_eq!(settled(&full_merge, Kind::Operands, &list, false), None);
    let whole = unmerged(Kind::Tombstone, b"", &[b"b", b"c"]);
    assert_eq!(settled(&full_merge, Kind::Operands, &list, true), Some((Kind::Unmerged, whole)));
    let error = full_merge.merge(&Entry { key: b"key", kind: Kind::Operands, value: &list }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.to_string(), "keyspace \"k\": panics over 2 operands: the operator panicked");
}

#[test]
fn errors_carry_keyspace_and_key_but_show_no_user_data() {
    let operators = MergeOperators::default();
    let stack = unmerged(Kind::Value, b"secret", &[&[1; 8]]);
    for operator in [Some("add-u64"), Some("somebody's"), None] {
        for (kind, value) in [(Kind::Unmerged, stack.as_slice()), (Kind::Operands, b"\xffsecret")] {
            let entry = Entry { key: b"private", kind, value };
            let error = operators.full_merge("users", operator).merge(&entry).unwrap_err();
            assert_eq!(error.key(), Some(&b"private"[..]));
            for text in [error.to_string(), format!("{error:?}")] {
                assert!(text.contains(r#"keyspace "users": "#), "{text}");
                assert!(!text.contains("secret") && !text.contains("private"), "{text}");
            }
        }
    }
}
