//! How often a wrong token may be tried.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time that the limits are for.
const WINDOW: Duration = Duration::from_secs(60);

/// Failures of one address.
const OF_ONE: u32 = 10;

/// Failures of all addresses.
const OF_ALL: u32 = 200;

/// The most addresses that are remembered.
const ADDRESSES: usize = 10_000;

/// Counts failed attempts, by address and in all.
#[derive(Debug, Default)]
pub(crate) struct Limiter(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    all: Option<AttemptTally>,
    by_address: HashMap<IpAddr, AttemptTally>,
}

/// The failures since a time.
#[derive(Debug, Clone, Copy)]
struct AttemptTally {
    since: Instant,
    count: u32,
}

impl AttemptTally {
    fn left(self, now: Instant) -> Duration {
        WINDOW.saturating_sub(now.saturating_duration_since(self.since))
    }

    fn add(tally: Option<Self>, now: Instant) -> Self {
        match tally {
            Some(tally) if !tally.left(now).is_zero() => AttemptTally {
                count: tally.count.saturating_add(1),
                ..tally
            },
            _ => AttemptTally {
                since: now,
                count: 1,
            },
        }
    }

    fn refuses(self, most: u32, now: Instant) -> Option<Duration> {
        let left = self.left(now);
        (self.count >= most && !left.is_zero()).then_some(left)
    }
}

/// One customer of a provider has a whole /64 of IPv6.
fn bucket(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & !u128::from(u64::MAX),
        )),
    }
}

impl Limiter {
    /// Returns how long an address must wait before its next attempt, if it must.
    pub(crate) fn refuses(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = failures.by_address.get(&bucket(address));
        let of_one = one.and_then(|tally| tally.refuses(OF_ONE, now));
        of_one.or_else(|| failures.all?.refuses(OF_ALL, now))
    }

    /// Counts a failed attempt.
    pub(crate) fn failed(&self, address: IpAddr, now: Instant) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.all = Some(AttemptTally::add(failures.all, now));
        if failures.by_address.len() >= ADDRESSES {
            failures
                .by_address
                .retain(|_, tally| !tally.left(now).is_zero());
        }
        // With that many addresses, the limit of all of them holds.
        if failures.by_address.len() < ADDRESSES {
            let one = failures.by_address.entry(bucket(address));
            let tally = one.or_insert(AttemptTally {
                since: now,
                count: 0,
            });
            *tally = AttemptTally::add(Some(*tally).filter(|tally| tally.count > 0), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_waits_after_ten_failures() {
        let (limiter, start) = (Limiter::default(), clock::instant());
        let (one, other) = (ip("10.0.0.1"), ip("10.0.0.2"));
        for _ in 0..OF_ONE {
            assert_eq!(limiter.refuses(one, start), None);
            limiter.failed(one, start);
        }
        let later = start + Duration::from_secs(20);
        assert_eq!(limiter.refuses(one, later), Some(Duration::from_secs(40)));
        assert_eq!(limiter.refuses(other, later), None);
        assert_eq!(limiter.refuses(one, start + WINDOW), None);
        limiter.failed(one, start + WINDOW);
        assert_eq!(limiter.refuses(one, start + WINDOW), None);
    }

    #[test]
    fn all_addresses_together_wait_as_well() {
        let (limiter, now) = (Limiter::default(), clock::instant());
        for number in 0..OF_ALL {
            limiter.failed(ip(&format!("10.0.{}.{}", number / 250, number % 250)), now);
        }
        assert!(limiter.refuses(ip("8.8.8.8"), now).is_some());
        assert!(limiter.refuses(ip("8.8.8.8"), now + WINDOW).is_none());
    }

    #[test]
    fn addresses_of_one_network_count_together() {
        let (limiter, now) = (Limiter::default(), clock::instant());
        for number in 0..OF_ONE {
            limiter.failed(ip(&format!("2001:db8::{number:x}")), now);
        }
        assert!(limiter.refuses(ip("2001:db8::ffff"), now).is_some());
        assert!(limiter.refuses(ip("2001:db8:0:1::1"), now).is_none());
    }
}
