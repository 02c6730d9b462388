//! The names by which this server may be called.
//!
//! A page elsewhere can make a browser call a server on this host, or in this network, by a name
//! that it controls (DNS rebinding). Its own name in `Host` gives it away. An address in `Host`
//! needs no name, so it cannot be such a call.

use std::net::IpAddr;

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

#[cfg(test)]
mod tests {
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
