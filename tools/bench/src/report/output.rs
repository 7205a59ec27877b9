//! Output of results: one line of JSON each, and a human-readable table at the end.
//!
//! **Invariants**
//! - A line of JSON is written as soon as its result is complete, so an interrupted run keeps earlier ones.
//! - With `--json -` standard output carries only JSON; the table goes to standard error.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use serde::Serialize;
use testudo::{Error, Result};

/// The two sinks of a run.
pub struct Output {
    json: Option<Box<dyn Write>>,
    json_name: String,
    table_to_stderr: bool,
}

impl Output {
    /// Creates the sinks; JSON goes to `json`, if given; `-` is standard output.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn new(json: Option<&Path>) -> Result<Self> {
        let to_stdout = json == Some(Path::new("-"));
        let sink: Option<Box<dyn Write>> = match json {
            None => None,
            Some(_) if to_stdout => Some(Box::new(io::stdout())),
            Some(path) => Some(Box::new(create_file(path)?)),
        };
        let json_name = json.map(|path| format!("--json {}", path.display())).unwrap_or_default();
        Ok(Self { json: sink, json_name, table_to_stderr: to_stdout })
    }

    /// Writes one result.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn result(&mut self, result: &impl Serialize) -> Result<()> {
        let Some(sink) = &mut self.json else { return Ok(()) };
        let mut line = serde_json::to_vec(result)
            .map_err(|error| Error::invalid(format!("a result that is not JSON: {error}")))?;
        line.push(b'\n');
        sink.write_all(&line)
            .and_then(|()| sink.flush())
            .map_err(|error| Error::io(self.json_name.as_str(), error))
    }

    /// Writes a table whose first row is the header. Columns are as wide as their widest cell; all but the
    /// first are right-aligned.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn table(&self, rows: &[Vec<String>]) -> Result<()> {
        self.text(&layout(rows))
    }

    /// Writes human-readable text.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn text(&self, text: &str) -> Result<()> {
        let result = if self.table_to_stderr {
            io::stderr().write_all(text.as_bytes())
        } else {
            io::stdout().write_all(text.as_bytes())
        };
        result.map_err(|error| Error::io("standard output", error))
    }
}

/// Creates or truncates a results file that the user named.
pub(crate) fn create_file(path: &Path) -> Result<File> {
    #[expect(clippy::disallowed_methods, reason = "results are the user's files, not the store's")]
    File::create(path).map_err(|error| Error::io(path.display().to_string(), error))
}

fn layout(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width_of =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width_of(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(
                |(column, (cell, width))| {
                    if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                },
            )
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
