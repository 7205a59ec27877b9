use super::{Literals, code_of};

fn code(text: &str) -> String {
    code_of(text, Literals::Blank).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn comments_are_stripped_and_line_numbers_stay() {
    let text = "a // one\n/* two\n/* nested */ still */ b\n//! doc\nc";
    let without = code_of(text, Literals::Blank);
    assert_eq!(without.lines().count(), 5);
    assert_eq!(code(text), "a b c");
}

#[test]
fn literals_are_blanked_or_kept() {
    assert_eq!(code(r##"x("a\"b", r#"c"d"#, b"e", 'f', '\'', b'"') y"##), "x( , , b , , , b ) y");
    assert_eq!(code_of("\"// no comment\"", Literals::Keep), "\"// no comment\"");
}

#[test]
fn lifetimes_are_code() {
    assert_eq!(code("fn f<'a>(x: &'a str) // x"), "fn f<'a>(x: &'a str)");
    assert_eq!(code("for<'a> 'outer: loop"), "for<'a> 'outer: loop");
}

#[test]
fn unterminated_literals_and_comments_end_with_the_text() {
    for text in ["\"open", "/* open", "r#\"open", "'\\"] {
        code_of(text, Literals::Blank);
    }
}
