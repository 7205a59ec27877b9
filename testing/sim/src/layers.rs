//! All layers of tests, one file each.
//!
//! **Invariants**
//! - Every layer is in [`LAYERS`], so that the program, CI and the runner of planted bugs know the same ones.

pub mod bounds;
pub mod concurrency;
pub mod corruption;
pub mod crash;
pub mod directories;
pub mod exhaustive;
pub mod files;
pub mod filled;
pub mod full_disk;
pub mod holders;
pub mod hot_set;
pub mod loop_device;
pub mod metamorphic;
pub mod model;
pub mod nth;
pub mod openings;
pub mod queues;
pub mod removals;
pub mod shortages;
pub mod simulate;
pub mod snapshots;
pub mod soak;

use crate::Layer;

/// All layers, in the order in which they are worth running.
pub const LAYERS: &[Layer] = &[
    Layer {
        name: simulate::NAME,
        about: "the whole engine, operations and faults of every kind mixed by the seed",
        unit: Some(simulate::UNIT),
        run: simulate::run,
    },
    Layer {
        name: model::NAME,
        about: "random operations with reopens and crashes give the answers of a map",
        unit: Some(model::UNIT),
        run: model::run,
    },
    Layer {
        name: snapshots::NAME,
        about: "a snapshot shows the same content for all its life",
        unit: Some(snapshots::UNIT),
        run: snapshots::run,
    },
    Layer {
        name: queues::NAME,
        about: "a look at the end of a queue costs the same however much was removed, and is right",
        unit: Some(queues::UNIT),
        run: queues::run,
    },
    Layer {
        name: crash::NAME,
        about: "what power losses leave of random scripts keeps the prefix rule",
        unit: Some(crash::UNIT),
        run: crash::run,
    },
    Layer {
        name: exhaustive::NAME,
        about: "every short script, a power loss at every I/O, and another one at every I/O of the recovery",
        unit: None,
        run: exhaustive::run,
    },
    Layer {
        name: metamorphic::NAME,
        about: "one script, all trees, several ways of running it: equal answers",
        unit: Some(metamorphic::UNIT),
        run: metamorphic::run,
    },
    Layer {
        name: nth::NAME,
        about: "the n-th I/O call fails, for every n, once and for good",
        unit: None,
        run: nth::run,
    },
    Layer {
        name: shortages::NAME,
        about: "a call lacks descriptors, memory or the like for a moment, whichever call it is: the store \
                goes on by itself",
        unit: None,
        run: shortages::run,
    },
    Layer {
        name: full_disk::NAME,
        about: "a disk that fills up loses nothing and is told",
        unit: Some(full_disk::UNIT),
        run: full_disk::run,
    },
    Layer {
        name: removals::NAME,
        about: "removals make room on a full device in the end, whatever happens meanwhile",
        unit: Some(removals::UNIT),
        run: removals::run,
    },
    Layer {
        name: filled::NAME,
        about: "a device that others fill at any moment: every removal is taken",
        unit: Some(filled::UNIT),
        run: filled::run,
    },
    Layer {
        name: loop_device::NAME,
        about: "a real file system that is full (needs root and mkfs.ext4)",
        unit: None,
        run: loop_device::run,
    },
    Layer {
        name: bounds::NAME,
        about: "what is held in memory is bounded by the budget, whatever is asked",
        unit: None,
        run: bounds::run,
    },
    Layer {
        name: holders::NAME,
        about: "snapshots and iterators by the hundred share what they hold, on disk and in memory",
        unit: Some(holders::UNIT),
        run: holders::run,
    },
    Layer {
        name: corruption::NAME,
        about: "damaged files give right answers or an error that names file and offset",
        unit: None,
        run: corruption::run,
    },
    Layer {
        name: directories::NAME,
        about: "directories and locks that are moved, replaced and removed under open stores",
        unit: None,
        run: directories::run,
    },
    Layer {
        name: files::NAME,
        about: "files lost, older, or of another copy of the store, in every combination of two",
        unit: None,
        run: files::run,
    },
    Layer {
        name: openings::NAME,
        about: "files, their length and the calls of an opening stay the same, however often a store is \
                opened",
        unit: Some(openings::UNIT),
        run: openings::run,
    },
    Layer {
        name: hot_set::NAME,
        about: "what was hot comes back right, whatever file says what it was",
        unit: Some(hot_set::UNIT),
        run: hot_set::run,
    },
    Layer {
        name: concurrency::NAME,
        about: "real threads see whole batches, exact counts and what was synced",
        unit: None,
        run: concurrency::run,
    },
    Layer {
        name: soak::NAME,
        about: "a store under faults for long: memory, descriptors and space stay flat",
        unit: Some(soak::UNIT),
        run: soak::run,
    },
];

/// The layer of a name.
pub fn find(name: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.name == name)
}
