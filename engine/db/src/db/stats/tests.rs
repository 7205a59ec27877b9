use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

use super::{DbStats, KeyspaceStats, Metric, MetricUnit, MetricValue};

/// The document that lists every published statistic, from the folder of this crate.
const DOCUMENT: &str = "../../docs/guide/statistics.md";
/// If this variable is set, the test writes the document.
const WRITE: &str = "TESTUDO_WRITE_STATISTICS";

/// A deleted or renamed statistic breaks scripts that read it: this list changes only on purpose.
#[test]
fn document_lists_every_published_statistic_once() {
    let (store, keyspace) = (DbStats::default(), KeyspaceStats::default());
    let mut text = "\
# Statistics

Every statistic by the name that `testudo stat` prints, with and without `--json`, and that the status file
of a store contains. In parentheses: its field in the group, which is a field of `DbStats` or
`KeyspaceStats`, and its unit. A test of `engine/db` writes this page from the declarations; it fails if a
name disappears.
"
    .to_owned();
    for (title, metrics) in
        [("Store (`Db::stats`)", store.metrics()), ("Keyspace (`Keyspace::stats`)", keyspace.metrics())]
    {
        let names: BTreeSet<_> = metrics.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), metrics.len(), "a name is published twice");
        write!(text, "\n## {title}\n").unwrap();
        let mut group = "";
        for metric in metrics {
            if metric.group != group {
                group = metric.group;
                write!(text, "\n### {group}\n\n").unwrap();
            }
            text.push_str(&item(&metric));
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, &text).unwrap();
    }
    let document = fs::read_to_string(&path).unwrap();
    let first = text.lines().zip(document.lines()).find(|(new, old)| new != old);
    assert!(text == document, "{DOCUMENT} differs; set {WRITE}=1 to write it. First line: {first:?}");
}

/// A statistic as an item of a Markdown list, in lines of at most 110 characters.
fn item(metric: &Metric<'_>) -> String {
    let unit = format!("{:?}", metric.unit).to_lowercase();
    let whole = format!("- `{}` (`{}`, {unit}):{}", metric.name, metric.field, metric.help);
    let (mut text, mut columns) = (String::new(), 0);
    for word in whole.split(' ') {
        let length = word.chars().count();
        if columns == 0 {
            columns = length;
        } else if columns + 1 + length <= 110 {
            text.push(' ');
            columns += 1 + length;
        } else {
            text.push_str("\n  ");
            columns = 2 + length;
        }
        text.push_str(word);
    }
    text + "\n"
}

#[test]
fn values_match_their_units() {
    let (store, keyspace) = (DbStats::default(), KeyspaceStats::default());
    for metric in store.metrics().into_iter().chain(keyspace.metrics()) {
        let fits = match metric.unit {
            MetricUnit::Flag => matches!(metric.value, MetricValue::Flag(_)),
            MetricUnit::Text => matches!(metric.value, MetricValue::Text(_)),
            _ => matches!(metric.value, MetricValue::Number(_)),
        };
        assert!(fits, "{metric:?}");
        let is_size = metric.unit == MetricUnit::Bytes;
        assert_eq!(metric.name.contains("bytes"), is_size, "{metric:?}");
        assert_eq!(metric.name.ends_with("micros"), metric.unit == MetricUnit::Micros, "{metric:?}");
    }
}
