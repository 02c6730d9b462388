//! Finding out whether a pooler gives out the sessions of the server by transaction.

use crate::clock;
use crate::db::conn::address::{connect_timeout, host_count};
use crate::db::conn::pooling::pooler::Pooling;
use crate::deadline::{Deadline, Hurry};
use diesel::prelude::*;
use diesel::sql_types::{Integer, Nullable, Text};
use std::time::Duration;

/// A session of the server, told apart from any later one.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub(crate) struct ServerSession {
    #[diesel(sql_type = Integer)]
    pub(crate) pid: i32,
    /// Start of the session. A process id can be reused.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) since: Option<String>,
}

/// The columns of a [`ServerSession`]. The start does not depend on the time zone of the session.
pub(crate) const SESSION: &str = "pg_backend_pid() AS pid, (SELECT CAST(extract(epoch FROM backend_start) AS text) \
     FROM pg_stat_get_activity(pg_backend_pid())) AS since";

#[derive(QueryableByName)]
struct PeerPort {
    #[diesel(sql_type = Nullable<Integer>)]
    port: Option<i32>,
}

/// Returns whether the server's other end of the connection is this end of it, so that nothing is in between that
/// could give the session to another. `own` is the port of this end. Where addresses are translated, as in many
/// containers, the ports differ without a pooler.
pub(crate) fn is_direct(conn: &mut PgConnection, own: Option<u16>) -> QueryResult<bool> {
    let Some(own) = own else { return Ok(false) };
    let peer: PeerPort = diesel::sql_query("SELECT inet_client_port() AS port").get_result(conn)?;
    Ok(peer.port == Some(i32::from(own)))
}

/// The number of comparisons of the sessions. With other clients, two connections may meet two sessions several times.
const ROUNDS: u32 = 10;

/// Compares the sessions behind two connections that are open at once. One session behind both, or another session
/// behind the same connection a moment later, proves that it is given out by transaction. If neither is seen for long,
/// each has its own.
///
/// Each is asked twice in a row: a pooler that gives out its sessions in turn could give two connections that are asked
/// in turn the same one each time.
pub(crate) fn pooling_of(
    first: &mut PgConnection,
    second: &mut PgConnection,
) -> QueryResult<Pooling> {
    let (of_first, of_second) = (session(first)?, session(second)?);
    let mut is_shared = of_first == of_second;
    for round in 0..ROUNDS {
        if is_shared {
            return Ok(Pooling::Transaction);
        }
        clock::nap(Duration::from_millis(u64::from(round)));
        let is_other = session(second)? != of_second || session(first)? != of_first;
        is_shared = is_other || session(first)? != of_first || session(second)? != of_second;
    }
    Ok(if is_shared {
        Pooling::Transaction
    } else {
        Pooling::Session
    })
}

fn session(conn: &mut PgConnection) -> QueryResult<ServerSession> {
    diesel::sql_query(format!("SELECT {SESSION}")).get_result(conn)
}

// --- The parameters of an address that are for libpq ---

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

// --- The settings of a connection that has no session of its own ---

/// Settings that are made anew in each transaction, because they end with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalSettings {
    pub(crate) statement_timeout: Duration,
    pub(crate) lock_timeout: Duration,
    /// True if the planner is kept from full scans and sorts; see
    /// [`prefer_indexes`](crate::db::conn::database::prefer_indexes).
    pub(crate) prefers_indexes: bool,
}

/// The longest time that a client may hold a transaction open without a statement: a frozen one must not hold rows.
pub(crate) const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(15);

/// The settings that keep the planner from full scans and sorts, with their values.
pub(crate) const PREFER_INDEXES: [(&str, &str); 7] = [
    ("enable_seqscan", "off"),
    ("enable_sort", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

impl Default for LocalSettings {
    fn default() -> Self {
        LocalSettings {
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
            prefers_indexes: false,
        }
    }
}

impl LocalSettings {
    /// Returns the statements that start a transaction with these settings, sent as one message.
    pub(crate) fn begin(&self) -> String {
        format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; {}; {}",
            set_local("statement_timeout", self.statement_timeout),
            self.after_begin()
        )
    }

    /// Returns the same settings for a transaction that sets its own isolation and time for a statement.
    pub(crate) fn after_begin(&self) -> String {
        let mut text = set_local("lock_timeout", self.lock_timeout);
        let idle = set_local("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION);
        text.push_str("; ");
        text.push_str(&idle);
        if self.prefers_indexes {
            for (name, value) in PREFER_INDEXES {
                text.push_str(&format!("; SET LOCAL {name} = {value}"));
            }
        }
        text
    }
}

fn set_local(name: &str, value: Duration) -> String {
    format!("SET LOCAL {name} = {}", value.as_millis())
}

// --- The parameters of an address that are for Windlass and not for libpq ---

/// An address of Postgres without the parameters that libpq would refuse.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolerAddress {
    pub(crate) url: String,
    pub(crate) pooling: Pooling,
    pub(crate) listen_url: Option<String>,
}

impl PoolerAddress {
    /// Takes `pooling` and `listen_url` out of an address whose percent signs start codes.
    ///
    /// # Errors
    /// Returns what is wrong with them.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let Some((path, query)) = url.split_once('?') else {
            return Ok(PoolerAddress {
                url: url.to_owned(),
                ..PoolerAddress::default()
            });
        };
        let mut address = PoolerAddress::default();
        let mut rest = Vec::new();
        for parameter in query.split('&') {
            match parameter.split_once('=') {
                Some(("pooling", value)) => {
                    address.pooling = Pooling::parse(value).ok_or_else(|| {
                        "its parameter `pooling` can be `auto`, `session` or `transaction`"
                            .to_owned()
                    })?;
                }
                Some(("listen_url", value)) => address.listen_url = Some(decoded(value)),
                _ => rest.push(parameter),
            }
        }
        let sign = if rest.is_empty() { "" } else { "?" };
        address.url = format!("{path}{sign}{}", rest.join("&"));
        Ok(address)
    }
}

/// Replaces percent codes by the bytes that they stand for.
fn decoded(text: &str) -> String {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let code = piece
            .get(..2)
            .and_then(|code| u8::from_str_radix(code, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&piece.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(piece.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

// --- The advice for an error by which transaction mode shows ---

/// The start of the name of one of Diesel's prepared statements in an error of the server.
const OF_DIESEL: &str = "prepared statement \"__diesel_stmt_";

/// The cause of such an error, and the setting that avoids it.
const ADVICE: &str = "it was prepared in another session of the server: a pooler such as PgBouncer in \
     transaction mode stands before it; set `pooling = \"transaction\"` in `[database]`, or add \
     `?pooling=transaction` to the address";

/// Returns the error with advice, if a statement was prepared in another session than the one that it met.
pub(crate) fn advised(error: diesel::result::Error) -> diesel::result::Error {
    use diesel::result::Error::DatabaseError;
    match error {
        DatabaseError(kind, information) if information.message().contains(OF_DIESEL) => {
            DatabaseError(
                kind,
                Box::new(format!("{}: {ADVICE}", information.message())),
            )
        }
        other => other,
    }
}

/// Returns whether the message says so. Then any statement may be another one in the session that it meets, so that no
/// further one may be sent.
pub(crate) fn is_advised(message: &str) -> bool {
    message.contains(ADVICE)
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

    fn parsed(url: &str) -> (String, Pooling, Option<String>) {
        let address = PoolerAddress::parse(url).unwrap();
        (address.url, address.pooling, address.listen_url)
    }

    #[test]
    fn the_parameters_are_taken_out() {
        let plain = |url: &str, pooling| (url.to_owned(), pooling, None);
        for (url, expected) in [
            ("postgres://h/d", plain("postgres://h/d", Pooling::Auto)),
            (
                "postgres://h/d?sslmode=disable",
                plain("postgres://h/d?sslmode=disable", Pooling::Auto),
            ),
            (
                "postgres://h/d?pooling=transaction",
                plain("postgres://h/d", Pooling::Transaction),
            ),
            (
                "postgres://h/d?sslmode=disable&pooling=session&options=-cx%3Dy",
                plain(
                    "postgres://h/d?sslmode=disable&options=-cx%3Dy",
                    Pooling::Session,
                ),
            ),
        ] {
            assert_eq!(parsed(url), expected, "{url}");
        }
        assert!(PoolerAddress::parse("postgres://h/d?pooling=on").is_err());
    }

    #[test]
    fn the_direct_address_is_decoded() {
        let url = "postgres://h/d?listen_url=postgres%3A%2F%2Fme%3Aa%2540b%40db:5432/d%3Fsslmode%3Drequire";
        let direct = "postgres://me:a%40b@db:5432/d?sslmode=require";
        assert_eq!(parsed(url).2.as_deref(), Some(direct));
    }
}
