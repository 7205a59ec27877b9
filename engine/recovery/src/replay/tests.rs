use testudo_base::{RunId, ValueReference};

use super::*;

#[test]
fn commit_to_keyspace_unknown_to_manifest_is_corruption() {
    let operation = Operation { keyspace: KeyspaceId(7), kind: Kind::Value, key: b"k", value: b"v" };
    let mut payload = vec![0; batch_format::operation_bytes(&operation)];
    batch_format::encode_operation(&mut payload, &operation);
    let record = Record { first_seqno: Seqno(5), seqno_count: 1, payload: &payload, place: (3, 4096) };
    let (flushed, mut found) = (Flushed::new(), FoundValues::default());
    assert_eq!(check_commit(&record, KeyspaceId(8), &flushed, &mut found).unwrap(), Verdict::Taken);
    let error = check_commit(&record, KeyspaceId(7), &flushed, &mut found).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!(error.location(), Some(("wal-00000000000000000003.log", 4096)));
}

#[test]
fn commit_with_missing_value_is_unbacked_unless_flushed() {
    let mut reference = Vec::new();
    ValueReference { segment: RunId(5), number: 0, length: 900 }.encode(&mut reference);
    let operation =
        Operation { keyspace: KeyspaceId(7), kind: Kind::Reference, key: b"k", value: &reference };
    let mut payload = vec![0; batch_format::operation_bytes(&operation)];
    batch_format::encode_operation(&mut payload, &operation);
    let record = Record { first_seqno: Seqno(5), seqno_count: 1, payload: &payload, place: (3, 4096) };
    let verdict = |flushed: &[(KeyspaceId, Seqno)]| {
        let flushed = flushed.iter().copied().collect();
        check_commit(&record, KeyspaceId(8), &flushed, &mut FoundValues::default()).unwrap()
    };
    assert_eq!(verdict(&[(KeyspaceId(7), Seqno(4))]), Verdict::Unbacked);
    assert_eq!(verdict(&[(KeyspaceId(7), Seqno(5))]), Verdict::Taken);
    assert_eq!(verdict(&[]), Verdict::Taken, "the keyspace was dropped");
}
