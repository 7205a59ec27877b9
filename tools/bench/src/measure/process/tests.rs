use super::{cpu_seconds, field};

#[test]
fn field_matches_the_whole_name() {
    let text = "read_bytes: 12\nwrite_bytes: 34\ncancelled_write_bytes: 56\nVmHWM:\t  789 kB\n";
    assert_eq!(field(text, "write_bytes:"), Some(34));
    assert_eq!(field(text, "VmHWM:"), Some(789));
    assert_eq!(field(text, "bytes:"), None);
}

#[test]
fn cpu_time_increases_during_work() {
    let before = cpu_seconds();
    let mut sum = 0u64;
    for number in 0..20_000_000u64 {
        sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(number));
    }
    assert!(cpu_seconds() > before);
}
