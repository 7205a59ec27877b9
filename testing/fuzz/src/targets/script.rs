//! Any bytes as operations of a script, run against the store and the model.
//!
//! **Invariants**
//! - Any bytes are a script; the runner's rules hold for it, crashes included.

use testudo::{KeyspaceOptions, Tree};
use testudo_env::CrashPolicy;
use testudo_testkit::{
    Key, Runner, Script, Value,
    engine_store::EngineOpener,
    op::{Change, Crash, Move, Op, Scan, Slot, Span, Walk, Write},
};

use crate::{base_store::MEMORY_BYTES, input::Input};

/// Maximum operations of one script.
const OPS_MAX: usize = 200;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let narrow = Tree::turtle().with_run_bytes(4 << 10).with_max_pivots(4);
    let leveled = Tree::leveled().with_run_bytes(4 << 10).with_growth_factor(2).with_level1_flushes(1);
    let treeline = Tree::treeline().with_run_bytes(16 << 10).with_growth_factor(2).with_level1_flushes(1);
    let tree = [Tree::default(), narrow, leveled, treeline][usize::from(input.u8()) % 4];
    let opener = EngineOpener { options: KeyspaceOptions::default().tree(tree), memory_bytes: MEMORY_BYTES };
    let mut script = Script(vec![Op::Create { keyspace: 0 }, Op::Create { keyspace: 1 }]);
    while !input.is_empty() && script.0.len() < OPS_MAX {
        script.0.push(op(&mut input));
    }
    if let Err(failure) = Runner::new(&opener, 1).run(&script) {
        panic!("{failure}\n{script}");
    }
}

fn slot(input: &mut Input<'_>) -> Slot {
    input.u8() % 3
}

fn key(input: &mut Input<'_>) -> Key {
    match input.u8() {
        0 => Key::default(),
        number @ 1..=200 => Key::of(format!("key/{}", number % 64)),
        201..=230 => Key {
            tail: vec![input.u8()],
            ..Key::padded([input.u8(), input.u8()], u32::from(input.u16() % 700))
        },
        _ => {
            let length = usize::from(input.u8() % 16);
            Key::of(input.take(length))
        }
    }
}

fn value(input: &mut Input<'_>) -> Value {
    let length = match input.u8() {
        small @ 0..=180 => u32::from(small),
        181..=240 => u32::from(input.u16() % 5000),
        _ => u32::from(input.u16()),
    };
    Value { seed: input.u8().into(), length }
}

fn optional_value(input: &mut Input<'_>) -> Option<Value> {
    (!input.u8().is_multiple_of(3)).then(|| value(input))
}

fn scan(input: &mut Input<'_>) -> Scan {
    use std::ops::Bound;
    let span = match input.u8() % 3 {
        0 => Span::All,
        1 => Span::Prefix(key(input)),
        _ => Span::Range(Bound::Included(key(input)), Bound::Excluded(key(input))),
    };
    let walk = match input.u8() % 5 {
        0 => Walk::Forward,
        1 => Walk::Backward,
        2 => Walk::Zigzag,
        3 => Walk::Seek(key(input)),
        _ => Walk::Moves((0..1 + input.u8() % 8).map(|_| scan_move(input)).collect()),
    };
    Scan { span, walk, limit: input.u8().into() }
}

fn scan_move(input: &mut Input<'_>) -> Move {
    match input.u8() % 3 {
        0 => Move::Front((input.u8() % 6).into()),
        1 => Move::Back((input.u8() % 6).into()),
        _ => Move::Seek(key(input)),
    }
}

fn crash(input: &mut Input<'_>) -> Crash {
    let policy = CrashPolicy::random(input.u8().into());
    let nested = if input.u8().is_multiple_of(3) { vec![u64::from(input.u8() % 40)] } else { Vec::new() };
    Crash { policy, seed: input.u8().into(), nested }
}

fn write(input: &mut Input<'_>) -> Write {
    Write { keyspace: slot(input), key: key(input), value: optional_value(input) }
}

fn op(input: &mut Input<'_>) -> Op {
    match input.u8() % 40 {
        0..=1 => Op::Merge { keyspace: slot(input), key: key(input), operand: value(input) },
        2..=8 => Op::Insert { keyspace: slot(input), key: key(input), value: value(input) },
        9..=11 => Op::Remove { keyspace: slot(input), key: key(input) },
        12..=14 => {
            let count = 1 + input.u8() % 8;
            let synced = input.u8().is_multiple_of(4);
            Op::Batch { writes: (0..count).map(|_| write(input)).collect(), synced }
        }
        15..=17 => Op::Get { keyspace: slot(input), key: key(input) },
        18 => Op::MultiGet { keyspace: slot(input), keys: (0..4).map(|_| key(input)).collect() },
        19..=20 => Op::Scan { keyspace: slot(input), scan: scan(input) },
        21 => Op::Update { keyspace: slot(input), key: key(input), change: Change::Follow(value(input)) },
        22 => Op::Swap {
            keyspace: slot(input),
            key: key(input),
            right: input.u8().is_multiple_of(2),
            value: optional_value(input),
        },
        23 => Op::Snapshot { slot: input.u8() % 2 },
        24 => Op::SnapshotGet { slot: input.u8() % 2, keyspace: slot(input), key: key(input) },
        25 => Op::SnapshotScan { slot: input.u8() % 2, keyspace: slot(input), scan: scan(input) },
        26 => Op::SnapshotCheck { slot: input.u8() % 2 },
        27 => Op::SnapshotDrop { slot: input.u8() % 2 },
        28 => Op::Persist,
        29..=31 => Op::Flush,
        32..=33 => Op::Step { count: (input.u8() % 8).into() },
        34 => Op::Reopen,
        35 => Op::Kill,
        36 => Op::Crash(crash(input)),
        37 => Op::Arm { after: (input.u8() % 60).into(), crash: crash(input) },
        38 => Op::Create { keyspace: slot(input) },
        _ if input.u8().is_multiple_of(4) => Op::Drop { keyspace: slot(input) },
        _ => Op::Verify,
    }
}
