//! Addresses of trusted proxies, and the client's address behind them.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An address, or all that start with the same bits: `10.0.0.5`, `10.0.0.0/8`, `fd00::/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressRange {
    start: IpAddr,
    bits: u8,
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not an address such as `10.0.0.5`, nor a range such as `10.0.0.0/8`"
            )
        };
        let (address, bits) = text.trim().split_once('/').unwrap_or((text.trim(), ""));
        let start: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if start.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            "" => most,
            bits => bits.parse().map_err(|_| wrong())?,
        };
        if bits > most {
            return Err(wrong());
        }
        Ok(AddressRange { start, bits })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.start, self.bits)
    }
}

impl AddressRange {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, unused: u32| {
            unused >= u128::BITS || (a ^ b).checked_shr(unused).unwrap_or(0) == 0
        };
        match (self.start, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(
                u32::from(a).into(),
                u32::from(b).into(),
                32 - u32::from(self.bits),
            ),
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                same(u128::from(a), u128::from(b), 128 - u32::from(self.bits))
            }
            _ => false,
        }
    }
}

/// Returns the client's address: the last one in `X-Forwarded-For` that is not a trusted proxy.
pub(crate) fn client(trusted: &[AddressRange], peer: IpAddr, forwarded_for: &[&str]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|range| range.contains(address));
    let mut client = peer.to_canonical();
    let hops = forwarded_for.iter().flat_map(|line| line.split(','));
    let hops: Vec<&str> = hops.map(str::trim).collect();
    for hop in hops.into_iter().rev() {
        if !is_trusted(client) {
            break;
        }
        // Some proxies add the port.
        let with_port = || hop.parse::<SocketAddr>().map(|address| address.ip());
        match hop.parse::<IpAddr>().or_else(|_| with_port()) {
            Ok(address) => client = address.to_canonical(),
            Err(_) => break,
        }
    }
    client
}

// --- The names by which this server may be called ---

/// Splits `name:port` into the name in lower case, without brackets, and the port.
pub(crate) fn split(host: &str) -> Option<(String, Option<&str>)> {
    let (name, rest) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => match host.find(':') {
            Some(at) => host.split_at(at),
            None => (host, ""),
        },
    };
    let port = match rest {
        "" => None,
        rest => Some(rest.strip_prefix(':')?),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if name.is_empty() || port.is_some_and(|port| !is_port(port)) {
        return None;
    }
    Some((name.trim_end_matches('.').to_ascii_lowercase(), port))
}

/// Returns whether a server with these names may answer to this `Host`.
pub(crate) fn is_ours(host: &str, names: &[String]) -> bool {
    let Some((name, _)) = split(host) else {
        return false;
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok() || names.contains(&name)
}

/// Returns whether this `Host` is this very host. If only this host can connect, another name or
/// address means that something passes requests on.
pub(crate) fn is_loopback(host: &str) -> bool {
    let Some((name, _)) = split(host) else {
        return false;
    };
    let address = name.parse::<IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

// --- The limit of wrong tokens ---

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

    fn range(text: &str) -> AddressRange {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_contain_what_starts_like_them() {
        for (text, inside, outside) in [
            ("10.0.0.5", "10.0.0.5", "10.0.0.4"),
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("0.0.0.0/0", "8.8.8.8", "::1"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("::/0", "fe80::1", "1.1.1.1"),
            ("127.0.0.1", "::ffff:127.0.0.1", "::1"),
        ] {
            assert!(range(text).contains(ip(inside)), "{text} {inside}");
            assert!(!range(text).contains(ip(outside)), "{text} {outside}");
        }
        for wrong in ["", "10.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/x", "host"] {
            assert!(wrong.parse::<AddressRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_trusted_proxies_name_the_client() {
        let trusted = [range("10.0.0.0/8"), range("127.0.0.1")];
        let client = |peer: &str, lines: &[&str]| client(&trusted, ip(peer), lines).to_string();
        assert_eq!(client("8.8.8.8", &["1.1.1.1"]), "8.8.8.8");
        assert_eq!(client("127.0.0.1", &[]), "127.0.0.1");
        assert_eq!(client("127.0.0.1", &["1.1.1.1"]), "1.1.1.1");
        // A client may send the header itself: what the proxy added is last.
        assert_eq!(
            client("127.0.0.1", &["6.6.6.6, 1.1.1.1", "10.0.0.9"]),
            "1.1.1.1"
        );
        assert_eq!(client("127.0.0.1", &["6.6.6.6, junk"]), "127.0.0.1");
    }

    #[test]
    fn a_proxy_may_add_the_port() {
        let trusted = [range("10.0.0.0/8")];
        for hop in ["192.0.2.7:4711", "192.0.2.7"] {
            assert_eq!(client(&trusted, ip("10.0.0.1"), &[hop]), ip("192.0.2.7"));
        }
        let hop = "[2001:db8::7]:4711";
        assert_eq!(client(&trusted, ip("10.0.0.1"), &[hop]), ip("2001:db8::7"));
    }
}

#[cfg(test)]
mod host_tests {
    use super::*;

    #[test]
    fn only_our_names_are_answered() {
        let names = ["jobs.example.com".to_owned()];
        for host in [
            "localhost",
            "localhost:4040",
            "LOCALHOST.:1",
            "127.0.0.1:4040",
            "[::1]:4040",
            "[::1]",
            "10.0.0.7",
            "jobs.example.com",
            "Jobs.Example.com:443",
        ] {
            assert!(is_ours(host, &names), "{host}");
        }
        for host in [
            "",
            ":4040",
            "evil.example",
            "evil.example:4040",
            "jobs.example.com.evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:x",
            "localhost:",
            "[::1",
            "[::1]x",
            "a@localhost",
            "localhost/",
            "localhost evil.example",
        ] {
            assert!(!is_ours(host, &names), "{host}");
        }
        for host in ["127.8.9.1:1", "[::1]:1", "[::ffff:127.0.0.1]", "localhost"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["10.0.0.1:1", "jobs.example.com", "[::2]", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}

#[cfg(test)]
mod limiter_tests {
    use super::*;
    use windlass::internal::clock;

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
