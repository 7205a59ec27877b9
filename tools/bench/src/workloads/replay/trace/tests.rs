use std::path::Path;

use super::{Operation, Trace, detect};
use crate::args::TraceFormat;

#[test]
fn format_is_detected_from_name_and_content() {
    let cases = [
        ("git_trace.txt.zst", "", Some(TraceFormat::Git)),
        ("a.bin", "", Some(TraceFormat::Block)),
        ("w.U32.ZST", "", Some(TraceFormat::Accesses)),
        ("history", "B 12 1\n", Some(TraceFormat::Git)),
        ("history", "B\0\0", None),
    ];
    for (name, start, expected) in cases {
        assert_eq!(detect(Path::new(name), start.as_bytes()), expected, "{name}");
    }
}

#[test]
fn compressed_and_plain_files_are_equivalent() {
    // "B 1 1\nP 9 key\n" as one raw block of a zstd frame without checksum.
    let text = b"B 1 1\nP 9 key\n";
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, 14, 0x71, 0, 0];
    frame.extend(text);
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [("a.txt", text.to_vec()), ("a.txt.zst", frame)] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let mut trace = Trace::open(&path, None).unwrap();
        let mut batch = Vec::new();
        assert!(trace.next_batch(&mut batch).unwrap());
        assert_eq!(batch, [Operation::Put { key: b"key".to_vec(), bytes: 9 }]);
        assert!(!trace.next_batch(&mut batch).unwrap());
    }
    assert!(Trace::open(&dir.path().join("missing.txt"), None).is_err());
}
