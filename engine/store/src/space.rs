//! Space of the device: the reserve and the policy for a device that is full or nearly full.

pub mod nearly_full;
pub mod space_guard;
