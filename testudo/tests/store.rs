//! A store as its users see it. One program, so that it is linked once and the tests run in parallel; tests
//! that need their own process have a file next to this one.

#[path = "store/catching_up.rs"]
mod catching_up;
#[path = "store/closing.rs"]
mod closing;
#[path = "store/compact_range.rs"]
mod compact_range;
#[path = "store/damage_is_located.rs"]
mod damage_is_located;
#[path = "store/drops.rs"]
mod drops;
#[path = "store/durability.rs"]
mod durability;
#[path = "store/ends.rs"]
mod ends;
#[path = "store/even_rounds.rs"]
mod even_rounds;
#[path = "store/files_beside_a_store.rs"]
mod files_beside_a_store;
#[path = "store/forked.rs"]
mod forked;
#[path = "store/full_device.rs"]
mod full_device;
#[path = "store/holders.rs"]
mod holders;
#[path = "store/long_merges.rs"]
mod long_merges;
#[path = "store/long_values.rs"]
mod long_values;
#[path = "store/memory.rs"]
mod memory;
#[path = "store/merge.rs"]
mod merge;
#[path = "store/moving.rs"]
mod moving;
#[path = "store/moving_values.rs"]
mod moving_values;
#[path = "store/newer_families.rs"]
mod newer_families;
#[path = "store/parents.rs"]
mod parents;
#[path = "store/pieces_salvage.rs"]
mod pieces_salvage;
#[path = "store/placement.rs"]
mod placement;
#[path = "store/public_names.rs"]
mod public_names;
#[path = "store/queues.rs"]
mod queues;
#[path = "store/refused_entries.rs"]
mod refused_entries;
#[path = "store/removals_make_room.rs"]
mod removals_make_room;
#[path = "store/resting.rs"]
mod resting;
#[path = "store/rounds_of_many.rs"]
mod rounds_of_many;
#[path = "store/scan_reads.rs"]
mod scan_reads;
#[path = "store/seek.rs"]
mod seek;
#[path = "store/separated_scans.rs"]
mod separated_scans;
#[path = "store/set_tree.rs"]
mod set_tree;
#[path = "store/shortages.rs"]
mod shortages;
#[path = "store/small_on_disk.rs"]
mod small_on_disk;
#[path = "store/smoke.rs"]
mod smoke;
#[path = "store/stale_blocks.rs"]
mod stale_blocks;
#[path = "store/treeline.rs"]
mod treeline;
#[path = "store/update_closure.rs"]
mod update_closure;
#[path = "store/value_log_salvage.rs"]
mod value_log_salvage;
#[path = "store/value_logs.rs"]
mod value_logs;
#[path = "store/values_in_pieces.rs"]
mod values_in_pieces;
#[path = "store/without_lock_file.rs"]
mod without_lock_file;
