use super::{show_count, show_size};

#[test]
fn sizes_and_counts_are_human_readable() {
    assert_eq!(show_size(812), "812 B");
    assert_eq!(show_size(1536), "1.5 KiB");
    assert_eq!(show_size((1 << 20) - 1), "1.0 MiB");
    assert_eq!(show_size(64 << 20), "64.0 MiB");
    assert_eq!(show_count(7), "7");
    assert_eq!(show_count(1000), "1,000");
    assert_eq!(show_count(1_234_567), "1,234,567");
}
