//! Scripts as text: one op per line, `#` starts a comment. Copying the text of a failing run makes a fixture.
//!
//! ```text
//! create 0
//! insert 0 user/1 7:100
//! batch synced 0/a=1:10 1/b=- 0/c=2:5000
//! scan 0 seek:user/2 [a..user/9) 20
//! scan 0 moves:2,-1,=user/2,3 all 20
//! crash 50 mix 99 nested 3 12
//! ```
//!
//! **Invariants**
//! - `parse(print(script)) == script`.

use std::{fmt, ops::Bound, str::FromStr};

use testudo_env::{CrashPolicy, TornMode};

use crate::{
    Value,
    op::{Change, Crash, Move, Op, Scan, Span, Walk, Write},
};

/// A list of ops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script(pub Vec<Op>);

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|op| writeln!(f, "{op}"))
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut ops = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                ops.push(line.parse().map_err(|error| format!("line {}: {error}", number + 1))?);
            }
        }
        Ok(Self(ops))
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { keyspace } => write!(f, "create {keyspace}"),
            Self::Drop { keyspace } => write!(f, "drop {keyspace}"),
            Self::SetTree { keyspace, choice } => write!(f, "set_tree {keyspace} {choice}"),
            Self::Insert { keyspace, key, value } => write!(f, "insert {keyspace} {key} {value}"),
            Self::Remove { keyspace, key } => write!(f, "remove {keyspace} {key}"),
            Self::Merge { keyspace, key, operand } => write!(f, "merge {keyspace} {key} {operand}"),
            Self::Batch { writes, synced } => {
                write!(f, "batch {}", if *synced { "synced" } else { "buffered" })?;
                writes.iter().try_for_each(|write| write!(f, " {write}"))
            }
            Self::Get { keyspace, key } => write!(f, "get {keyspace} {key}"),
            Self::MultiGet { keyspace, keys } => {
                write!(f, "multi_get {keyspace}")?;
                keys.iter().try_for_each(|key| write!(f, " {key}"))
            }
            Self::Scan { keyspace, scan } => write!(f, "scan {keyspace} {scan}"),
            Self::Update { keyspace, key, change } => write!(f, "update {keyspace} {key} {change}"),
            Self::Swap { keyspace, key, right, value } => {
                let right = if *right { "right" } else { "wrong" };
                write!(f, "swap {keyspace} {key} {right} {}", OrDash(value))
            }
            Self::Snapshot { slot } => write!(f, "snapshot {slot}"),
            Self::SnapshotGet { slot, keyspace, key } => write!(f, "snapshot_get {slot} {keyspace} {key}"),
            Self::SnapshotScan { slot, keyspace, scan } => {
                write!(f, "snapshot_scan {slot} {keyspace} {scan}")
            }
            Self::SnapshotCheck { slot } => write!(f, "snapshot_check {slot}"),
            Self::SnapshotDrop { slot } => write!(f, "snapshot_drop {slot}"),
            Self::Persist => f.write_str("persist"),
            Self::Flush => f.write_str("flush"),
            Self::CompactRange { keyspace, span } => write!(f, "compact_range {keyspace} {span}"),
            Self::Step { count } => write!(f, "step {count}"),
            Self::Reopen => f.write_str("reopen"),
            Self::Kill => f.write_str("kill"),
            Self::Crash(crash) => write!(f, "crash {crash}"),
            Self::Arm { after, crash } => write!(f, "arm {after} {crash}"),
            Self::Verify => f.write_str("verify"),
        }
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = Words(line.split_ascii_whitespace());
        let op = match words.next("an op")? {
            "create" => Self::Create { keyspace: words.parse("a keyspace")? },
            "drop" => Self::Drop { keyspace: words.parse("a keyspace")? },
            "set_tree" => {
                Self::SetTree { keyspace: words.parse("a keyspace")?, choice: words.parse("a choice")? }
            }
            "insert" => Self::Insert {
                keyspace: words.parse("a keyspace")?,
                key: words.parse("a key")?,
                value: words.parse("a value")?,
            },
            "remove" => Self::Remove { keyspace: words.parse("a keyspace")?, key: words.parse("a key")? },
            "merge" => Self::Merge {
                keyspace: words.parse("a keyspace")?,
                key: words.parse("a key")?,
                operand: words.parse("an operand")?,
            },
            "batch" => {
                let synced = words.choice("buffered", "synced")?;
                Self::Batch { synced, writes: words.rest()? }
            }
            "get" => Self::Get { keyspace: words.parse("a keyspace")?, key: words.parse("a key")? },
            "multi_get" => Self::MultiGet { keyspace: words.parse("a keyspace")?, keys: words.rest()? },
            "scan" => Self::Scan { keyspace: words.parse("a keyspace")?, scan: words.scan()? },
            "update" => Self::Update {
                keyspace: words.parse("a keyspace")?,
                key: words.parse("a key")?,
                change: words.parse("a change")?,
            },
            "swap" => Self::Swap {
                keyspace: words.parse("a keyspace")?,
                key: words.parse("a key")?,
                right: words.choice("wrong", "right")?,
                value: parse_or_dash(words.next("a value")?)?,
            },
            word if word.starts_with("snapshot") => words.snapshot_op(word)?,
            "persist" => Self::Persist,
            "flush" => Self::Flush,
            "compact_range" => Self::CompactRange {
                keyspace: words.parse("a keyspace")?,
                span: words.next("a span")?.parse()?,
            },
            "step" => Self::Step { count: words.parse("a count")? },
            "reopen" => Self::Reopen,
            "kill" => Self::Kill,
            "crash" => Self::Crash(words.crash()?),
            "arm" => Self::Arm { after: words.parse("a count")?, crash: words.crash()? },
            "verify" => Self::Verify,
            other => return Err(format!("{other:?} is not an op")),
        };
        match words.0.next() {
            None => Ok(op),
            Some(word) => Err(format!("{word:?} is one word too many")),
        }
    }
}

/// Unread words of a line.
struct Words<'a>(std::str::SplitAsciiWhitespace<'a>);

impl<'a> Words<'a> {
    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn parse<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.next(what)?;
        word.parse().map_err(|_| format!("{word:?} is not {what}"))
    }

    /// Reads one of two words: false for the first, true for the second.
    fn choice(&mut self, no: &str, yes: &str) -> Result<bool, String> {
        match self.next(yes)? {
            word if word == no => Ok(false),
            word if word == yes => Ok(true),
            word => Err(format!("{word:?} is neither {no} nor {yes}")),
        }
    }

    fn rest<T: FromStr<Err = String>>(&mut self) -> Result<Vec<T>, String> {
        self.0.by_ref().map(str::parse).collect()
    }

    fn snapshot_op(&mut self, name: &str) -> Result<Op, String> {
        Ok(match name {
            "snapshot" => Op::Snapshot { slot: self.parse("a slot")? },
            "snapshot_get" => Op::SnapshotGet {
                slot: self.parse("a slot")?,
                keyspace: self.parse("a keyspace")?,
                key: self.parse("a key")?,
            },
            "snapshot_scan" => Op::SnapshotScan {
                slot: self.parse("a slot")?,
                keyspace: self.parse("a keyspace")?,
                scan: self.scan()?,
            },
            "snapshot_check" => Op::SnapshotCheck { slot: self.parse("a slot")? },
            "snapshot_drop" => Op::SnapshotDrop { slot: self.parse("a slot")? },
            other => return Err(format!("{other:?} is not an op")),
        })
    }

    fn scan(&mut self) -> Result<Scan, String> {
        let walk = match self.next("a walk")? {
            "forward" => Walk::Forward,
            "backward" => Walk::Backward,
            "zigzag" => Walk::Zigzag,
            word => match (word.strip_prefix("seek:"), word.strip_prefix("moves:")) {
                (Some(key), _) => Walk::Seek(key.parse()?),
                (_, Some(moves)) => Walk::Moves(moves.split(',').map(str::parse).collect::<Result<_, _>>()?),
                _ => return Err(format!("{word:?} is not a walk")),
            },
        };
        Ok(Scan { walk, span: self.next("a span")?.parse()?, limit: self.parse("a limit")? })
    }

    fn crash(&mut self) -> Result<Crash, String> {
        let keep_percent = self.parse("a percentage")?;
        let torn = match self.next("a torn mode")? {
            "keep" => TornMode::Keep,
            "zero" => TornMode::Zero,
            "garbage" => TornMode::Garbage,
            "mix" => TornMode::Mix,
            word => return Err(format!("{word:?} is not a torn mode")),
        };
        let seed = self.parse("a seed")?;
        let mut nested = Vec::new();
        if let Some(word) = self.0.next() {
            if word != "nested" {
                return Err(format!("{word:?} is one word too many"));
            }
            let counts: Result<_, _> = self.0.by_ref().map(str::parse).collect();
            nested = counts.map_err(|_| "nested counts must be numbers")?;
        }
        Ok(Crash { policy: CrashPolicy { keep_percent, torn }, seed, nested })
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let torn = match self.policy.torn {
            TornMode::Keep => "keep",
            TornMode::Zero => "zero",
            TornMode::Garbage => "garbage",
            TornMode::Mix => "mix",
        };
        write!(f, "{} {torn} {}", self.policy.keep_percent, self.seed)?;
        if !self.nested.is_empty() {
            f.write_str(" nested")?;
        }
        self.nested.iter().try_for_each(|count| write!(f, " {count}"))
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}={}", self.keyspace, self.key, OrDash(&self.value))
    }
}

impl FromStr for Write {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once('/').and_then(|(slot, rest)| Some((slot.parse().ok()?, rest.rsplit_once('=')?)));
        let (keyspace, (key, value)) =
            parts.ok_or_else(|| format!("{text:?} is not a write such as 0/a=7:10"))?;
        Ok(Self { keyspace, key: key.parse()?, value: parse_or_dash(value)? })
    }
}

/// A value, or `-` for none.
struct OrDash<'a>(&'a Option<Value>);

impl fmt::Display for OrDash<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "{value}"),
            None => f.write_str("-"),
        }
    }
}

fn parse_or_dash(text: &str) -> Result<Option<Value>, String> {
    if text == "-" { Ok(None) } else { text.parse().map(Some) }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(value) => write!(f, "set:{value}"),
            Self::Follow(value) => write!(f, "follow:{value}"),
            Self::Remove => f.write_str("remove"),
        }
    }
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("set", value)) => Ok(Self::Set(value.parse()?)),
            Some(("follow", value)) => Ok(Self::Follow(value.parse()?)),
            None if text == "remove" => Ok(Self::Remove),
            _ => Err(format!("{text:?} is not a change")),
        }
    }
}

impl fmt::Display for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.walk {
            Walk::Forward => f.write_str("forward")?,
            Walk::Backward => f.write_str("backward")?,
            Walk::Zigzag => f.write_str("zigzag")?,
            Walk::Seek(key) => write!(f, "seek:{key}")?,
            Walk::Moves(moves) => {
                f.write_str("moves:")?;
                for (index, step) in moves.iter().enumerate() {
                    write!(f, "{}{step}", if index > 0 { "," } else { "" })?;
                }
            }
        }
        write!(f, " {} {}", self.span, self.limit)
    }
}

/// A count of moves from the front, `-` and a count of moves from the back, or `=` and the key of a seek.
impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Front(count) => write!(f, "{count}"),
            Self::Back(count) => write!(f, "-{count}"),
            Self::Seek(key) => write!(f, "={key}"),
        }
    }
}

impl FromStr for Move {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count =
            |text: &str| text.parse().map_err(|_| format!("{text:?} is not a move such as 3, -3 or =a"));
        match (text.strip_prefix('='), text.strip_prefix('-')) {
            (Some(key), _) => Ok(Self::Seek(key.parse()?)),
            (_, Some(back)) => count(back).map(Self::Back),
            _ => count(text).map(Self::Front),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Prefix(key) => write!(f, "prefix:{key}"),
            Self::Range(lower, upper) => {
                match lower {
                    Bound::Included(key) => write!(f, "[{key}..")?,
                    Bound::Excluded(key) => write!(f, "({key}..")?,
                    Bound::Unbounded => f.write_str("*..")?,
                }
                match upper {
                    Bound::Included(key) => write!(f, "{key}]"),
                    Bound::Excluded(key) => write!(f, "{key})"),
                    Bound::Unbounded => f.write_str("*"),
                }
            }
        }
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        if let Some(key) = text.strip_prefix("prefix:") {
            return Ok(Self::Prefix(key.parse()?));
        }
        let wrong = || format!("{text:?} is not a span such as all, prefix:a, [a..b) or *..b]");
        let (lower, upper) = text.split_once("..").ok_or_else(wrong)?;
        let lower = match lower.split_at_checked(1).ok_or_else(wrong)? {
            ("[", key) => Bound::Included(key.parse()?),
            ("(", key) => Bound::Excluded(key.parse()?),
            ("*", "") => Bound::Unbounded,
            _ => return Err(wrong()),
        };
        let upper = match (upper.strip_suffix(']'), upper.strip_suffix(')')) {
            (Some(key), _) => Bound::Included(key.parse()?),
            (_, Some(key)) => Bound::Excluded(key.parse()?),
            _ if upper == "*" => Bound::Unbounded,
            _ => return Err(wrong()),
        };
        Ok(Self::Range(lower, upper))
    }
}

#[cfg(test)]
mod tests;
