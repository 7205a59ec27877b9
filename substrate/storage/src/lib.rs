//! Superblock, extents and their references, page cache, manifest.
