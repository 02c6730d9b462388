//! Addresses of trusted proxies, and the client's address behind them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

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
