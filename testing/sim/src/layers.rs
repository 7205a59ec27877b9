//! All test layers, one file each.
//!
//! **Invariants**
//! - Every layer is in [`LAYERS`], the single list for the program, CI and the runner of planted bugs.

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

/// All layers, in the recommended order of running.
pub const LAYERS: &[Layer] = &[
    Layer {
        name: simulate::NAME,
        about: "the whole engine, with operations and faults of every kind mixed by a seed",
        unit: Some(simulate::UNIT),
        run: simulate::run,
    },
    Layer {
        name: model::NAME,
        about: "random operations with reopens and crashes match a map",
        unit: Some(model::UNIT),
        run: model::run,
    },
    Layer {
        name: snapshots::NAME,
        about: "the content of a snapshot never changes",
        unit: Some(snapshots::UNIT),
        run: snapshots::run,
    },
    Layer {
        name: queues::NAME,
        about: "reads at the ends of a queue are correct, and their cost does not grow with removals",
        unit: Some(queues::UNIT),
        run: queues::run,
    },
    Layer {
        name: crash::NAME,
        about: "random scripts keep the prefix rule across power losses",
        unit: Some(crash::UNIT),
        run: crash::run,
    },
    Layer {
        name: exhaustive::NAME,
        about: "every short script, with a power loss at every I/O, and another one at every I/O of recovery",
        unit: None,
        run: exhaustive::run,
    },
    Layer {
        name: metamorphic::NAME,
        about: "one script, all trees, and several ways of running it give equal answers",
        unit: Some(metamorphic::UNIT),
        run: metamorphic::run,
    },
    Layer {
        name: nth::NAME,
        about: "the n-th I/O call fails, for every n, once and permanently",
        unit: None,
        run: nth::run,
    },
    Layer {
        name: shortages::NAME,
        about: "any call may briefly lack descriptors, memory or another resource: the store resumes by \
                itself",
        unit: None,
        run: shortages::run,
    },
    Layer {
        name: full_disk::NAME,
        about: "a disk that fills up loses nothing and is reported",
        unit: Some(full_disk::UNIT),
        run: full_disk::run,
    },
    Layer {
        name: removals::NAME,
        about: "removals eventually free space on a full device, despite crashes and reopens",
        unit: Some(removals::UNIT),
        run: removals::run,
    },
    Layer {
        name: filled::NAME,
        about: "a device that other programs fill at any moment: every removal is accepted",
        unit: Some(filled::UNIT),
        run: filled::run,
    },
    Layer {
        name: loop_device::NAME,
        about: "a real, full file system (needs root and mkfs.ext4)",
        unit: None,
        run: loop_device::run,
    },
    Layer {
        name: bounds::NAME,
        about: "memory stays within the budget for any request",
        unit: None,
        run: bounds::run,
    },
    Layer {
        name: holders::NAME,
        about: "hundreds of snapshots and iterators share the data they hold, on disk and in memory",
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
        about: "directories and locks are moved, replaced and removed under open stores",
        unit: None,
        run: directories::run,
    },
    Layer {
        name: files::NAME,
        about: "files are lost, older, or from another copy of the store, in every combination of two",
        unit: None,
        run: files::run,
    },
    Layer {
        name: openings::NAME,
        about: "files, their lengths and the calls of an opening do not grow, however often a store is \
                opened",
        unit: Some(openings::UNIT),
        run: openings::run,
    },
    Layer {
        name: hot_set::NAME,
        about: "records and pages restored from any `hot-set` file are correct",
        unit: Some(hot_set::UNIT),
        run: hot_set::run,
    },
    Layer {
        name: concurrency::NAME,
        about: "real threads see whole batches, exact counts and synced writes",
        unit: None,
        run: concurrency::run,
    },
    Layer {
        name: soak::NAME,
        about: "a store under faults for a long time: memory, descriptors and space stay flat",
        unit: Some(soak::UNIT),
        run: soak::run,
    },
];

/// Finds a layer by name.
pub fn find(name: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.name == name)
}
