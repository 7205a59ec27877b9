use super::*;

#[test]
fn operations_round_trip_in_their_stated_length() {
    let long = vec![9u8; 300];
    let operations = [
        Operation { keyspace: KeyspaceId(1), kind: Kind::Value, key: b"key", value: b"value" },
        Operation { keyspace: KeyspaceId(70_000), kind: Kind::Tombstone, key: b"", value: b"" },
        Operation { keyspace: KeyspaceId(2), kind: Kind::Value, key: &long, value: b"" },
    ];
    let bytes: usize = operations.iter().map(operation_bytes).sum();
    let mut payload = vec![0u8; bytes];
    let mut rest = payload.as_mut_slice();
    for operation in &operations {
        rest = encode_operation(rest, operation);
    }
    assert!(rest.is_empty());
    let mut count = 0;
    decode::<Damage>(&payload, |index, operation| {
        assert_eq!(operation, operations[usize_of(index)]);
        count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(count, 3);
    for end in 1..payload.len() {
        let mut seen = 0;
        let _ = decode::<Damage>(&payload[..end], |_, _| {
            seen += 1;
            Ok(())
        });
        assert!(seen < 3);
    }
}
