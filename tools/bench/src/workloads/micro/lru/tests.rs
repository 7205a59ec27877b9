use super::*;

#[test]
fn least_recently_used_page_is_evicted_first() {
    let cache = ShardedLru::new(16);
    let shard = |page: u64| usize_of(spread(page) >> 60);
    // One page per shard: the second page of the same shard replaces the first.
    let (first, second) = (7, (8..).find(|&page| shard(page) == shard(7)).unwrap());
    cache.put(first, &[1]);
    cache.put(second, &[2]);
    assert!(cache.get(first).is_none());
    assert_eq!(&*cache.get(second).unwrap(), &[2]);

    let cache = ShardedLru::new(32);
    let third = (second + 1..).find(|&page| shard(page) == shard(7)).unwrap();
    cache.put(first, &[1]);
    cache.put(second, &[2]);
    assert!(cache.get(first).is_some());
    cache.put(third, &[3]);
    assert!(cache.get(second).is_none());
    assert!(cache.get(first).is_some() && cache.get(third).is_some());
}
