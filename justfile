# What CI runs, the same on every machine.
check:
    .ci/run

# The checks of the repository itself.
tidy:
    cargo run --quiet --package xtask -- tidy

# Lays out all code.
fmt:
    cargo fmt --all

# Runs a layer of tests long: `just sim crash --count 500000`. `just sim list` names all layers.
sim *arguments:
    cargo run --quiet --release --package testudo-sim -- {{arguments}}

# Searches more thread schedules than CI, with other seeds.
schedules:
    cargo run --quiet --package xtask -- schedules --long

# Feeds hostile bytes to each reader of files, for so many seconds each.
fuzz seconds="60":
    cargo run --quiet --release --package testudo-fuzz -- all --seconds {{seconds}}
