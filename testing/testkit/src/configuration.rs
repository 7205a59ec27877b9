//! The configurations that every test layer runs: each tree with each shape.
//!
//! A new tree or policy is one line in [`trees`]; a new memory size or script kind is one line in [`shapes`].
//!
//! **Invariants**
//! - Names are unique: a name and a seed identify a run for replay.

use testudo::{KeyspaceOptions, Placement, Stage, Tree, TreelineOptions};

use crate::{Profile, engine_store::EngineOpener};

/// Store settings and matching script settings.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// `tree/shape`.
    pub name: String,
    /// Makes the store.
    pub opener: EngineOpener,
    /// Shapes the scripts.
    pub profile: Profile,
}

/// Options that store every value inline.
fn inline() -> KeyspaceOptions {
    KeyspaceOptions::default().placement(Placement::inline())
}

/// Placement that treats nearly every value as medium.
fn medium() -> Placement {
    Placement::by_value_bytes(Some(0), None).unwrap_or_else(|_| Placement::inline())
}

/// Separate placement with thresholds that adapt to scans and merges.
fn moving() -> Placement {
    Placement::separate().with_moving_thresholds(true)
}

/// Every tree under test, small enough that a few records cause splits, joins and deep paths.
pub fn trees() -> Vec<(&'static str, KeyspaceOptions)> {
    let turtle = |leaf_bytes, max_pivots| {
        inline().tree(Tree::turtle().with_run_bytes(leaf_bytes).with_max_pivots(max_pivots))
    };
    let splinter = |leaf_bytes, max_pivots| {
        inline().tree(Tree::splinter().with_run_bytes(leaf_bytes).with_max_pivots(max_pivots))
    };
    let lsbm = |run_bytes, growth_factor, level1_flushes| {
        let retained_percent = 100;
        let tree = Tree::lsbm()
            .with_run_bytes(run_bytes)
            .with_growth_factor(growth_factor)
            .with_level1_flushes(level1_flushes)
            .with_retained_percent(retained_percent);
        inline().tree(tree)
    };
    let leveled = |run_bytes, growth_factor, level1_flushes| {
        inline().tree(
            Tree::leveled()
                .with_run_bytes(run_bytes)
                .with_growth_factor(growth_factor)
                .with_level1_flushes(level1_flushes),
        )
    };
    let treeline = |run_bytes, growth_factor, level1_flushes| {
        Tree::treeline()
            .with_run_bytes(run_bytes)
            .with_growth_factor(growth_factor)
            .with_level1_flushes(level1_flushes)
    };
    let direct = TreelineOptions::new().with_stage(Stage::Sparse);
    vec![
        ("turtle-narrow", turtle(4 << 10, 4)),
        ("turtle-small", turtle(16 << 10, 8)),
        ("turtle", KeyspaceOptions::default()),
        ("splinter-narrow", splinter(4 << 10, 4)),
        ("splinter-small", splinter(16 << 10, 8)),
        ("leveled-narrow", leveled(4 << 10, 2, 1)),
        ("leveled-small", leveled(16 << 10, 4, 2)),
        ("leveled", KeyspaceOptions::default().tree(Tree::leveled())),
        ("lsbm-narrow", lsbm(4 << 10, 2, 1)),
        ("lsbm-small", lsbm(16 << 10, 4, 2)),
        ("treeline-narrow", inline().tree(treeline(16 << 10, 2, 1))),
        ("treeline-small", inline().tree(treeline(96 << 10, 2, 1).with_treeline(direct))),
        ("turtle-separate", turtle(4 << 10, 4).placement(Placement::separate())),
        ("leveled-separate", leveled(4 << 10, 2, 1).placement(Placement::separate())),
        ("leveled-moving", leveled(4 << 10, 2, 1).placement(moving())),
        ("turtle-moving", turtle(4 << 10, 4).placement(moving())),
        ("splinter-medium", splinter(4 << 10, 4).placement(medium())),
        ("leveled-medium", leveled(4 << 10, 2, 1).placement(medium().with_sizes_of_pairs(true))),
        ("leveled-logged", leveled(4 << 10, 2, 1).placement(medium().with_logged_medium(true))),
    ]
}

/// Every memory budget with its matching scripts.
pub fn shapes() -> Vec<(&'static str, u64, Profile)> {
    vec![
        ("plain", 1 << 20, Profile::default()),
        ("tall", 1 << 20, Profile::tall()),
        ("wide", 1 << 20, Profile::wide()),
        ("bulky", 2 << 20, Profile::bulky()),
        ("roomy", 16 << 20, Profile::default()),
        ("alike", 1 << 20, Profile::alike()),
    ]
}

/// Every tree with every shape.
pub fn configurations() -> Vec<Configuration> {
    let of_tree = |(tree, options): (&'static str, KeyspaceOptions)| {
        shapes().into_iter().map(move |(shape, memory_bytes, profile)| Configuration {
            name: format!("{tree}/{shape}"),
            opener: EngineOpener { options, memory_bytes },
            profile,
        })
    };
    trees().into_iter().flat_map(of_tree).collect()
}

/// Every tree with one shape, for the layers that test files.
pub fn crash_configurations() -> Vec<Configuration> {
    let of_tree = |(tree, options)| Configuration {
        name: format!("{tree}/crash"),
        opener: EngineOpener { options, memory_bytes: 1 << 20 },
        profile: Profile::crashing(),
    };
    trees().into_iter().map(of_tree).collect()
}
