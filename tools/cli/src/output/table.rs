//! Human-readable tables: text left-aligned, numbers right-aligned, two spaces between columns.
//!
//! **Invariants**
//! - No line ends in blanks.

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// Formats a table with one header row as lines.
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
