//! The faults that a simulation plants, and the phases of the engine in which they strike.
//!
//! **Invariants**
//! - A fault is plain data; its countdown alone determines the call that it strikes.

use std::path::Path;

use testudo_env::{IoClass, SplitMix};
use testudo_testkit::op::Op;

/// Current activity of the engine, as the caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    Open,
    Write,
    Read,
    Flush,
    Step,
    Close,
}

impl Activity {
    /// Activity that an op causes in the engine.
    pub(super) fn of(op: &Op) -> Self {
        match op {
            Op::Get { .. }
            | Op::MultiGet { .. }
            | Op::Scan { .. }
            | Op::SnapshotGet { .. }
            | Op::SnapshotScan { .. }
            | Op::SnapshotCheck { .. }
            | Op::Verify => Self::Read,
            Op::Flush => Self::Flush,
            Op::Step { .. } | Op::CompactRange { .. } => Self::Step,
            Op::Reopen => Self::Close,
            _ => Self::Write,
        }
    }
}

/// Part of the engine that makes a call.
pub(super) fn phase(activity: Activity, class: IoClass, path: &Path, has_store: bool) -> &'static str {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let creates = matches!(class, IoClass::Create | IoClass::Rename | IoClass::Remove | IoClass::SyncDir);
    match activity {
        Activity::Open if !has_store => "creation",
        Activity::Open => "recovery",
        Activity::Close => "close",
        Activity::Read => "read",
        _ if name.starts_with("wal") && creates => "log segment",
        _ if name.starts_with("wal") => "log write",
        _ if name.starts_with("manifest") && !creates => "manifest edit",
        _ if name.starts_with("manifest") || name == "superblock" || creates => "rotation",
        Activity::Step => "background step",
        _ => "flush",
    }
}

/// A fault of one call, or of all calls from one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// EIO.
    Device(IoClass),
    /// EIO after half of a write.
    HalfWrite,
    /// A sync fails and the kernel counts the lost pages as clean; `evicted`: reads return the old ones too.
    LostSync { evicted: bool },
    /// ENOSPC of one call.
    NoSpace(IoClass),
    /// EMFILE.
    NoDescriptor,
    /// A write is acknowledged and dropped.
    LostWrite,
    /// A write is acknowledged and lands on another page of the file.
    Misdirected,
}

impl Fault {
    /// Draws an error that the device reports.
    pub(super) fn told(random: &mut SplitMix) -> Self {
        const CLASSES: [IoClass; 8] = [
            IoClass::Write,
            IoClass::Sync,
            IoClass::SyncDir,
            IoClass::Open,
            IoClass::Create,
            IoClass::Remove,
            IoClass::SetLen,
            IoClass::Allocate,
        ];
        let class = CLASSES[testudo_base::num::usize_of(random.below(8))];
        match random.below(12) {
            0..=3 => Self::Device(class),
            10 | 11 => Self::Device(IoClass::Read),
            4 => Self::HalfWrite,
            5 => Self::LostSync { evicted: false },
            6 => Self::LostSync { evicted: true },
            7 => Self::NoSpace(IoClass::Write),
            8 => Self::NoSpace(IoClass::Allocate),
            _ => Self::NoDescriptor,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Device(IoClass::Read) => "EIO of a read",
            Self::Device(IoClass::Write) => "EIO of a write",
            Self::Device(_) => "EIO of another call",
            Self::HalfWrite => "half a write",
            Self::LostSync { evicted: false } => "failed sync",
            Self::LostSync { evicted: true } => "failed sync, cache dropped",
            Self::NoSpace(_) => "ENOSPC",
            Self::NoDescriptor => "EMFILE",
            Self::LostWrite => "lost write",
            Self::Misdirected => "misdirected write",
        }
    }

    /// Whether it lets a write through in another form.
    pub(super) fn changes_writes(self) -> bool {
        matches!(self, Self::HalfWrite | Self::LostWrite | Self::Misdirected)
    }

    /// Whether it waits for rare calls that create or remove files.
    pub(super) fn strikes_rare_calls(self) -> bool {
        matches!(self, Self::Device(IoClass::Create | IoClass::Remove | IoClass::SetLen))
    }

    /// Whether a call of this class can be struck.
    fn fits(self, class: IoClass) -> bool {
        match self {
            Self::Device(wanted) | Self::NoSpace(wanted) => wanted == class,
            Self::HalfWrite | Self::LostWrite | Self::Misdirected => class == IoClass::Write,
            Self::LostSync { .. } => class == IoClass::Sync,
            Self::NoDescriptor => matches!(class, IoClass::Open | IoClass::Create),
        }
    }
}

/// Parts of file names: a fault strikes calls on one kind of file, or on all.
const FILES: [&str; 8] = ["", "", "wal", "wal", "data", "data", "manifest", "superblock"];

/// A fault that waits for its call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Armed {
    pub(super) fault: Fault,
    /// Substring of the file's path.
    pub(super) file: &'static str,
    /// Number of matching calls before it.
    pub(super) countdown: u64,
    /// Whether every matching call from then on is struck.
    pub(super) lasting: bool,
}

impl Armed {
    /// Arms the fault for one of the next matching calls, at most `countdown_max` of them.
    pub(super) fn random(fault: Fault, countdown_max: u64, random: &mut SplitMix) -> Self {
        let file = FILES[testudo_base::num::usize_of(random.below(8))];
        let countdown = random.below(match fault {
            _ if fault.strikes_rare_calls() => 2,
            _ if file == "manifest" || file == "superblock" => countdown_max.div_ceil(4),
            _ => countdown_max,
        });
        Self { fault, file, countdown, lasting: false }
    }

    /// Whether the call counts.
    pub(super) fn fits(&self, class: IoClass, path: &Path) -> bool {
        self.fault.fits(class) && path.to_string_lossy().contains(self.file)
    }

    pub(super) fn describe(&self) -> String {
        let Self { fault, file, countdown, lasting } = self;
        let lasting = if *lasting { ", permanently" } else { "" };
        format!("{} after {countdown} calls on files named *{file}*{lasting}", fault.name())
    }
}
