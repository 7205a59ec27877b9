//! The bugs that are planted, each with what it does and the layers that must see it.
//!
//! Length: one table.
//!
//! A layer is one of `testudo-sim`'s, or `schedules/` and a scenario of `testudo-schedules`. Where no layer
//! comes, it is the path of a file of tests.
//!
//! **Invariants**
//! - Every name stands in the store's code, and every name there stands here: a test compares them.

/// A bug.
pub(crate) struct Bug {
    /// What the code asks for, and `TESTUDO_PLANTED` names.
    pub(crate) name: &'static str,
    /// What goes wrong with it.
    pub(crate) effect: &'static str,
    /// The layers that must see it.
    pub(crate) seen_by: &'static [&'static str],
}

const fn bug(name: &'static str, effect: &'static str, seen_by: &'static [&'static str]) -> Bug {
    Bug { name, effect, seen_by }
}

/// All of them.
pub(crate) const BUGS: &[Bug] = &[
    // Order of what becomes durable.
    bug("acknowledged-before-sync", "a synced commit is acknowledged once it is written", &["crash"]),
    bug("segment-name-unsynced", "the directory is not synced after a log segment was created", &["crash"]),
    bug("manifest-edit-unsynced", "an edit counts as durable once it is written", &["crash"]),
    bug("data-unsynced-at-edit", "an edit refers to pages that were not synced", &["crash"]),
    bug("log-unsynced-at-flush", "runs hold commits that the log may still lose", &["crash"]),
    bug("flushed-seqno-too-high", "an edit says that newer commits are flushed too", &["schedules/flushes"]),
    bug("log-released-early", "the log is released one segment too far", &["model"]),
    bug("needed-segment-released", "log segments go before an edit lets go of them", &["model"]),
    bug("newest-superblock-overwritten", "every superblock goes to the same slot", &["exhaustive"]),
    bug("extent-freed-before-edit", "extents are reused before their successors are durable", &["crash"]),
    bug("segment-header-unsynced", "a log segment is written to before its header is durable", &["crash"]),
    bug("keyspace-created-before-sync", "a keyspace is durable before the commits before it", &["crash"]),
    bug("keyspace-dropped-before-sync", "a drop is durable before the commits before it", &["crash"]),
    bug("closed-before-log-sync", "a store passes for closed before its log is durable", &["simulate"]),
    // Recovery.
    bug("unproven-log-believed", "recovery builds on a log that stands in caches alone", &["crash"]),
    bug("manifest-synced-in-place", "recovery syncs the manifest after a sync that failed", &["simulate"]),
    bug("lost-end-of-log-overlooked", "a log that ends too early is believed", &["corruption"]),
    bug(
        "hole-between-incarnations-overlooked",
        "a log goes on behind commits that are missing",
        &["corruption"],
    ),
    bug("last-of-batch-not-replayed", "recovery leaves out the last operation of a batch", &["crash"]),
    bug("record-checksum-ignored", "recovery takes a torn record for a commit", &["crash"]),
    bug("damage-taken-for-torn-tail", "damage within the log cuts it off silently", &["corruption"]),
    bug(
        "lost-header-overlooked",
        "a log segment that lost its header counts as never used",
        &["substrate/wal/src/recovery/unheaded/tests.rs"],
    ),
    bug("stale-blocks-refused", "stale blocks in a prepared log segment keep a store closed", &["crash"]),
    bug("seqno-reused", "the first seqno after recovery is that of the last commit before it", &["crash"]),
    bug(
        "unproven-values-believed",
        "recovery builds on values that stand in caches alone",
        &["engine/tests/store/value_logs.rs"],
    ),
    bug(
        "replay-trusts-references",
        "recovery takes a commit whose value is missing",
        &["engine/tests/store/value_logs.rs"],
    ),
    bug(
        "values-synced-after-record",
        "a record is durable before the value that it refers to",
        &["engine/tests/store/value_logs.rs"],
    ),
    bug(
        "failed-data-sync-forgotten",
        "the data file is synced after a sync that failed",
        &["substrate/storage/src/data_file/tests.rs"],
    ),
    bug(
        "failed-value-forgotten",
        "a value log that could not be written is synced as if it were whole",
        &["substrate/values/src/value_log/tests.rs"],
    ),
    bug(
        "value-log-not-in-edit",
        "the space of a value log can be reused before the log is replayed",
        &["crash"],
    ),
    bug(
        "value-of-sealed-buffer",
        "a value goes to the value log of a buffer that its write does not go to",
        &["schedules/value-logs"],
    ),
    // What the files of a store prove of each other.
    bug("watermark-ignored", "what the file `watermark` proves is not asked for", &["files"]),
    bug("old-superblock-believed", "a superblock that is many edits behind is believed", &["files"]),
    bug("foreign-segment-believed", "a log segment of another copy of the store is replayed", &["files"]),
    bug("foreign-page-believed", "a page of another copy of the store is read", &["files"]),
    bug("edit-note-ignored", "a log that builds on lost manifest edits is replayed", &["files"]),
    bug("edit-not-noted", "the log does not say which changes of the catalogue it builds on", &["files"]),
    // Tree families.
    bug(
        "newer-tree-overlooked",
        "a store with a tree that is not known is written to before it is refused",
        &["engine/src/open/tree_families/tests.rs"],
    ),
    bug(
        "range-moved-twice",
        "a piece that has moved to another family of trees stays where it was, and so does the border",
        &["model", "trees/migrating/src/migrating/tests.rs"],
    ),
    bug(
        "border-edit-without-data",
        "the edit that moves the border does not put the piece into the other tree",
        &["crash", "engine/tests/store/moving.rs"],
    ),
    bug("part-left-out", "checks and copies are not told of one run", &["model"]),
    // Salvage.
    bug("stray-record-believed", "a copy of a later record ends what a salvage reads", &["files"]),
    // Verification of what is read.
    bug("page-checksum-ignored", "a page with a wrong checksum is believed", &["corruption"]),
    bug("page-identity-ignored", "any valid page passes for the one asked for", &["corruption"]),
    bug(
        "edit-checksum-ignored",
        "an edit of the manifest with a wrong checksum is believed",
        &["corruption"],
    ),
    bug(
        "verify-fast-by-default",
        "a verification reads no page unless it is told to",
        &["tools/cli/tests/verbs/scrub.rs"],
    ),
    bug(
        "unread-called-valid",
        "a fast verification calls valid what it did not read",
        &["tools/cli/tests/verbs/scrub.rs"],
    ),
    bug("kind-byte-ignored", "the byte with the kind of an entry is read as part of its key", &["model"]),
    // Failures of the machine.
    bug("sync-error-ignored", "a failed sync of the log is not noticed", &["nth"]),
    bug("full-disk-swallowed", "a write to a full disk passes for done", &["full-disk"]),
    bug("space-not-reclaimed", "a full device wins no space from what was removed", &["removals"]),
    bug("transient-error-poisons", "want of a descriptor for a moment ends all writes", &["shortages"]),
    bug("stalled-records-dropped", "log buffers that cannot be written for now are lost", &["shortages"]),
    bug("held-space-not-taken", "what is held for a full device is left there", &["removals"]),
    bug(
        "failed-flush-forgotten",
        "a flush that the tree's rules have no space for is only tried again",
        &["engine/tests/store/full_device.rs"],
    ),
    bug(
        "device-space-not-left",
        "free space of the data file is not given back to log and manifest",
        &["engine/tests/store/full_device.rs"],
    ),
    bug("rest-of-share-forgotten", "reclaiming one leaf loses what waits for the next", &["removals"]),
    bug(
        "joined-leaf-too-new",
        "leaves are joined without what waits for one of them alone",
        &["trees/betree/src/tree/tests/reclaiming.rs"],
    ),
    bug(
        "output-beyond-border",
        "a move of a leveled tree merges what lies beyond its border",
        &["trees/lsm/src/tree/tests/age_order.rs"],
    ),
    bug(
        "level-overlap",
        "the fence of a run does not move up behind keys that came in before it",
        &["trees/lsm/src/tree/tests/age_order.rs"],
    ),
    bug(
        "join-empties-level",
        "joining runs of the bottom gives up what is on its way there",
        &["trees/lsm/src/tree/tests/joining.rs"],
    ),
    bug(
        "barrier-skipped",
        "a query of a compaction buffer passes by what was given up, to older entries",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "search-passes-base",
        "a query of a compaction buffer goes on below what says all, to entries that were removed since",
        &["trees/betree/src/tree/tests/retained.rs", "trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "keys-from-memory-passed",
        "a query of a compaction buffer passes by keys that came out of memory, to older entries",
        &["trees/betree/src/tree/tests/retained.rs", "model"],
    ),
    bug(
        "barrier-lost",
        "what was given up of a compaction buffer is forgotten at the next opening",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "operands-out-of-buffer",
        "operands are answered out of a compaction buffer, although they were merged below",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "scan-passes-barrier",
        "a scan of a compaction buffer passes by what was given up",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "base-not-complete",
        "a scan reads what a compaction buffer has of keys of which it does not have all",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "scan-returns-folded-operands",
        "a scan returns operands out of a compaction buffer, although they were merged below",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "frozen-without-barrier",
        "what comes into a frozen level leaves older entries in the compaction buffer",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "buffer-before-filter",
        "compaction buffers are asked for keys that their sequences do not have",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "retained-extent-freed",
        "runs of compaction buffers are not referred to, so their extents are reused",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "job-on-changed-levels",
        "a job of a leveled tree undoes a flush that came in between",
        &["trees/lsm/src/tree/tests/beside.rs"],
    ),
    // Pages that are updated in place.
    bug(
        "used-place-taken",
        "a page is written where another version of its run still has one",
        &["substrate/run/src/page_update/tests.rs"],
    ),
    bug(
        "earlier-updated-page-forgotten",
        "a version of a run has none of the pages that were replaced before",
        &["substrate/run/src/page_update/tests.rs"],
    ),
    bug(
        "overflow-page-not-asked",
        "entries on overflow pages are looked for on the pages that they belong to",
        &["substrate/run/src/page_update/tests.rs"],
    ),
    bug(
        "filter-of-replaced-pages-asked",
        "the filter of a run denies keys that its replaced pages have got",
        &["substrate/run/src/page_update/tests.rs"],
    ),
    bug(
        "value-without-its-end",
        "a query leaves out what the next page has of a value",
        &["model", "substrate/run/src/continued_value/tests.rs"],
    ),
    bug(
        "lone-continuation-not-written",
        "the end of a value is not written where no entry follows it on its page",
        &["substrate/run/src/continued_value/tests.rs"],
    ),
    bug(
        "pages-behind-overstated",
        "an index says that a value goes on in a page more than it does",
        &["substrate/run/src/continued_value/tests.rs"],
    ),
    bug(
        "rest-not-flushed",
        "removals wait in the write buffer of an idle store, and keep the space of what they remove",
        &["engine/tests/store/resting.rs"],
    ),
    bug(
        "long-block-kept-unverified",
        "a block of several pages is in the cache although its checksum does not match",
        &["substrate/run/src/continued_value/tests.rs"],
    ),
    bug(
        "continuation-replaced",
        "a page is replaced that has the end of a value",
        &["engine/tests/store/treeline.rs"],
    ),
    bug(
        "backup-misses-updated-page",
        "a backup takes a run for the one that it has, though pages were replaced since",
        &["engine/tests/store/treeline.rs"],
    ),
    // Value segments.
    bug("dead-bytes-twice", "the bytes of a dead value count twice", &["trees/separated/src/tree/tests.rs"]),
    bug(
        "values-ahead-shifted",
        "entries of a scan show the values of those beside them",
        &["engine/tests/store/outlying_scans.rs"],
    ),
    bug(
        "values-that-come-back-shifted",
        "values that come back to their keys are those of the keys beside them",
        &["engine/tests/store/moving_values.rs"],
    ),
    bug(
        "moved-thresholds-forgotten",
        "where the thresholds of a placement have moved is not kept",
        &["engine/tests/store/moving_values.rs"],
    ),
    bug(
        "first-piece-again",
        "each piece of a value in pieces is read as its first one",
        &["engine/tests/store/values_in_pieces.rs"],
    ),
    bug(
        "last-piece-not-written",
        "the last piece of a value is left out",
        &["engine/src/write/write_pieces/tests.rs"],
    ),
    bug(
        "referred-pieces-removed",
        "a sweep takes values in pieces away to which their keys refer",
        &["engine/src/write/write_pieces/tests.rs"],
    ),
    bug(
        "salvaged-pieces-unchecked",
        "a salvage writes entries that refer to values in pieces without all of these",
        &["engine/tests/store/pieces_salvage.rs"],
    ),
    bug(
        "operands-upon-pieces",
        "operands are accepted upon values that cannot be merged",
        &["engine/tests/store/values_in_pieces.rs"],
    ),
    bug("drops-of-job-lost", "values that a job drops stay alive", &["trees/separated/src/tree/tests.rs"]),
    bug(
        "drops-of-piece-lost",
        "values that die as their keyspace moves stay alive",
        &["engine/tests/store/moving.rs"],
    ),
    bug(
        "value-that-came-back-lives-on",
        "a value that came back to its key stays alive in its segment",
        &["trees/separated/src/tree/tests.rs"],
    ),
    bug(
        "segment-freed-early",
        "a value segment is freed with its first dead value",
        &["trees/separated/src/tree/tests.rs"],
    ),
    bug(
        "stale-rewriting-installed",
        "a rewritten segment takes the place of a later one",
        &["substrate/values/src/segment_set/tests.rs"],
    ),
    bug(
        "dead-value-kept",
        "a segment is rewritten with its dead values",
        &["substrate/values/src/segment_set/tests.rs"],
    ),
    bug("second-open-not-locked", "a store that is open can be opened again", &["model"]),
    // Directories.
    bug(
        "parent-name-not-durable",
        "a directory above a new store has a name that a power loss takes away",
        &["engine/tests/store/parents.rs"],
    ),
    bug("names-by-path", "files of a store are named by its path, wherever it is now", &["directories"]),
    bug("lost-lock-unnoticed", "an owner goes on writing when its lock file is another", &["directories"]),
    bug("temporary-removes-all", "a temporary store removes whatever is in its directory", &["directories"]),
    bug(
        "owner-not-named",
        "who finds a store locked is not told by which process",
        &["tools/cli/tests/verbs/beside_writer.rs"],
    ),
    bug(
        "directory-not-locked",
        "a store without its lock file is written while somebody reads it",
        &["engine/tests/store/without_lock_file.rs"],
    ),
    // Forks.
    bug("fork-unnoticed", "a forked child uses the store of its parent", &["engine/tests/fork.rs"]),
    bug("child-unlocks", "a forked child gives up the lock of its parent", &["engine/tests/fork.rs"]),
    bug(
        "forked-child-closes",
        "the last handle of a forked child closes the store",
        &["engine/tests/fork.rs", "engine/tests/store/forked.rs"],
    ),
    // Openings.
    bug("tail-not-replayed", "what a killed process acknowledged is not recovered", &["model"]),
    bug(
        "tail-of-older-boot-believed",
        "after a power loss the tail of the log counts, torn as it is",
        &["substrate/wal/src/recovery/drain/tests.rs"],
    ),
    bug(
        "older-tail-believed",
        "the tail of an older opening counts",
        &["substrate/wal/src/recovery/drain/tests.rs"],
    ),
    bug(
        "values-of-tail-forgotten",
        "commits of a killed process lose the values that no device has",
        &["substrate/wal/src/recovery/drain/tests.rs"],
    ),
    bug(
        "unkept-acknowledged",
        "a commit whose buffer is in memory alone is acknowledged unwritten",
        &["substrate/wal/src/recovery/drain/tests.rs"],
    ),
    bug(
        "tail-kept-at-close",
        "closing leaves the files of the log's tail",
        &["substrate/wal/src/recovery/drain/tests.rs"],
    ),
    bug("unused-segment-kept", "closing leaves a log segment that holds no commit", &["openings"]),
    bug("segment-before-its-use", "an opening creates a log segment before it writes", &["openings"]),
    bug("log-never-renewed", "log segments pile up with the openings of a store", &["openings"]),
    bug("manifest-never-shortened", "closing leaves a long manifest for the next opening", &["openings"]),
    // Beside a writer.
    bug("status-not-published", "a writer publishes no statistics", &["engine/src/status/tests.rs"]),
    bug(
        "status-of-others-believed",
        "statistics of another process or store are shown",
        &["engine/src/status/tests.rs"],
    ),
    // The command line.
    bug(
        "typed-escapes-kept",
        "escapes are printed, and kept as they are typed",
        &["tools/cli/tests/verbs/formats.rs"],
    ),
    bug(
        "json-before-the-verb-refused",
        "`--json` is understood behind the verb only",
        &["tools/cli/tests/verbs/typing.rs"],
    ),
    bug(
        "offset-names-first-page",
        "an offset names the first page, wherever it is",
        &["tools/cli/tests/verbs/typing.rs"],
    ),
    bug(
        "missing-thing-is-exit-code-two",
        "what is not there ends as what cannot be done",
        &["tools/cli/tests/verbs/exit_codes.rs"],
    ),
    // Answers.
    bug("tombstone-dropped-early", "tombstones are dropped above what they hide", &["model"]),
    bug("merge-prefers-older", "of equal keys a merge shows the oldest", &["model"]),
    bug("operands-in-reverse", "operands are applied in the wrong order", &["model"]),
    bug("operands-lost-in-merge", "of the operands of several tiers a merge keeps the newest", &["model"]),
    bug("operands-without-their-value", "a merge leaves out what operands change", &["model"]),
    bug("flushed-operand-replayed", "recovery applies operands that the tree has already", &["model"]),
    bug("first-of-block-lost", "a cursor misses the first entry of each further block", &["model"]),
    bug("seek-ignored-from-the-back", "after a seek the back goes on below it", &["model"]),
    bug("closed-store-still-read", "handles of a closed store read on", &["model"]),
    bug("write-inside-update", "the function of an update can write to its store", &["model"]),
    bug("merged-length-unchecked", "operands make values beyond the limit unnoticed", &["metamorphic"]),
    bug(
        "entry-grows-unread",
        "operands pile up on what nobody read, beyond the longest entry",
        &["engine/src/write/long_merges/tests.rs"],
    ),
    bug("refused-value-written", "values are written that the merge operator refuses", &["model"]),
    bug("refused-operand-written", "operands are written that the merge operator refuses", &["model"]),
    bug("backward-skips-a-part", "going back, a cursor skips a child at a border", &["model"]),
    bug(
        "key-within-prefix-sorts-last",
        "a key that is part of a block's prefix is sought at its end",
        &["model"],
    ),
    bug(
        "cut-last-key-taken-for-whole",
        "a run seems to end before its long last key",
        &["model", "metamorphic"],
    ),
    bug(
        "forks-believed-unread",
        "where separators are cut, forks are followed without a look",
        &["model", "metamorphic"],
    ),
    bug("shared-start-of-fence-lost", "a pivot loses what it shares with the one before", &["model"]),
    bug("filter-run-cut-short", "a filter denies some of its keys", &["model"]),
    bug("flush-forgets-a-tier", "a flush leaves the third-newest tier behind", &["model"]),
    bug("merged-tiers-on-top", "older tiers that are merged hide newer ones", &["model"]),
    bug(
        "jobs-never-awaited",
        "flushes go on although jobs are far behind them",
        &["engine/tests/store/catching_up.rs"],
    ),
    bug(
        "job-installed-on-changed-state",
        "a job takes the place of what a flush has changed since",
        &["model"],
    ),
    bug(
        "joined-below-what-came-in",
        "leaves are joined although something came in for one of them meanwhile",
        &["trees/betree/src/tree/tests/later.rs"],
    ),
    bug(
        "tiers-on-top-forgotten",
        "a job is installed without the tiers that have come in on top of its node meanwhile",
        &["trees/betree/src/tree/tests/later.rs"],
    ),
    bug(
        "tree-set-during-a-round",
        "a keyspace gets its tree from before the flush that is under way",
        &["schedules/trees"],
    ),
    bug("stale-page-in-cache", "pages stay in the cache when their extent is reused", &["model"]),
    bug("cached-record-kept-at-flush", "a flush forgets to replace cached records", &["model"]),
    bug("later-record-in-cache", "a snapshot is shown a cached record of a later tree", &["snapshots"]),
    bug(
        "stale-record-filled",
        "what was read from an older tree is cached for a newer",
        &["schedules/records"],
    ),
    bug(
        "torn-record-read",
        "a cached record is read while a flush replaces it, half old and half new",
        &["schedules/records"],
    ),
    bug(
        "hot-set-stamp-ignored",
        "records of an older state of a tree are put back into the record cache",
        &["hot-set"],
    ),
    bug(
        "hot-set-checksum-ignored",
        "records of a damaged file `hot-set` are put back into the record cache",
        &["hot-set"],
    ),
    bug("extent-freed-while-held", "extents are reused while a snapshot reads them", &["snapshots"]),
    bug(
        "tombstones-moved-all-at-once",
        "one job moves all that has many tombstones, whatever it writes",
        &["trees/lsm/src/tree/tests/tombstones.rs"],
    ),
    bug(
        "tombstones-flushed-all-at-once",
        "one job flushes all pivots with many tombstones",
        &["trees/betree/src/tree/tests/tombstones.rs"],
    ),
    bug(
        "settled-only-at-rest",
        "settling ends only once nobody writes",
        &["engine/src/flush/settle/tests.rs"],
    ),
    bug("gap-never-remembered", "each scan passes all tombstones step by step", &["queues"]),
    bug("gap-outlives-a-write", "scans seek past what was written into a gap", &["queues"]),
    bug("gap-known-unchecked", "a gap is known whatever was written since its scan began", &["queues"]),
    bug("gap-shown-to-older-snapshot", "a gap hides what was removed after a snapshot", &["queues"]),
    bug(
        "version-pruned-under-snapshot",
        "an overwrite removes the version that a snapshot needs",
        &["snapshots"],
    ),
    bug("snapshot-sees-later-commit", "a read of a snapshot is one commit too new", &["snapshots"]),
    // Races.
    bug(
        "snapshot-registered-late",
        "a snapshot is registered after the lock was given up",
        &["schedules/snapshots"],
    ),
    bug("batch-published-half", "a snapshot does not wait for a batch under way", &["schedules/batches"]),
    bug(
        "own-seqno-not-awaited",
        "who waits for a commit does not wait for the last one",
        &["schedules/in-flight"],
    ),
    bug(
        "slab-cut-in-two-steps",
        "two threads get the same memory for their records",
        &["schedules/memtable"],
    ),
    bug("swap-without-lock", "read-modify-write without the lock of its key", &["schedules/swaps"]),
    bug(
        "buffer-chosen-early",
        "a commit chooses its write buffer before it has its seqno",
        &["schedules/flushes"],
    ),
    bug(
        "sealed-buffer-not-awaited",
        "a sealed buffer is flushed before its last commits are in",
        &["schedules/flushes"],
    ),
    bug(
        "late-commit-at-close",
        "a commit gets in between the last sync and the end of the log",
        &["schedules/closing"],
    ),
    bug("next-leader-not-woken", "nobody leads the next round of syncing", &["schedules/synced"]),
    bug(
        "close-wakes-nobody",
        "closing does not wake the helpers that it waits for",
        &["schedules/registers"],
    ),
    bug(
        "page-unpinned-for-a-moment",
        "a new page of the cache can be evicted while it is read",
        &["schedules/cache"],
    ),
    bug(
        "new-handle-overlooked",
        "an extent is given back although it was taken hold of anew",
        &["schedules/extents"],
    ),
    // Bounds of memory.
    bug("batch-bound-ignored", "a batch takes as much memory as it is given", &["bounds"]),
    bug(
        "write-memory-never-moves",
        "the governor decides, and write memory stays as it is",
        &["engine/tests/store/memory.rs"],
    ),
    bug("pages-kept-from-writers", "pages count as given up and keep their memory", &["bounds"]),
    bug("metadata-not-made-room-for", "caches ignore what keyspaces and trees take", &["bounds"]),
    bug("flushed-buffers-kept", "who holds a moment keeps write buffers that were flushed", &["bounds"]),
    bug("relieved-snapshot-sees-later", "spilled write buffers show later writes", &["bounds", "holders"]),
    bug("neighbours-do-not-share", "each snapshot has a spilled write buffer of its own", &["holders"]),
    bug("spill-keeps-newest-only", "older snapshots find nothing in spilled write buffers", &["holders"]),
    bug("iterators-keep-sources", "iterators that are many keep all that they read with", &["holders"]),
    bug("parked-iterator-repeats", "an iterator goes on before where it was parked", &["holders"]),
    bug(
        "spilled-pages-salvaged",
        "a salvage takes spilled write buffers for records",
        &["engine/tests/store/holders.rs"],
    ),
    bug("holes-of-the-log-read", "a salvage reads the holes of the log page by page", &["bounds"]),
    bug("reader-holds-the-whole-log", "a reader's memtables take all of the log", &["bounds"]),
];

#[cfg(test)]
mod tests;
