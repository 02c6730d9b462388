//! The only callers of the system's clocks.

use chrono::{DateTime, Utc};
use std::time::{Duration, Instant};

/// The monotonic clock, used for every wait and deadline, and to decide that a process is dead.
#[expect(clippy::disallowed_methods, reason = "this is the one source")]
pub fn instant() -> Instant {
    Instant::now()
}

/// This machine's calendar time, for what is shown or noted where no database is asked.
#[expect(clippy::disallowed_methods, reason = "this is the one source")]
pub fn calendar() -> DateTime<Utc> {
    Utc::now()
}

/// Practically never.
pub(crate) const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Returns the instant after `timeout`.
///
/// A timeout too long to add, such as `Duration::MAX`, becomes [`NEVER`].
pub fn deadline(timeout: Duration) -> Instant {
    let now = instant();
    now.checked_add(timeout).unwrap_or(now + NEVER)
}

/// Returns the time since the host was started, including time in suspension.
///
/// A process on a laptop that slept must notice that its lease has run out.
#[cfg(target_os = "linux")]
pub(crate) fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

/// Returns the time since the first call. Outside Linux, time in suspension is not counted.
#[cfg(not(target_os = "linux"))]
pub(crate) fn since_boot() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(instant).elapsed()
}

/// Returns the processor time that this process has used.
#[cfg(feature = "laboratory")]
pub(crate) fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Sleeps, for loops that poll something that cannot be waited for.
#[expect(clippy::disallowed_methods, reason = "this is the one source")]
pub fn nap(duration: Duration) {
    std::thread::sleep(duration);
}

/// Returns `base` with a jitter of up to a tenth either way, at most about [`NEVER`].
///
/// It keeps processes that started together from sending their heartbeats together.
pub(crate) fn jittered(base: Duration) -> Duration {
    base.min(NEVER).mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Returns a duration as users write it: `400d`, `1h 30m`. Months and years have no fixed length.
#[expect(clippy::disallowed_methods, reason = "this is the one source")]
pub fn in_units(duration: Duration) -> String {
    const DAY: u64 = 86_400;
    let days = duration.as_secs() / DAY;
    let rest = humantime::format_duration(Duration::new(
        duration.as_secs() % DAY,
        duration.subsec_nanos(),
    ));
    match (days, rest.get_ref().is_zero()) {
        (0, _) => rest.to_string(),
        (days, true) => format!("{days}d"),
        (days, false) => format!("{days}d {rest}"),
    }
}

/// A growing delay between attempts at something that may recover.
#[derive(Debug)]
pub(crate) struct RetryDelay {
    next: Duration,
    cap: Duration,
}

impl RetryDelay {
    const FIRST: Duration = Duration::from_millis(50);

    /// Doubles from 50 ms up to `cap`.
    pub(crate) fn up_to(cap: Duration) -> Self {
        RetryDelay {
            next: Self::FIRST.min(cap),
            cap,
        }
    }

    /// Returns the delay before the next attempt: a random part, between half and all of it.
    pub(crate) fn delay(&mut self) -> Duration {
        let delay = self.next.mul_f64(0.5 + 0.5 * fastrand::f64());
        self.next = (self.next * 2).min(self.cap);
        delay
    }

    /// Forgets the failures.
    pub(crate) fn reset(&mut self) {
        self.next = Self::FIRST.min(self.cap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_shown_as_it_is_written() {
        for text in [
            "0s",
            "90ms",
            "1m 30s",
            "12h",
            "1d",
            "400d",
            "1d 2h",
            "36500d 1s 5ms",
        ] {
            let duration = humantime::parse_duration(text).unwrap();
            assert_eq!(in_units(duration), text);
        }
        let longest = in_units(Duration::MAX);
        assert_eq!(humantime::parse_duration(&longest), Ok(Duration::MAX));
    }

    #[test]
    fn a_jitter_of_for_ever_is_for_ever() {
        for _ in 0..1_000 {
            assert!(jittered(Duration::MAX) > NEVER / 2);
            assert!(jittered(Duration::ZERO).is_zero());
        }
    }
}
