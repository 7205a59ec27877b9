//! Output of the tour: sections, aligned measurements, and wrong answers.
//!
//! **Invariants**
//! - Every line is flushed before the next step of work begins.
//! - With `--json`, one document is printed at the end: sections with their measurements as numbers.

use serde_json::{Map, Value, json};

use super::verdict;
use crate::{
    context::Console,
    failure::{Failure, Outcome},
};

const WRONG_SHOWN_MAX: u64 = 10;

/// Collects and prints the results.
pub(super) struct Report<'a> {
    console: &'a mut Console,
    json: bool,
    sections: Map<String, Value>,
    section: String,
    wrong: u64,
}

impl<'a> Report<'a> {
    pub(super) fn new(console: &'a mut Console, json: bool) -> Self {
        Self { console, json, sections: Map::new(), section: "demo".to_owned(), wrong: 0 }
    }

    /// Begins a section; `name` is its key in the JSON document.
    pub(super) fn section(&mut self, name: &str, title: &str) -> Result<(), Failure> {
        name.clone_into(&mut self.section);
        self.print(&format!("\n{title}"))?;
        self.print(&"-".repeat(title.chars().count()))
    }

    /// Prints a line of explanation.
    pub(super) fn note(&mut self, text: &str) -> Result<(), Failure> {
        self.print(text)
    }

    /// Records a measurement: its human-readable name and text, and its key and number in the JSON document.
    pub(super) fn measurement(
        &mut self,
        label: &str,
        text: &str,
        key: &str,
        value: impl Into<Value>,
    ) -> Result<(), Failure> {
        let section = self.sections.entry(self.section.clone()).or_insert_with(|| json!({}));
        if let Value::Object(section) = section {
            section.insert(key.to_owned(), value.into());
        }
        self.print(&format!("  {label:<34} {text}"))
    }

    /// Records a wrong answer unless `right`.
    pub(super) fn check(&mut self, right: bool, what: &str) -> Result<(), Failure> {
        if right {
            return Ok(());
        }
        self.wrong += 1;
        match self.wrong {
            ..=WRONG_SHOWN_MAX => self.print(&format!("  WRONG: {what}")),
            _ => Ok(()),
        }
    }

    /// Number of wrong answers so far.
    pub(super) fn wrong(&self) -> u64 {
        self.wrong
    }

    /// Ends the report; with `--json`, prints the document.
    pub(super) fn finish(&mut self) -> Outcome {
        if self.json {
            let mut document = std::mem::take(&mut self.sections);
            document.insert("wrong_answers".to_owned(), json!(self.wrong));
            self.console.json(&document)?;
        }
        Ok(verdict(self.wrong))
    }

    fn print(&mut self, line: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        self.console.line(format_args!("{line}"))?;
        self.console.flush()
    }
}
