use super::*;

#[test]
fn a_commit_for_a_keyspace_that_the_manifest_cannot_know_is_damage() {
    let operation = Operation { keyspace: KeyspaceId(7), kind: Kind::Value, key: b"k", value: b"v" };
    let mut payload = vec![0; batch_format::operation_bytes(&operation)];
    batch_format::encode_operation(&mut payload, &operation);
    let record = Record { first_seqno: Seqno(5), seqno_count: 1, payload: &payload, place: (3, 4096) };
    assert!(check_commit(&record, KeyspaceId(8)).is_ok());
    let error = check_commit(&record, KeyspaceId(7)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!(error.location(), Some(("wal-00000000000000000003.log", 4096)));
}
