use super::*;

const SIZE: usize = 4096;

fn size(bytes: usize) -> ClaimSize {
    ClaimSize::of_record(bytes)
}

/// Claims as the log does: creates a buffer where one is allowed.
fn claim(tail: &mut Tail, bytes: usize, seqno_count: u32) -> Option<(Claim, Seqno)> {
    let claimed = tail.claim(size(bytes), 0, seqno_count).or_else(|| {
        if !tail.turn(size(bytes))
            && let Some(wanted) = tail.begin_buffer()
        {
            let buffer = EmptyBuffer::new(wanted.bytes, false);
            tail.add_begun(wanted, buffer);
            tail.turn(size(bytes));
        }
        tail.claim(size(bytes), 0, seqno_count)
    });
    claimed.map(|(claim, stamp)| (claim, stamp.first_seqno))
}

#[test]
fn seqnos_and_positions_grow_together_across_buffers() {
    let mut tail = Tail::new(SIZE, 3, Seqno(10));
    let (first, seqno) = claim(&mut tail, 3000, 5).unwrap();
    assert_eq!(seqno, Seqno(10));
    let (second, seqno) = claim(&mut tail, 3000, 1).unwrap();
    assert_eq!((seqno, tail.last_seqno()), (Seqno(15), Seqno(15)));
    drop((first, second));
    tail.seal();
    let oldest = tail.pop_sealed().unwrap();
    assert_eq!((oldest.first_seqno, oldest.last_seqno), (Seqno(10), Seqno(14)));
    let next = tail.pop_sealed().unwrap();
    assert_eq!((next.first_seqno, next.last_seqno), (Seqno(15), Seqno(15)));
    assert!(tail.pop_sealed().is_none());
}

#[test]
fn buffer_count_limit_holds_with_oversized_records() {
    let mut tail = Tail::new(SIZE, 2, Seqno(1));
    drop(claim(&mut tail, SIZE, 1).unwrap());
    drop(claim(&mut tail, 10 * SIZE, 1).unwrap());
    assert!(tail.is_full(size(8)));
    assert!(claim(&mut tail, 8, 1).is_none());
    assert_eq!(tail.last_seqno(), Seqno(2), "a refused claim assigns nothing");
    for _ in 0..2 {
        let records = tail.pop_sealed().unwrap();
        tail.recycle(records.buffer.recycle());
    }
    drop(claim(&mut tail, 3 * SIZE, 1).unwrap());
    drop(claim(&mut tail, SIZE, 1).unwrap());
    assert!(claim(&mut tail, 8, 1).is_none());
}

/// Fills `count` buffers before writing them.
fn pile_up(tail: &mut Tail, count: usize) {
    (0..count).for_each(|_| drop(claim(tail, SIZE, 1)));
    tail.seal();
    while let Some(records) = tail.pop_sealed() {
        tail.recycle(records.buffer.recycle());
    }
}

#[test]
fn trim_releases_buffers_no_longer_needed() {
    let mut tail = Tail::new(SIZE, 12, Seqno(1));
    pile_up(&mut tail, 10);
    tail.trim();
    assert_eq!(tail.extra_bytes(), 6 * SIZE, "they were needed just now");
    pile_up(&mut tail, 7);
    tail.trim();
    assert_eq!(tail.extra_bytes(), 3 * SIZE);
    pile_up(&mut tail, 1);
    tail.trim();
    assert_eq!(tail.extra_bytes(), 0);
    pile_up(&mut tail, 20);
    assert_eq!(tail.extra_bytes(), 8 * SIZE);
}

#[test]
fn buffer_limit_can_drop_while_buffers_are_full() {
    let mut tail = Tail::new(SIZE, 12, Seqno(1));
    (0..10).for_each(|_| drop(claim(&mut tail, SIZE, 1)));
    tail.set_count_max(4);
    assert!(claim(&mut tail, SIZE, 1).is_none());
    for _ in 0..6 {
        let records = tail.pop_sealed().unwrap();
        tail.recycle(records.buffer.recycle());
        assert!(tail.is_full(size(SIZE)));
    }
    let records = tail.pop_sealed().unwrap();
    tail.recycle(records.buffer.recycle());
    assert!(claim(&mut tail, SIZE, 1).is_some());
}

#[test]
fn sealing_without_records_does_nothing() {
    let mut tail = Tail::new(SIZE, 1, Seqno(1));
    tail.seal();
    assert_eq!(tail.sealed_count(), 0);
}

#[test]
fn buffers_start_short_and_double_when_full() {
    let mut tail = Tail::new(1 << 20, 4, Seqno(1));
    let mut lengths = Vec::new();
    for _ in 0..3000 {
        drop(claim(&mut tail, 1000, 1).unwrap());
        while let Some(records) = tail.pop_sealed() {
            let buffer = records.buffer.recycle();
            lengths.push(buffer.capacity() >> 10);
            tail.recycle(buffer);
        }
    }
    assert_eq!(lengths, [64, 128, 256, 512, 1024]);
}

/// Failing to create a buffer leaves the existing ones in place.
#[test]
fn buffers_keep_their_length_if_longer_ones_cannot_be_created() {
    let mut tail = Tail::new(1 << 20, 4, Seqno(1));
    drop(claim(&mut tail, 60 << 10, 1).unwrap());
    assert!(!tail.turn(size(60 << 10)), "it is full, and the only one");
    let wanted = tail.begin_buffer().unwrap();
    assert_eq!((wanted.bytes, wanted.is_needed), (128 << 10, false));
    assert!(!tail.give_up_begun(wanted, size(100 << 10)), "no buffer has room for this");
    let records = tail.pop_sealed().unwrap();
    tail.recycle(records.buffer.recycle());
    assert!(tail.turn(size(60 << 10)), "the first one is reused");
    drop(tail.claim(size(60 << 10), 0, 1).unwrap());
    assert!(!tail.turn(size(60 << 10)));
    let wanted = tail.begin_buffer().unwrap();
    assert!(tail.give_up_begun(wanted, size(60 << 10)), "the first one will have room again");
    assert_eq!(tail.take_given_up().len(), 0);
}
