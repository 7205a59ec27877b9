use std::io::{BufReader, Cursor};

use super::{Line, LineReader, Newline, WHOLE_LINE_BYTES};

fn reader(text: &[u8], newline: Option<Newline>) -> LineReader {
    // Odd buffer sizes, so that chunks end at any position.
    let source = BufReader::with_capacity(4099, Cursor::new(text.to_vec()));
    LineReader::of_source(Box::new(source), newline)
}

fn lines(text: &[u8], newline: Option<Newline>) -> Result<Vec<Vec<u8>>, String> {
    let mut reader = reader(text, newline);
    let mut lines = Vec::new();
    while let Some(line) = reader.next_line()? {
        lines.push(match line {
            Line::Whole(line) => line.to_vec(),
            Line::Long(mut line) => {
                let (mut all, mut chunk) = (Vec::new(), Vec::new());
                while line.next_chunk(&mut chunk)? {
                    assert!(chunk.len() <= WHOLE_LINE_BYTES + 1);
                    all.extend_from_slice(&chunk);
                }
                all
            }
        });
    }
    assert_eq!(reader.position(), u64::try_from(text.len()).unwrap());
    Ok(lines)
}

#[test]
fn only_the_line_ending_is_stripped() {
    for newline in [None, Some(Newline::Lf), Some(Newline::Crlf)] {
        assert_eq!(lines(b"", newline).unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(lines(b"a\rc\n\n b", newline).unwrap(), [&b"a\rc"[..], b"", b" b"]);
        assert_eq!(lines(b"a\n", newline).unwrap(), [b"a"]);
    }
    assert_eq!(lines(b"a\r\nb\nc\r", Some(Newline::Lf)).unwrap(), [&b"a\r"[..], b"b", b"c\r"]);
    assert_eq!(lines(b"a\r\nb\nc\r", Some(Newline::Crlf)).unwrap(), [&b"a"[..], b"b", b"c"]);
}

#[test]
fn other_line_endings_and_encodings_need_an_explicit_choice() {
    let refused = |text: &[u8]| lines(text, None).unwrap_err();
    assert!(refused(b"a\r\nb\n").contains("--newline crlf"));
    assert!(refused(b"a\nb\r").contains("--newline crlf"));
    assert!(refused(b"a\rb\rc").contains("no line feed"));
    assert!(refused(b"\xef\xbb\xbfa\n").contains("byte order mark"));
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let swapped: Vec<u8> = "one\ntwo\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    for text in [utf16("\u{feff}one\n"), utf16("one\r\n"), swapped] {
        assert!(refused(&text).contains("UTF-16"));
        assert!(lines(&text, Some(Newline::Crlf)).unwrap_err().contains("UTF-16"));
        assert!(lines(&text, Some(Newline::Lf)).is_ok());
    }
    assert_eq!(lines(b"\xef\xbb\xbfa\n", Some(Newline::Crlf)).unwrap(), [b"a"]);
    assert_eq!(lines(b"\xef\xbb\xbfa\n", Some(Newline::Lf)).unwrap(), [b"\xef\xbb\xbfa"]);
    // Elsewhere it is an ordinary character.
    assert_eq!(lines(b"a\n\xef\xbb\xbfb\n", None).unwrap()[1], b"\xef\xbb\xbfb");
}

#[test]
fn long_lines_come_in_chunks_with_the_same_endings() {
    for length in
        [WHOLE_LINE_BYTES - 2, WHOLE_LINE_BYTES - 1, WHOLE_LINE_BYTES, WHOLE_LINE_BYTES + 1, 3_000_000]
    {
        // Carriage returns at all possible ends of chunks.
        let long: Vec<u8> =
            (0..length).map(|at| if at % 4099 < 3 || at + 3 > length { b'\r' } else { b'x' }).collect();
        let unix = [&b"first\n"[..], &long, b"\nlast"].concat();
        let expected = [b"first".to_vec(), long.clone(), b"last".to_vec()];
        assert!(lines(&unix, Some(Newline::Lf)).unwrap() == expected);
        assert!(lines(&unix, None).unwrap_err().contains("CRLF"));
        let windows = [&b"first\r\n"[..], &long, b"\r\nlast"].concat();
        assert!(lines(&windows, Some(Newline::Crlf)).unwrap() == expected);
        let marked = [&b"\xef\xbb\xbf"[..], &long, b"\r\n"].concat();
        assert!(lines(&marked, Some(Newline::Crlf)).unwrap() == [long.clone()]);
    }
    let mut reader = reader(&vec![b'k'; WHOLE_LINE_BYTES + 5], None);
    assert!(reader.next_whole_line().unwrap_err().contains("longer than"));
}
