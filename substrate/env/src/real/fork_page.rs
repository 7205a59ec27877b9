#![expect(unsafe_code, reason = "a page that the kernel zeroes in forked children")]
//! A word that is nonzero in this process once set, and zero in a forked child until the child sets it.
//!
//! It is in a separate page that the kernel wipes at a fork (`MADV_WIPEONFORK`), whatever code forks, by
//! whatever call: `pthread_atfork` handlers would miss a plain `clone`.
//!
//! **Invariants**
//! - The page is created once and exists until the process ends.
//! - Nothing blocks here: a child may be forked in the middle of any call of another thread.

#[cfg(all(target_os = "linux", not(miri)))]
mod page {
    use std::{
        ptr::{self, NonNull},
        sync::atomic::{
            AtomicBool, AtomicPtr, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    };

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    const PAGE_BYTES: usize = 4096;

    static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
    /// The kernel cannot wipe pages.
    static IS_REFUSED: AtomicBool = AtomicBool::new(false);

    pub(crate) fn word() -> Option<&'static AtomicU64> {
        let known = WORD.load(Acquire);
        if !known.is_null() {
            // SAFETY: as below, whichever thread stored it.
            return Some(unsafe { &*known });
        }
        if IS_REFUSED.load(Relaxed) {
            return None;
        }
        let Some(fresh) = map() else {
            IS_REFUSED.store(true, Relaxed);
            return None;
        };
        let stored = match WORD.compare_exchange(ptr::null_mut(), fresh.as_ptr(), AcqRel, Acquire) {
            Ok(_) => fresh.as_ptr(),
            Err(first) => {
                // SAFETY: `map` has just created it, and it was not published.
                unsafe { unmap(fresh) };
                first
            }
        };
        // SAFETY: it points to a page of zeros, which are a valid `AtomicU64`. The page is written only
        // through it and never unmapped.
        Some(unsafe { &*stored })
    }

    fn map() -> Option<NonNull<AtomicU64>> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at any address, with no other user.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_BYTES, access, flags) };
        let page: NonNull<AtomicU64> = NonNull::new(start.ok()?.cast())?;
        // SAFETY: the page is ours alone, and is zero before and after a fork.
        let advised = unsafe { madvise(page.as_ptr().cast(), PAGE_BYTES, Advice::LinuxWipeOnFork) };
        if advised.is_err() {
            // SAFETY: it was just mapped, and nothing else knows it.
            unsafe { unmap(page) };
            return None;
        }
        Some(page)
    }

    /// Releases a page.
    ///
    /// # Safety
    ///
    /// `map` created it, and it has no other user.
    unsafe fn unmap(page: NonNull<AtomicU64>) {
        // SAFETY: exactly this was mapped, and its only owner releases it.
        let _ = unsafe { munmap(page.as_ptr().cast(), PAGE_BYTES) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod page {
    use std::sync::atomic::AtomicU64;

    pub(crate) fn word() -> Option<&'static AtomicU64> {
        None
    }
}

/// Returns the word; `None` where the kernel cannot wipe a page.
pub(crate) use page::word;
