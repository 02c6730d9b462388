//! Database addresses: how they are displayed, which ones libpq would misread, and their hosts.

/// Returns the address without user, password and parameters, or only its scheme if its parts
/// cannot be told apart with certainty.
pub fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return match url.split_once([':', '=']) {
            Some((word, _)) if is_word(word) => format!("{word}.."),
            _ => url.to_owned(),
        };
    };
    let (before, host) = rest.rsplit_once('@').unwrap_or(("", rest));
    if before.contains('?') || !ports_are_numbers(host) {
        return format!("{scheme}://..");
    }
    let host = host.split('?').next().unwrap_or(host);
    format!("{scheme}://{host}")
}

/// Returns whether the text can stand before `:` or `=`, as in `scheme:` or `key=`. No path should
/// start like that.
pub(crate) fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-_".contains(&b))
}

/// Returns why libpq would misread parts of a Postgres address, and then show pieces of a password
/// as host, port or database.
#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
pub(crate) fn misread(url: &str) -> Option<&'static str> {
    let (_, rest) = url.split_once("://")?;
    let (before, host) = rest.rsplit_once('@').unwrap_or(("", rest));
    if names_a_user_twice(before) {
        return Some(
            "write user and password once, before the first host: `postgres://user@one,two/name`",
        );
    }
    if before.contains(['@', '/', '?', '#']) || !percents_are_codes(rest) {
        return Some("write `@ / ? # %` in user, password and parameters as `%40 %2F %3F %23 %25`");
    }
    if !ports_are_numbers(host) {
        return Some(
            "its port is no number; the form is `postgres://user:password@host:port/name`",
        );
    }
    let hosts: Vec<&str> = hosts(url).split(',').collect();
    if hosts.len() > 1 && hosts.iter().any(|host| name(host).is_empty()) {
        return Some(
            "one of its hosts has no name; the form is `postgres://user@one:5432,two:5432/name`",
        );
    }
    if hosts.iter().any(|host| !can_be_a_port(port(host))) {
        return Some("a port is a number from 1 to 65535");
    }
    let wanted = parameter(url, TARGET).is_none_or(|value| TARGETS.contains(&value));
    (!wanted).then_some(
        "its parameter `target_session_attrs` can be `read-write`, `primary`, `any`, `read-only`, `standby` or \
         `prefer-standby`",
    )
}

/// The parameter that says which of the hosts to connect to, and its values.
const TARGET: &str = "target_session_attrs";
const TARGETS: [&str; 6] = [
    "read-write",
    "primary",
    "any",
    "read-only",
    "standby",
    "prefer-standby",
];

/// Returns whether what is before the last `@` is a user and hosts, as in `me:x@one,me:x@two`.
#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
fn names_a_user_twice(before: &str) -> bool {
    let host = before.split_once('@').map(|(_, host)| host);
    host.is_some_and(|host| host.contains(',') && !host.contains(['/', '?', '#']))
}

/// Returns the value of a parameter of the address.
fn parameter<'a>(url: &'a str, name: &str) -> Option<&'a str> {
    let (_, query) = url.split_once('?')?;
    let mut all = query.split('&').filter_map(|one| one.split_once('='));
    all.find_map(|(key, value)| (key == name).then_some(value))
}

/// Returns the hosts of an address that is not misread, with their ports and commas.
fn hosts(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['/', '?']).next().unwrap_or(rest);
    rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts)
}

/// Returns the name of one host, without its port.
fn name(host: &str) -> &str {
    match host.rsplit_once(']') {
        Some((name, _)) => name,
        None => host.split(':').next().unwrap_or(host),
    }
}

/// Returns the port of one host, or nothing.
fn port(host: &str) -> &str {
    let after_brackets = host.rsplit_once(']').map_or(host, |(_, after)| after);
    after_brackets.split_once(':').map_or("", |(_, port)| port)
}

fn can_be_a_port(port: &str) -> bool {
    port.is_empty() || port.parse::<u16>().is_ok_and(|number| number > 0)
}

/// Returns how many hosts the address has, also those in its parameters.
#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
pub(crate) fn host_count(url: &str) -> usize {
    let named = ["host", "hostaddr"].map(|name| parameter(url, name).unwrap_or_default());
    let all = named.into_iter().chain([hosts(url)]);
    all.map(|hosts| hosts.split(',').count()).max().unwrap_or(1)
}

/// Returns for how long libpq tries each host, in seconds. `None`: without an end.
#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
pub(crate) fn connect_timeout(url: &str) -> Option<u32> {
    let seconds = parameter(url, "connect_timeout")?.parse().ok()?;
    // libpq takes 1 for 2.
    (seconds > 0).then_some(u32::max(seconds, 2))
}

/// Returns the address with its hosts in turn from another one than the first: 1 is the second host.
#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
pub(crate) fn from_host(url: &str, first: usize) -> String {
    let list = hosts(url);
    let mut all: Vec<&str> = list.split(',').collect();
    // Addresses that belong to the hosts one by one would have to be turned with them.
    let is_fixed = ["host", "hostaddr", "port"]
        .iter()
        .any(|name| parameter(url, name).is_some());
    if all.len() < 2 || is_fixed {
        return url.to_owned();
    }
    let first = first % all.len();
    all.rotate_left(first);
    // Its text may also be part of the user's name.
    let start = list.as_ptr().addr() - url.as_ptr().addr();
    let (before, after) = (&url[..start], &url[start + list.len()..]);
    format!("{before}{}{after}", all.join(","))
}

#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
fn percents_are_codes(text: &str) -> bool {
    text.split('%').skip(1).all(|after| {
        let code = after.as_bytes().get(..2);
        code.is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit) && code != b"00")
    })
}

/// Returns whether all ports are numbers. `rest` starts with hosts, separated by commas; one may be
/// `[::1]`.
fn ports_are_numbers(rest: &str) -> bool {
    let hosts = rest.split(['/', '?']).next().unwrap_or(rest);
    hosts
        .split(',')
        .all(|host| port(host).bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_out_of_messages() {
        for (url, shown) in [
            (
                "postgres://me:hunter2@db.example:5432/app?password=x",
                "postgres://db.example:5432/app",
            ),
            ("postgres://me:hun@ter2@db/app", "postgres://db/app"),
            ("postgres://me:hun/ter2@db/app", "postgres://db/app"),
            ("postgres://me:hun?ter2@db/app", "postgres://.."),
            ("postgres://db?user=a@b&password=hunter2", "postgres://.."),
            ("postgres://me:hunter2", "postgres://.."),
            ("postgres://[::1]:5432,b/app", "postgres://[::1]:5432,b/app"),
            ("postgres:me:hunter2@db", "postgres.."),
            ("host=db password=hunter2", "host.."),
            ("jobs.db", "jobs.db"),
            ("/var/lib/a=b/jobs.db", "/var/lib/a=b/jobs.db"),
        ] {
            assert_eq!(without_secrets(url), shown, "{url}");
        }
    }

    #[test]
    fn what_libpq_would_misread_is_found() {
        for good in [
            "postgres://me:hun%40ter2@db:5432/app?sslmode=disable",
            "postgres:///app?host=/run/postgresql",
            "postgres://me@[::1]:5432,b:1/app",
            "postgres://",
            "postgres://me:x@a:5432,b:5433/app?target_session_attrs=any",
            "postgres://?host=a,b&port=1,2",
        ] {
            assert_eq!(misread(good), None, "{good}");
        }
        for bad in [
            "postgres://me:hun@ter2@db/app",
            "postgres://me:hun/ter2@db/app",
            "postgres://me:hun?ter2@db/app",
            "postgres://me:hun%ter2@db/app",
            "postgres://db/app?password=hunter%",
            "postgres://me:hunter2",
        ] {
            assert!(misread(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn what_is_wrong_with_several_hosts_is_said() {
        for (url, part) in [
            (
                "postgres://me:x@a:1,me:x@b:2/app",
                "once, before the first host",
            ),
            ("postgres://me:x@a@b/app", "as `%40"),
            ("postgres://me@a,/app", "no name"),
            ("postgres://me@a,,b", "no name"),
            ("postgres://me@:5432,b/app", "no name"),
            ("postgres://me@a:5432,b:54330/app?x=1", ""),
            ("postgres://me@a:5432,b:543300/app", "from 1 to 65535"),
            ("postgres://me@a:0/app", "from 1 to 65535"),
            (
                "postgres://a,b/app?target_session_attrs=master",
                "`read-write`",
            ),
            ("postgres://a,b/app?target_session_attrs=", "`read-write`"),
        ] {
            let says = misread(url).unwrap_or_default();
            assert!(
                says.contains(part) && says.is_empty() == part.is_empty(),
                "{url}: {says}"
            );
        }
        let shown = without_secrets("postgres://me:x@a:1,me:hunter2@b:2/app");
        assert!(
            !shown.contains("hunter2") && !shown.contains(":x"),
            "{shown}"
        );
    }

    #[test]
    fn the_hosts_are_taken_in_turn() {
        let url = "postgres://a:x@a:1,b:2,[::1]:3/a:1,b?connect_timeout=1";
        for (first, hosts) in [
            (0, "a:1,b:2,[::1]:3"),
            (1, "b:2,[::1]:3,a:1"),
            (5, "[::1]:3,a:1,b:2"),
        ] {
            let turned = format!("postgres://a:x@{hosts}/a:1,b?connect_timeout=1");
            assert_eq!(from_host(url, first), turned);
        }
        assert_eq!((host_count(url), connect_timeout(url)), (3, Some(2)));
        for same in [
            "postgres://a/b,c",
            "postgres://",
            "postgres://a,b/c?hostaddr=127.0.0.1,127.0.0.2",
        ] {
            assert_eq!(from_host(same, 1), same);
        }
        assert_eq!(host_count("postgres:///d?host=a,b,c"), 3);
        assert_eq!(host_count("postgres:///d"), 1);
        assert_eq!(connect_timeout("postgres://a?connect_timeout=0"), None);
    }
}
