//! What the engine asks of a tree, and the unit of background work.
