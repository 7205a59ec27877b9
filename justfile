# What CI runs, the same on every machine.
check:
    .ci/run

# The checks of the repository itself.
tidy:
    cargo run --quiet --package xtask -- tidy

# Lays out all code.
fmt:
    cargo fmt --all
