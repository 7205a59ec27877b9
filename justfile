# Runs the same checks as CI, on any machine.
check:
    .ci/run

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
