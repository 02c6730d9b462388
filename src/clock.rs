//! The only callers of the system's clocks.

use std::time::{Duration, Instant};

/// The monotonic clock: for every wait, deadline and judgement of death.
#[expect(clippy::disallowed_methods, reason = "this is the one source")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// As good as never.
pub(crate) const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// That much from now, or as good as never when it is too long to be counted:
/// `Duration::MAX` is how one writes "for ever".
pub(crate) fn deadline(timeout: Duration) -> Instant {
    let now = instant();
    now.checked_add(timeout).unwrap_or(now + NEVER)
}

/// Time since the host was started, including the time it was suspended: a
/// process on a laptop that slept must notice that its trust has run out.
#[cfg(target_os = "linux")]
pub(crate) fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

/// Time since the first call; elsewhere than on Linux a suspended host's
/// pause is not seen.
#[cfg(not(target_os = "linux"))]
pub(crate) fn since_boot() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(instant).elapsed()
}

/// The processor time that this process has used.
#[cfg(feature = "cli")]
pub(crate) fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Sleeps; for a loop that looks at something that cannot be waited for.
#[expect(clippy::disallowed_methods, reason = "this is the one source")]
pub(crate) fn nap(duration: Duration) {
    std::thread::sleep(duration);
}

/// `base`, up to a tenth shorter or longer, so that many processes started
/// at once do not beat at once; at most about [`NEVER`].
pub(crate) fn jittered(base: Duration) -> Duration {
    base.min(NEVER).mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// A growing delay between attempts at something that may come back.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    cap: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);

    /// Doubles from 50 ms up to `cap`.
    pub(crate) fn up_to(cap: Duration) -> Self {
        Backoff {
            next: Self::FIRST.min(cap),
            cap,
        }
    }

    /// The delay before the next attempt, between half and the whole of it.
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
    fn a_jitter_of_for_ever_is_for_ever() {
        for _ in 0..1_000 {
            assert!(jittered(Duration::MAX) > NEVER / 2);
            assert!(jittered(Duration::ZERO).is_zero());
        }
    }
}
