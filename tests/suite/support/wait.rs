//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

/// The time that any condition of a test may take on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// The longest pause between two looks. A look takes processor time from other tests, so looks become rarer the longer
/// a wait lasts.
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

/// Waits until `condition` gives a value.
///
/// # Panics
/// Panics if it has not within [`DEADLINE`].
pub fn eventually<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    eventually_within(DEADLINE, what, condition)
}

fn eventually_within<T>(
    deadline: Duration,
    what: &str,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(
            start.elapsed() < deadline,
            "not within {deadline:?}: {what}"
        );
        let pause = start.elapsed() / 8;
        std::thread::sleep(pause.clamp(Duration::from_millis(1), LONGEST_PAUSE));
    }
}

/// Waits until `condition` is true.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    eventually(what, || condition().then_some(()));
}

/// Waits until nothing is left, for as long as it becomes less.
pub fn until_none_is_left(what: &str, mut left: impl FnMut() -> i64) {
    let mut last = left();
    while last > 0 {
        last = eventually(what, || Some(left()).filter(|now| *now < last));
    }
}

/// Waits until `condition` is true, where something else would make it true
/// later on.
pub fn within(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    eventually_within(deadline, what, || condition().then_some(()));
}
