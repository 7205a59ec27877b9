//! The planted bugs, each with its effect and the layers that must catch it.
//!
//! Length: one table.
//!
//! A layer is a layer of `testudo-sim`, or `schedules/` and a scenario of `testudo-schedules`. For code that
//! no layer reaches it is the path of a file of tests.
//!
//! **Invariants**
//! - The names here and in the store's code are the same: a test compares them.

/// A bug.
pub(crate) struct Bug {
    /// Name in the code and in `TESTUDO_PLANTED`.
    pub(crate) name: &'static str,
    /// Effect of the bug.
    pub(crate) effect: &'static str,
    /// The layers that must catch it.
    pub(crate) seen_by: &'static [&'static str],
}

const fn bug(name: &'static str, effect: &'static str, seen_by: &'static [&'static str]) -> Bug {
    Bug { name, effect, seen_by }
}

/// All bugs.
pub(crate) const BUGS: &[Bug] = &[
    // Order of durability.
    bug("acknowledged-before-sync", "a synced commit is acknowledged once it is written", &["crash"]),
    bug("segment-name-unsynced", "the directory is not synced after a log segment was created", &["crash"]),
    bug("manifest-edit-unsynced", "an edit counts as durable once it is written", &["crash"]),
    bug("data-unsynced-at-edit", "an edit refers to pages that were not synced", &["crash"]),
    bug("log-unsynced-at-flush", "runs hold commits that the log may still lose", &["crash"]),
    bug("flushed-seqno-too-high", "an edit marks newer commits as flushed", &["schedules/flushes"]),
    bug("log-released-early", "the log is released one segment too far", &["model"]),
    bug("needed-segment-released", "log segments are removed before an edit releases them", &["model"]),
    bug(
        "removal-awaited-by-flush",
        "a flush waits for the removal of log segments",
        &["engine/db/src/tests/several_jobs/released.rs"],
    ),
    bug("newest-superblock-overwritten", "every superblock goes to the same slot", &["exhaustive"]),
    bug("extent-freed-before-edit", "extents are reused before their successors are durable", &["crash"]),
    bug("segment-header-unsynced", "a log segment is written to before its header is durable", &["crash"]),
    bug("keyspace-created-before-sync", "a keyspace is durable before the commits before it", &["crash"]),
    bug("keyspace-dropped-before-sync", "a drop is durable before the commits before it", &["crash"]),
    bug("closed-before-log-sync", "a store is marked closed before its log is durable", &["simulate"]),
    // Recovery.
    bug("unproven-log-believed", "recovery trusts a log that is only in caches", &["crash"]),
    bug("manifest-synced-in-place", "recovery syncs the manifest after a failed sync", &["simulate"]),
    bug("lost-end-of-log-overlooked", "a log that ends too early is accepted", &["corruption"]),
    bug("hole-between-incarnations-overlooked", "a log continues after missing commits", &["corruption"]),
    bug("last-of-batch-not-replayed", "recovery leaves out the last operation of a batch", &["crash"]),
    bug("record-checksum-ignored", "recovery takes a torn record for a commit", &["crash"]),
    bug("damage-taken-for-torn-tail", "damage within the log truncates it silently", &["corruption"]),
    bug(
        "lost-header-overlooked",
        "a log segment that lost its header counts as never used",
        &["substrate/wal/src/recovery/unheaded/tests.rs"],
    ),
    bug("stale-blocks-refused", "stale blocks in a prepared log segment keep a store closed", &["crash"]),
    bug("seqno-reused", "the first seqno after recovery is that of the last commit before it", &["crash"]),
    bug(
        "unproven-values-believed",
        "recovery trusts values that are only in caches",
        &["testudo/tests/store/value_logs.rs"],
    ),
    bug(
        "replay-trusts-references",
        "recovery accepts a commit whose value is missing",
        &["testudo/tests/store/value_logs.rs"],
    ),
    bug(
        "values-synced-after-record",
        "a record is durable before its value",
        &["testudo/tests/store/value_logs.rs"],
    ),
    bug(
        "failed-data-sync-forgotten",
        "the data file is synced again after a failed sync",
        &["substrate/storage/src/data_file/tests.rs"],
    ),
    bug(
        "failed-value-forgotten",
        "a value log with a failed write is synced as if it were complete",
        &["substrate/values/src/value_log/tests.rs"],
    ),
    bug(
        "logged-values-written-late",
        "values of acknowledged commits are lost when the process is killed",
        &["substrate/values/src/value_log/tests.rs"],
    ),
    bug(
        "value-log-not-in-edit",
        "the space of a value log can be reused before the log is replayed",
        &["crash"],
    ),
    bug(
        "value-of-sealed-buffer",
        "a value goes to the value log of another buffer than its write",
        &["schedules/value-logs"],
    ),
    // Evidence of a store's files about each other.
    bug("watermark-ignored", "the evidence of the file `watermark` is ignored", &["files"]),
    bug("old-superblock-believed", "a superblock that is many edits behind is accepted", &["files"]),
    bug("foreign-segment-believed", "a log segment of another copy of the store is replayed", &["files"]),
    bug("foreign-page-believed", "a page of another copy of the store is read", &["files"]),
    bug("edit-note-ignored", "a log that depends on lost manifest edits is replayed", &["files"]),
    bug("edit-not-noted", "the log does not record the catalogue changes that it depends on", &["files"]),
    // Tree families.
    bug(
        "newer-tree-overlooked",
        "a store with an unknown tree is written to before it is refused",
        &["testudo/tests/store/newer_families.rs"],
    ),
    bug(
        "range-moved-twice",
        "a portion moved to another tree family also stays in the old tree, and the border does not move",
        &["model", "trees/migrating/src/migrating/tests.rs"],
    ),
    bug(
        "range-compacted-below-buffers",
        "a compaction of a range leaves its newest writes in the write buffers",
        &["testudo/tests/store/compact_range.rs"],
    ),
    bug(
        "range-compacted-by-one-job",
        "a compaction of a range ends after its first job",
        &["testudo/tests/store/compact_range.rs"],
    ),
    bug(
        "border-edit-without-data",
        "the edit that moves the border does not add the portion to the other tree",
        &["crash", "testudo/tests/store/moving.rs"],
    ),
    bug("part-left-out", "checks and copies miss one run", &["model"]),
    // Salvage.
    bug("stray-record-believed", "a copy of a later record ends the log for salvage", &["files"]),
    // Verification of data read.
    bug("page-checksum-ignored", "a page with a wrong checksum is accepted", &["corruption"]),
    bug("page-identity-ignored", "any valid page is accepted as the requested one", &["corruption"]),
    bug(
        "edit-checksum-ignored",
        "an edit of the manifest with a wrong checksum is accepted",
        &["corruption"],
    ),
    bug(
        "verify-fast-by-default",
        "a verification reads no pages by default",
        &["tools/cli/tests/verbs/scrub.rs"],
    ),
    bug(
        "unread-called-valid",
        "a fast verification reports unread data as valid",
        &["tools/cli/tests/verbs/scrub.rs"],
    ),
    bug("kind-byte-ignored", "the byte with the kind of an entry is read as part of its key", &["model"]),
    // Failures of the machine.
    bug("sync-error-ignored", "a failed sync of the log is ignored", &["nth"]),
    bug("full-disk-swallowed", "a write to a full disk is reported as done", &["full-disk"]),
    bug("space-not-reclaimed", "a full device reclaims no space from removed entries", &["removals"]),
    bug("transient-error-poisons", "a transient lack of descriptors ends all writes", &["shortages"]),
    bug("stalled-records-dropped", "log buffers that cannot be written temporarily are lost", &["shortages"]),
    bug("held-space-not-taken", "space reserved for a full device is not used", &["removals"]),
    bug(
        "failed-flush-forgotten",
        "a flush without space under the tree's rules is only retried",
        &["testudo/tests/store/full_device.rs"],
    ),
    bug(
        "device-space-not-left",
        "free space of the data file is not released for log and manifest",
        &["testudo/tests/store/full_device.rs"],
    ),
    bug("rest-of-share-forgotten", "reclaiming one leaf loses entries pending for the next", &["removals"]),
    bug(
        "joined-leaf-too-new",
        "leaves are joined without the entries pending for only one of them",
        &["trees/betree/src/tree/tests/reclaiming.rs"],
    ),
    bug(
        "output-beyond-border",
        "a move of a leveled tree merges data beyond its border",
        &["trees/lsm/src/tree/tests/age_order.rs"],
    ),
    bug(
        "level-overlap",
        "the fence of a run is not raised past keys added before it",
        &["trees/lsm/src/tree/tests/age_order.rs"],
    ),
    bug(
        "join-empties-level",
        "joining bottom runs drops data on its way down",
        &["trees/lsm/src/tree/tests/joining.rs"],
    ),
    bug(
        "barrier-skipped",
        "a query of a compaction buffer skips a barrier and returns older entries",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "search-passes-base",
        "a query of a compaction buffer continues below a base to entries removed since",
        &["trees/betree/src/tree/tests/retained.rs", "trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "keys-from-memory-passed",
        "a query of a compaction buffer skips keys flushed from memory and returns older entries",
        &["trees/betree/src/tree/tests/retained.rs", "model"],
    ),
    bug(
        "barrier-lost",
        "barriers of a compaction buffer are forgotten at the next opening",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "operands-out-of-buffer",
        "operands of a compaction buffer are returned although they were merged below",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "scan-passes-barrier",
        "a scan of a compaction buffer skips a barrier",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "base-not-complete",
        "a scan uses a compaction buffer for keys that it holds incompletely",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "scan-returns-folded-operands",
        "a scan returns operands of a compaction buffer although they were merged below",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "frozen-without-barrier",
        "entries added to a frozen level leave older ones in the compaction buffer",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "buffer-before-filter",
        "compaction buffers are searched for keys missing from their sequences",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "retained-extent-freed",
        "runs of compaction buffers have no references, so their extents are reused",
        &["trees/lsm/src/tree/tests/compaction_buffer.rs"],
    ),
    bug(
        "job-on-changed-levels",
        "a job of a leveled tree undoes a concurrent flush",
        &["trees/lsm/src/tree/tests/concurrent_updates.rs"],
    ),
    // Pages that are updated in place.
    bug(
        "used-place-taken",
        "a page is written to a place that another version of its run uses",
        &["substrate/run/src/page_update/tests.rs"],
    ),
    bug(
        "earlier-updated-page-forgotten",
        "a version of a run lacks all pages replaced earlier",
        &["substrate/run/src/page_update/tests.rs"],
    ),
    bug(
        "map-page-older-than-run",
        "a run takes an older map of its own for that of its version",
        &["substrate/run/src/map_read/tests.rs"],
    ),
    bug(
        "map-of-version-before",
        "a new version of a run is stored with the map of the one before",
        &["substrate/run/src/map_read/tests.rs"],
    ),
    bug(
        "run-object-not-written",
        "a new version of a run is not written to the object of the run",
        &["trees/lsm/src/tree/tests/page_updates.rs"],
    ),
    bug(
        "forecast-room-counted-as-data",
        "free space left for expected inserts is counted as data, for which more space is left",
        &["trees/lsm/src/forecast/page_fill/tests.rs"],
    ),
    bug(
        "direct-flush-over-older",
        "a flush goes into pages of the bottom while older entries of its keys are above",
        &["trees/lsm/src/tree/tests/direct_flushes.rs"],
    ),
    bug(
        "overflow-page-not-asked",
        "entries on overflow pages are searched on the replaced pages",
        &["substrate/run/src/page_update/tests.rs"],
    ),
    bug(
        "section-border-off",
        "the first key of an overflow page is searched on the page before it",
        &["substrate/run/src/page_update/tests/sections.rs"],
    ),
    bug(
        "join-loses-range",
        "joined sections are stored with the range of the first of them",
        &["substrate/run/src/page_update/tests/sections.rs"],
    ),
    bug(
        "spare-pages-walked",
        "copies and checks of a run read its spare pages, whose places other pages may have",
        &["substrate/run/src/page_update/tests/spare_pages.rs"],
    ),
    bug(
        "gathered-run-looks-newer",
        "a run whose pages are gathered gets an age greater than that of entries above it",
        &["trees/lsm/src/tree/tests/gathering.rs"],
    ),
    bug(
        "filter-of-replaced-pages-asked",
        "the filter of a run denies keys added to its replaced pages",
        &["substrate/run/src/page_update/tests.rs"],
    ),
    bug(
        "value-without-its-end",
        "a query omits the part of a value on the next page",
        &["model", "substrate/run/src/continued_value/tests.rs"],
    ),
    bug(
        "lone-continuation-not-written",
        "the end of a value is not written if no entry follows it on its page",
        &["substrate/run/src/continued_value/tests.rs"],
    ),
    bug(
        "pages-behind-overstated",
        "an index overstates the pages of a value by one",
        &["substrate/run/src/continued_value/tests.rs"],
    ),
    bug(
        "rest-not-flushed",
        "removals stay in the write buffer of an idle store, so their space is not freed",
        &["testudo/tests/store/resting.rs"],
    ),
    bug(
        "long-block-kept-unverified",
        "a multi-page block with a wrong checksum is cached",
        &["substrate/run/src/continued_value/tests.rs"],
    ),
    bug(
        "continuation-replaced",
        "a page with the end of a value is replaced",
        &["testudo/tests/store/treeline.rs"],
    ),
    bug(
        "backup-misses-updated-page",
        "a backup treats a run as present although pages were replaced since",
        &["testudo/tests/store/treeline.rs"],
    ),
    // Value segments.
    bug(
        "dead-bytes-twice",
        "the bytes of a garbage value count twice",
        &["trees/separated/src/tree/tests.rs"],
    ),
    bug(
        "values-ahead-shifted",
        "entries of a scan show the values of their neighbors",
        &["testudo/tests/store/separated_scans.rs"],
    ),
    bug(
        "values-that-come-back-shifted",
        "values that return to their keys are those of neighboring keys",
        &["testudo/tests/store/moving_values.rs"],
    ),
    bug(
        "moved-thresholds-forgotten",
        "adjusted thresholds of a placement are not persisted",
        &["testudo/tests/store/moving_values.rs"],
    ),
    bug(
        "first-piece-again",
        "each piece of a value in pieces is read as its first one",
        &["testudo/tests/store/values_in_pieces.rs"],
    ),
    bug(
        "last-piece-not-written",
        "the last piece of a value is not written",
        &["engine/db/src/tests/write_pieces.rs"],
    ),
    bug(
        "referred-pieces-removed",
        "a sweep removes values in pieces that keys still refer to",
        &["engine/db/src/tests/write_pieces.rs"],
    ),
    bug(
        "salvaged-pieces-unchecked",
        "a salvage writes entries whose values in pieces are incomplete",
        &["testudo/tests/store/pieces_salvage.rs"],
    ),
    bug(
        "operands-upon-pieces",
        "operands are accepted for values that cannot be merged",
        &["testudo/tests/store/values_in_pieces.rs"],
    ),
    bug("drops-of-job-lost", "values that a job drops stay live", &["trees/separated/src/tree/tests.rs"]),
    bug(
        "drops-of-portion-lost",
        "values dropped while their keyspace moves stay live",
        &["testudo/tests/store/moving.rs"],
    ),
    bug(
        "value-that-came-back-lives-on",
        "a value that returned to its key stays live in its segment",
        &["trees/separated/src/tree/tests.rs"],
    ),
    bug(
        "segment-freed-early",
        "a value segment is freed with its first garbage value",
        &["trees/separated/src/tree/tests.rs"],
    ),
    bug(
        "stale-rewriting-installed",
        "a rewritten segment replaces a later one",
        &["substrate/values/src/segment_set/tests.rs"],
    ),
    bug(
        "dead-value-kept",
        "a rewritten segment keeps its garbage values",
        &["substrate/values/src/segment_set/tests.rs"],
    ),
    bug("second-open-not-locked", "a store that is open can be opened again", &["model"]),
    // Directories.
    bug(
        "parent-name-not-durable",
        "the name of a directory above a new store is not durable",
        &["testudo/tests/store/parents.rs"],
    ),
    bug("names-by-path", "files are opened by path after the store was moved", &["directories"]),
    bug(
        "lost-lock-unnoticed",
        "an owner continues writing after its lock file was replaced",
        &["directories"],
    ),
    bug(
        "temporary-removes-all",
        "a temporary store removes foreign files in its directory",
        &["directories"],
    ),
    bug(
        "owner-not-named",
        "the error of a locked store does not name the process",
        &["tools/cli/tests/verbs/beside_writer.rs"],
    ),
    bug(
        "directory-not-locked",
        "a store without its lock file is written while another process reads it",
        &["testudo/tests/store/without_lock_file.rs"],
    ),
    // Forks.
    bug("fork-unnoticed", "a forked child uses the store of its parent", &["testudo/tests/fork.rs"]),
    bug("child-unlocks", "a forked child releases its parent's lock", &["testudo/tests/fork.rs"]),
    bug(
        "forked-child-closes",
        "the last handle of a forked child closes the store",
        &["testudo/tests/fork.rs", "testudo/tests/store/forked.rs"],
    ),
    // Openings.
    bug("tail-not-replayed", "acknowledged writes of a killed process are not recovered", &["model"]),
    bug(
        "tail-of-older-boot-believed",
        "after a power loss the torn tail of the log is used",
        &["substrate/wal/src/recovery/drain/tests.rs"],
    ),
    bug(
        "older-tail-believed",
        "the tail of an older opening is used",
        &["substrate/wal/src/recovery/drain/tests.rs"],
    ),
    bug(
        "values-of-tail-forgotten",
        "commits of a killed process lose values that were never written",
        &["substrate/wal/src/recovery/drain/tests.rs"],
    ),
    bug(
        "unkept-acknowledged",
        "a commit whose buffer is only in memory is acknowledged",
        &["substrate/wal/src/recovery/drain/tests.rs"],
    ),
    bug(
        "tail-kept-at-close",
        "closing leaves the files of the log's tail",
        &["substrate/wal/src/recovery/drain/tests.rs"],
    ),
    bug("unused-segment-kept", "closing leaves a log segment without commits", &["openings"]),
    bug("segment-before-its-use", "an opening creates a log segment before it writes", &["openings"]),
    bug("log-never-renewed", "log segments pile up with the openings of a store", &["openings"]),
    bug("manifest-never-shortened", "closing leaves a long manifest for the next opening", &["openings"]),
    // Next to a writer.
    bug("status-not-published", "a writer publishes no statistics", &["engine/db/src/status/tests.rs"]),
    bug(
        "status-of-others-believed",
        "statistics of another process or store are shown",
        &["engine/db/src/status/tests.rs"],
    ),
    // The command line.
    bug(
        "typed-escapes-kept",
        "escapes are printed, but not parsed in input",
        &["tools/cli/tests/verbs/formats.rs"],
    ),
    bug(
        "json-before-the-verb-refused",
        "`--json` is accepted only after the verb",
        &["tools/cli/tests/verbs/typing.rs"],
    ),
    bug("offset-names-first-page", "any offset names the first page", &["tools/cli/tests/verbs/typing.rs"]),
    bug(
        "missing-thing-is-exit-code-two",
        "a missing item gives the exit code of an error",
        &["tools/cli/tests/verbs/exit_codes.rs"],
    ),
    // Answers.
    bug("tombstone-dropped-early", "tombstones are dropped above entries that they hide", &["model"]),
    bug("merge-prefers-older", "among equal keys a merge returns the oldest", &["model"]),
    bug("operands-in-reverse", "operands are applied in the wrong order", &["model"]),
    bug(
        "operands-lost-in-merge",
        "among operands of several tiers a merge keeps only the newest",
        &["model"],
    ),
    bug("operands-without-their-value", "a merge omits the value that operands change", &["model"]),
    bug("flushed-operand-replayed", "recovery applies operands that are already in the tree", &["model"]),
    bug("first-of-block-lost", "a cursor misses the first entry of each further block", &["model"]),
    bug("seek-ignored-from-the-back", "after a seek the back continues below it", &["model"]),
    bug("closed-store-still-read", "handles of a closed store can still read", &["model"]),
    bug("write-inside-update", "the function of an update can write to its store", &["model"]),
    bug("merged-length-unchecked", "operands make values beyond the limit unnoticed", &["metamorphic"]),
    bug(
        "entry-grows-unread",
        "operands accumulate unread beyond the longest entry",
        &["engine/db/src/tests/long_merges.rs"],
    ),
    bug("refused-value-written", "values refused by the merge operator are written", &["model"]),
    bug("refused-operand-written", "operands refused by the merge operator are written", &["model"]),
    bug("backward-skips-a-part", "moving backward, a cursor skips a child at a boundary", &["model"]),
    bug(
        "key-within-prefix-sorts-last",
        "a key that is a prefix of a block's prefix is searched at its end",
        &["model"],
    ),
    bug(
        "cut-last-key-taken-for-whole",
        "a run appears to end before its long last key",
        &["model", "metamorphic"],
    ),
    bug(
        "forks-believed-unread",
        "with cut separators, forks are followed without reading the key",
        &["model", "metamorphic"],
    ),
    bug(
        "shared-start-of-fence-lost",
        "a pivot loses the prefix that it shares with the previous one",
        &["model"],
    ),
    bug("filter-run-cut-short", "a filter denies some of its keys", &["model"]),
    bug("flush-forgets-a-tier", "a flush leaves the third-newest tier behind", &["model"]),
    bug("merged-tiers-on-top", "older tiers that are merged hide newer ones", &["model"]),
    bug(
        "jobs-never-awaited",
        "flushes continue although jobs are far behind",
        &["testudo/tests/store/catching_up.rs"],
    ),
    bug("job-installed-on-changed-state", "a job overwrites changes of a concurrent flush", &["model"]),
    bug(
        "excess-never-due",
        "a Bε-tree node beyond its bound is left to updates, which may never reach it",
        &["trees/betree/src/tree/tests/bound.rs"],
    ),
    bug(
        "probes-not-charged",
        "point reads that search runs without their key never pay for a merge",
        &["trees/betree/src/tree/tests/read_charges.rs", "trees/lsm/src/tree/tests/read_charges.rs"],
    ),
    bug(
        "overwrites-seen-late",
        "a splinter tree buffers as if all updates were new until leaves are rewritten",
        &["trees/betree/src/tree/tests/space.rs"],
    ),
    bug(
        "one-pivot-per-update",
        "a Bε-tree node flushes one pivot per update, however much comes in",
        &["trees/betree/src/tree/tests/bound.rs"],
    ),
    bug(
        "children-outside-of-scopes",
        "jobs of a Bε-tree begin although others change the same leaves",
        &["trees/betree/src/tree/tests/several_jobs.rs"],
    ),
    bug(
        "joined-below-what-came-in",
        "leaves are joined although entries arrived for one of them meanwhile",
        &["trees/betree/src/tree/tests/later.rs"],
    ),
    bug(
        "tiers-on-top-forgotten",
        "a job is installed without the tiers added to its node meanwhile",
        &["trees/betree/src/tree/tests/later.rs"],
    ),
    bug(
        "tree-set-during-a-round",
        "a keyspace gets its tree from before the flush in progress",
        &["schedules/trees"],
    ),
    bug("stale-page-in-cache", "pages stay in the cache when their extent is reused", &["model"]),
    bug("cached-record-kept-at-flush", "a flush forgets to replace cached records", &["model"]),
    bug("later-record-in-cache", "a snapshot returns a cached record of a later tree", &["snapshots"]),
    bug(
        "stale-record-filled",
        "a record read from an older tree is cached for a newer one",
        &["schedules/records"],
    ),
    bug(
        "torn-record-read",
        "a cached record is read while a flush replaces it, half old and half new",
        &["schedules/records"],
    ),
    bug(
        "hot-set-stamp-ignored",
        "records of an older state of a tree are restored to the record cache",
        &["hot-set"],
    ),
    bug(
        "hot-set-checksum-ignored",
        "records of a damaged file `hot-set` are restored to the record cache",
        &["hot-set"],
    ),
    bug("extent-freed-while-held", "extents are reused while a snapshot reads them", &["snapshots"]),
    bug(
        "move-without-bound",
        "a job of a leveled tree moves data regardless of the bytes that it merges",
        &["trees/lsm/src/tree/tests/job_bytes.rs"],
    ),
    bug(
        "jobs-that-touch-allowed",
        "a leveled tree offers jobs on layers that a job in flight replaces",
        &["trees/lsm/src/tree/tests/side_by_side.rs"],
    ),
    bug(
        "tombstones-flushed-all-at-once",
        "one job flushes all pivots with many tombstones",
        &["trees/betree/src/tree/tests/tombstones.rs"],
    ),
    bug(
        "jobs-that-touch-begun",
        "jobs of a keyspace run side by side although their scopes overlap",
        &["engine/db/src/tests/jobs.rs", "schedules/two-jobs"],
    ),
    bug(
        "job-of-dropped-keyspace-installed",
        "a job is installed although its keyspace was dropped meanwhile",
        &["engine/db/src/tests/jobs.rs", "schedules/dropped-jobs"],
    ),
    bug(
        "dropped-job-frees-runs",
        "a discarded job releases the runs that it would have replaced",
        &["engine/db/src/tests/jobs.rs", "schedules/dropped-jobs"],
    ),
    bug("settled-only-at-rest", "settling ends only without writers", &["engine/db/src/tests/settle.rs"]),
    bug("gap-never-remembered", "each scan passes all tombstones one by one", &["queues"]),
    bug("gap-outlives-a-write", "scans seek past entries written into a gap", &["queues"]),
    bug("gap-known-unchecked", "a gap is recorded despite writes since its scan began", &["queues"]),
    bug("gap-shown-to-older-snapshot", "a gap hides entries removed after a snapshot", &["queues"]),
    bug(
        "version-pruned-under-snapshot",
        "an overwrite removes the version that a snapshot needs",
        &["snapshots"],
    ),
    bug("snapshot-sees-later-commit", "a read of a snapshot is one commit too new", &["snapshots"]),
    // Races.
    bug(
        "snapshot-registered-late",
        "a snapshot is registered after the lock was released",
        &["schedules/snapshots"],
    ),
    bug("batch-published-half", "a snapshot does not wait for a batch in progress", &["schedules/batches"]),
    bug(
        "own-seqno-not-awaited",
        "a wait for a commit does not include the last one",
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
        "a commit slips in between the last sync and the end of the log",
        &["schedules/closing"],
    ),
    bug("next-leader-not-woken", "no thread leads the next sync round", &["schedules/synced"]),
    bug(
        "close-wakes-nobody",
        "closing does not wake the helpers that it waits for",
        &["schedules/registers"],
    ),
    bug(
        "page-unpinned-for-a-moment",
        "a new cached page can be evicted while it is read",
        &["schedules/cache"],
    ),
    bug("new-handle-overlooked", "an extent is freed although it was held again", &["schedules/extents"]),
    // Bounds of memory.
    bug("batch-bound-ignored", "the size of a batch is not bounded", &["bounds"]),
    bug(
        "write-memory-never-moves",
        "the governor's decisions do not change write memory",
        &["testudo/tests/store/memory.rs"],
    ),
    bug("pages-kept-from-writers", "pages count as released but keep their memory", &["bounds"]),
    bug("metadata-not-made-room-for", "caches ignore the memory of keyspaces and trees", &["bounds"]),
    bug("flushed-buffers-kept", "holders keep flushed write buffers", &["bounds"]),
    bug("relieved-snapshot-sees-later", "spilled write buffers show later writes", &["bounds", "holders"]),
    bug("neighbours-do-not-share", "each snapshot spills its own write buffer", &["holders"]),
    bug("spill-keeps-newest-only", "older snapshots find nothing in spilled write buffers", &["holders"]),
    bug("iterators-keep-sources", "many iterators keep all their read state", &["holders"]),
    bug("parked-iterator-repeats", "an iterator continues before its parked position", &["holders"]),
    bug(
        "spilled-pages-salvaged",
        "a salvage treats spilled write buffers as records",
        &["testudo/tests/store/holders.rs"],
    ),
    bug("holes-of-the-log-read", "a salvage reads the holes of the log page by page", &["bounds"]),
    bug("reader-holds-the-whole-log", "a reader's memtables take all of the log", &["bounds"]),
];

#[cfg(test)]
mod tests;
