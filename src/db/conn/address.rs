//! Database addresses: how they are displayed, and which ones libpq would misread.

/// Returns the address without user, password and parameters, or only its scheme if its parts
/// cannot be told apart with certainty.
pub(crate) fn without_secrets(url: &str) -> String {
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
    if before.contains(['@', '/', '?', '#']) || !percents_are_codes(rest) {
        return Some("write `@ / ? # %` in user, password and parameters as `%40 %2F %3F %23 %25`");
    }
    if !ports_are_numbers(host) {
        return Some(
            "its port is no number; the form is `postgres://user:password@host:port/name`",
        );
    }
    None
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
    hosts.split(',').all(|host| {
        let after_brackets = host.rsplit_once(']').map_or(host, |(_, after)| after);
        let port = after_brackets.split_once(':').map_or("", |(_, port)| port);
        port.bytes().all(|b| b.is_ascii_digit())
    })
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
}
