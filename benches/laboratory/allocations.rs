//! Counts the allocations of the process, for programs that contain the laboratory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The allocator of the system. What is freed is not counted.
struct CountingAllocator;

/// A count for itself in its line of the cache: threads that wrote to a common one would wait for each other.
#[repr(align(64))]
struct Shard(AtomicU64);

static SHARDS: [Shard; 64] = [const { Shard(AtomicU64::new(0)) }; 64];

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of this thread.
    static HERE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Returns how many allocations this process has made.
pub(crate) fn of_all_threads() -> u64 {
    SHARDS
        .iter()
        .map(|shard| shard.0.load(Ordering::Relaxed))
        .sum()
}

fn count() {
    let mut thread = HERE.get();
    if thread == usize::MAX {
        thread = THREADS.fetch_add(1, Ordering::Relaxed);
        HERE.set(thread);
    }
    SHARDS[thread % SHARDS.len()]
        .0
        .fetch_add(1, Ordering::Relaxed);
}

// SAFETY: everything is left to the allocator of the system.
#[expect(unsafe_code, reason = "an allocator is unsafe")]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}
