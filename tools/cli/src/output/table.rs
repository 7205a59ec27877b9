//! Human-readable columns: texts to the left, numbers to the right, two spaces between.
//!
//! **Invariants**
//! - No line ends in blanks.

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Texts.
    Left,
    /// Numbers.
    Right,
}

/// The lines of a table with one header row.
pub(crate) fn lay_out(columns: &[(&str, Align)], rows: &[Vec<String>]) -> Vec<String> {
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([columns[at].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let header: Vec<String> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    std::iter::once(&header).chain(rows).map(|row| lay_out_row(columns, &widths, row)).collect()
}

fn lay_out_row(columns: &[(&str, Align)], widths: &[usize], row: &[String]) -> String {
    let mut line = String::new();
    for (at, cell) in row.iter().enumerate() {
        if at > 0 {
            line.push_str("  ");
        }
        match columns[at].1 {
            Align::Left => line.push_str(&format!("{cell:<width$}", width = widths[at])),
            Align::Right => line.push_str(&format!("{cell:>width$}", width = widths[at])),
        }
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests;
