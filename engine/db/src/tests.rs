//! Tests of the engine through its handles.

mod admission;
mod background_work;
mod flush_sealed;
mod govern;
mod held_buffer;
mod interrupted_creation;
mod jobs;
mod long_merges;
mod metadata;
mod settle;
mod several_jobs;
mod spilled_buffer;
mod stalls;
mod warm_restart;
mod write_pieces;
