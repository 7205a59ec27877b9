//! Bε-trees over shared runs: the TurtleTree as a policy over one trunk of nodes.
