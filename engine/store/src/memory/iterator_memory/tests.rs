use super::*;

const MIB: u64 = 1 << 20;

#[test]
fn iterators_get_an_eighth_of_the_budget_and_caches_follow_in_steps() {
    let memory = IteratorMemory::default();
    assert!(!memory.change(0, MIB / 2, 64 * MIB));
    assert!(memory.change(MIB / 2, 2 * MIB, 64 * MIB), "two steps of a sixty-fourth");
    assert!(!memory.change(0, MIB / 2, 64 * MIB));
    assert!(!memory.is_over_bound(64 * MIB));
    assert!(memory.is_over_bound(16 * MIB), "2.5 MiB is more than an eighth");
    assert!(memory.change(2 * MIB, 0, 64 * MIB));
    assert_eq!(memory.bytes(), MIB / 2);
    assert!(!memory.is_over_bound(MIB), "a small budget has a minimum for iterators");
}
