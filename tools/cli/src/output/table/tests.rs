use super::{Align, lay_out};

#[test]
fn columns_align_without_trailing_blanks() {
    let rows = [vec!["a".to_owned(), "7".to_owned()], vec!["grün".to_owned(), "1,000".to_owned()]];
    let lines = lay_out(&[("name", Align::Left), ("n", Align::Right)], &rows);
    assert_eq!(lines, ["name      n", "a         7", "grün  1,000"]);
    let lines =
        lay_out(&[("n", Align::Right), ("name", Align::Left)], &[vec!["7".to_owned(), "a".to_owned()]]);
    assert_eq!(lines, ["n  name", "7  a"]);
}
