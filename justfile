# Runs the same checks as CI, on any machine.
check:
    .ci/run

# Before each commit, in under five minutes on a built checkout: format, rules, lints, unit tests.
quick:
    cargo fmt --all --check
    cargo run --quiet --package xtask -- tidy
    cargo clippy --workspace --all-targets --quiet -- -D warnings
    cargo test --workspace --lib --quiet --exclude testudo-sim --exclude testudo-planted

# The whole short forms of all tests, and all planted bugs: about an hour on two cores.
long:
    TESTUDO_TESTS=short cargo test --workspace
    cargo run --quiet --package xtask -- planted

# Checks the rules of the repository.
tidy:
    cargo run --quiet --package xtask -- tidy

# Formats all code.
fmt:
    cargo fmt --all

# Runs a test layer long: `just sim crash --count 500000`. `just sim list` lists all layers.
sim *arguments:
    cargo run --quiet --release --package testudo-sim -- {{arguments}}

# Searches more thread schedules than CI, with other seeds.
schedules:
    cargo run --quiet --package xtask -- schedules --long

# Feeds hostile bytes to each file reader, for `seconds` each.
fuzz seconds="60":
    cargo run --quiet --release --package testudo-fuzz -- all --seconds {{seconds}}

# Runs the unit tests of the modules with unsafe code, except those that call the system, under Miri.
miri:
    MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" cargo +nightly miri test --lib \
        --package testudo-base large_slice
    MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" cargo +nightly miri test --lib \
        --package testudo-memtable
    MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" cargo +nightly miri test --lib \
        --package testudo-wal append::buffer
    MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" cargo +nightly miri test --lib \
        --package testudo-storage cache::pins

# Runs the unit tests of the substrate with AddressSanitizer (nightly), in minutes. Buffers of abandoned reads
# are leaked on purpose; the job *leaks* of `long.yml` searches for others.
sanitize:
    ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS=-Zsanitizer=address \
        cargo +nightly test --lib --no-fail-fast --target x86_64-unknown-linux-gnu --target-dir target/sanitize --package testudo-base --package testudo-env --package testudo-filter \
        --package testudo-memtable --package testudo-records --package testudo-wal --package testudo-storage \
        --package testudo-run --package testudo-values
