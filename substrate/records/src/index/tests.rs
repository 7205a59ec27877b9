//! The bit layout of slots.

use super::*;

#[test]
fn slot_fields_round_trip() {
    for (segment, place) in [(0, 1), (SEGMENTS_MAX - 1, SEGMENT_WORDS_MAX - 1), (77, 12_345)] {
        for priority in 0..=PRIORITY_MAX {
            let at = Location { segment, place };
            let tag = (1 << TAG_BITS) - 1 - segment;
            let slot = Slot::new(tag, priority, at);
            assert!(!slot.is_empty());
            assert_eq!((slot.tag(), slot.priority(), slot.location()), (tag, priority, at));
            let raised = slot.raised();
            assert_eq!(raised.is_some(), priority < PRIORITY_MAX);
            if let Some(raised) = raised {
                assert_eq!((raised.tag(), raised.priority(), raised.location()), (tag, priority + 1, at));
            }
        }
    }
}
