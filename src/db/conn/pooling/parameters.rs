//! The parameters of an address that are for libpq.

use crate::db::conn::address::{connect_timeout, host_count};
use crate::deadline::{Deadline, Hurry};
use std::time::Duration;

/// Default parameters for libpq: without them, a half-open connection hangs for hours.
const PARAMETERS: [(&str, &str); 7] = [
    ("connect_timeout", "5"),
    ("keepalives_idle", "10"),
    ("keepalives_interval", "5"),
    ("keepalives_count", "3"),
    (TCP_USER_TIMEOUT, "20000"),
    ("target_session_attrs", "read-write"),
    ("application_name", "windlass"),
];

/// The parameter that marks a connection's socket; see [`crate::deadline`].
pub(crate) const TCP_USER_TIMEOUT: &str = "tcp_user_timeout";

/// The time limit to connect to the last host and to set up the session.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);

pub(crate) fn with_defaults(url: &str) -> String {
    let mut url = url.to_owned();
    for (name, value) in PARAMETERS {
        if !url.contains(&format!("{name}=")) {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&format!("{name}={value}"));
        }
    }
    url
}

/// Returns the time limit to connect: libpq may have to wait for each host but the last.
pub(crate) fn connect_limit(url: &str) -> Duration {
    let others = u32::try_from(host_count(url) - 1).unwrap_or(u32::MAX);
    let each = connect_timeout(url).map_or(CONNECT, |seconds| Duration::from_secs(seconds.into()));
    CONNECT.saturating_add(each.saturating_mul(others))
}

/// Returns where the value of `tcp_user_timeout` is in an address.
fn user_timeout(url: &str) -> Option<std::ops::Range<usize>> {
    let name = format!("{TCP_USER_TIMEOUT}=");
    let start = url.find(&name)? + name.len();
    let length = url[start..].find('&').unwrap_or(url.len() - start);
    Some(start..start + length)
}

/// Returns a deadline for a connection to be opened, and the address that tags its socket.
pub(crate) fn tagged(url: &str, hurry: Option<Hurry>) -> (Deadline, String) {
    let place = user_timeout(url);
    let own = place.clone().and_then(|place| url[place].parse().ok());
    let deadline = Deadline::new(own.unwrap_or(20_000), hurry);
    let mut url = url.to_owned();
    if let Some(place) = place {
        url.replace_range(place, &deadline.tag().to_string());
    }
    (deadline, url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_its_time() {
        for (url, seconds) in [
            ("postgres://a/d", 10),
            ("postgres://a,b/d", 15),
            ("postgres://a,b,c/d?connect_timeout=2", 14),
            ("postgres://a,b/d?connect_timeout=0", 20),
        ] {
            let limit = connect_limit(&with_defaults(url));
            assert_eq!(limit, Duration::from_secs(seconds), "{url}");
        }
    }

    #[test]
    fn the_tag_comes_on_top_of_the_users_own_timeout() {
        for (parameter, base) in [("", 20_000), ("tcp_user_timeout=0", 86_400_000)] {
            let url = with_defaults(&format!("postgres://h/d?{parameter}"));
            let (deadline, url) = tagged(&url, None);
            assert!(deadline.tag() > base && deadline.tag() < base + 10_000);
            assert!(url.contains(&format!("tcp_user_timeout={}", deadline.tag())));
            assert_eq!(url.matches("tcp_user_timeout").count(), 1, "{url}");
        }
    }
}
