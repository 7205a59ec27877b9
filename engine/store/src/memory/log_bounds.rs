//! Sizes of write buffers and of the log, by the memory budget and the space of the device.

use crate::Store;

/// Length of the log in bytes beyond which the buffers that pin it are flushed.
pub fn log_bound(store: &Store) -> u64 {
    if store.nearly_full.is_on() {
        store.nearly_full.bounds.lock().log_bytes
    } else {
        store.memory.shares().log_bound()
    }
}

/// Sizes write buffers and log by memory and device.
pub fn bound_buffers(store: &Store) {
    let mut write_buffers = store.memory.shares().write_buffers;
    if store.nearly_full.is_on() {
        write_buffers = write_buffers.min(store.nearly_full.bounds.lock().write_buffers);
    }
    store.backpressure.set_write_buffers(write_buffers);
    bound_log(store);
}

/// Sizes log segments by memory and device.
pub fn bound_log(store: &Store) {
    if let Some(wal) = &store.log.wal {
        wal.set_segment_bytes(segment_bytes(store));
    }
}

/// Size of log segments, by memory and by the last measured space of the device.
pub fn segment_bytes(store: &Store) -> u64 {
    let segment_bytes = store.memory.shares().wal_segment_bytes();
    if store.nearly_full.is_on() {
        segment_bytes.min(store.nearly_full.bounds.lock().segment_bytes)
    } else {
        segment_bytes
    }
}
