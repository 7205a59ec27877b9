use std::io::Cursor;

use super::LineReader;

fn lines(text: &'static [u8]) -> Vec<Vec<u8>> {
    let mut reader = LineReader::new("test", Box::new(Cursor::new(text)), None);
    let mut lines = Vec::new();
    while let Some(line) = reader.next_line().unwrap() {
        lines.push(line.to_vec());
    }
    lines
}

#[test]
fn only_the_line_feed_is_taken_off() {
    assert_eq!(lines(b""), Vec::<Vec<u8>>::new());
    assert_eq!(lines(b"a\r\n\n b"), [&b"a\r"[..], b"", b" b"]);
    assert_eq!(lines(b"a\n"), [b"a"]);
}
