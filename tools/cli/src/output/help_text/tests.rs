use super::{columns_of, wrap};

#[test]
fn long_lines_wrap_at_the_indentation_of_their_text() {
    let text = "  -a, --all <N>  one two three four five six seven eight nine ten eleven twelve thirteen\n\
                \x20     word word word word word word word word word word word word word word word word\n\
                short\n";
    let wrapped = wrap(text);
    assert_eq!(
        wrapped,
        "  -a, --all <N>  one two three four five six seven eight nine ten eleven twelve\n\
         \x20                thirteen\n\
         \x20     word word word word word word word word word word word word word word word\n\
         \x20     word\n\
         short\n"
    );
    // A word longer than a line is not split.
    let word = "x".repeat(100);
    assert_eq!(wrap(&word), word);
}

#[test]
fn color_escapes_have_no_width() {
    let colored = format!("\u{1b}[1m{}\u{1b}[0m", "x".repeat(80));
    assert_eq!((columns_of(&colored), wrap(&colored)), (80, colored.clone()));
}
