//! Connections to Postgres, and their deadlines.

use crate::clock;
use crate::db::conn::address::{connect_timeout, from_host, host_count};
use crate::db::conn::pooling::pooler::{Pooler, Pooling};
use crate::db::conn::pooling::recognise::{
    self, CONNECT, LocalSettings, SESSION, ServerSession, connect_limit, tagged,
};
use crate::deadline::{Armed, Deadline, Hurry, no_answer};
use crate::error::one_line;
use diesel::connection::{
    CacheSize, Connection as _, Instrumentation, InstrumentationEvent, get_default_instrumentation,
};
use diesel::prelude::*;
use diesel::r2d2::{ManageConnection, R2D2Connection as _};
use diesel::sql_types::{Integer, Nullable, Text};
use std::sync::Arc;
use std::time::Duration;

/// The time limit of each statement of a loop. It is above the `statement_timeout` of [`set_up`],
/// so a server that is slow but alive reports the timeout itself.
pub(crate) const STATEMENT: Duration = Duration::from_secs(40);

/// The time limit of each answer of a second connection, which only shows whether there is a pooler.
const SECOND: Duration = Duration::from_secs(2);

/// The time after its last use during which a connection is not asked whether it works. Jobs in a row would wait for
/// one more answer each.
const FRESH: Duration = Duration::from_secs(1);

/// The time limit to close a connection.
const CLOSE: Duration = Duration::from_secs(2);

/// Restarts the deadline of an armed connection at each statement, and passes all events on to the
/// program's own instrumentation.
struct Rearm {
    deadline: Deadline,
    /// True if a statement has failed since the server answered a ping. A failure may have left a transaction open that
    /// Diesel has not recorded.
    has_failed: bool,
    /// The settings of each transaction, if a pooler gives out the sessions by transaction.
    local: Option<LocalSettings>,
    next: Option<Box<dyn Instrumentation>>,
}

impl Instrumentation for Rearm {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartQuery { .. } => self.deadline.again(),
            InstrumentationEvent::FinishQuery { error: Some(_), .. } => self.has_failed = true,
            _ => {}
        }
        self.next.on_connection_event(event);
    }
}

/// Arms the deadline of a connection opened by Windlass, for Windlass's own statements. Other
/// connections have no deadline.
pub(crate) fn arm(conn: &mut PgConnection) -> Armed {
    let rearm = conn.instrumentation().downcast_ref::<Rearm>();
    rearm.map_or_else(Armed::not, |rearm| rearm.deadline.arm(STATEMENT))
}

/// Returns the settings that each transaction must make for itself, if the connection has no session of its own and
/// was opened by Windlass.
pub(crate) fn local(conn: &mut PgConnection) -> Option<&mut LocalSettings> {
    let rearm = conn.instrumentation().downcast_mut::<Rearm>();
    rearm.and_then(|rearm| rearm.local.as_mut())
}

/// A connection whose statements have a deadline when it is armed.
pub(crate) struct Guarded {
    pub(crate) conn: PgConnection,
    /// `None` if it has another one in each transaction.
    pub(crate) session: Option<ServerSession>,
    /// The time at which the pool last got it back, since boot.
    returned_at: Option<Duration>,
    /// Last, as it must outlive the connection.
    deadline: Deadline,
}

impl Guarded {
    /// Connects, and sets up the session if it is kept.
    pub(crate) fn connect(
        url: &str,
        hurry: Option<Hurry>,
        pooler: &Pooler,
    ) -> Result<Self, String> {
        let first = pooler.first_host();
        let (url, started) = (&from_host(url, first), clock::instant());
        let (deadline, tagged) = tagged(url, hurry.clone());
        let armed = deadline.arm(connect_limit(url));
        let opened = PgConnection::establish(&tagged)
            .map_err(|error| error.to_string())
            .and_then(|mut conn| {
                let pooling = pooling(&mut conn, &deadline, pooler, || second(url, hurry));
                let set_up = pooling.and_then(|pooling| set_up(&mut conn, pooling));
                let session = set_up.map_err(|error| error.to_string());
                session.map(|session| (conn, session))
            });
        // A connection whose setup failed is dropped by now, while still armed.
        drop(armed);
        let is_silent = |seconds: u32| started.elapsed() >= Duration::from_secs(seconds.into());
        if deadline.missed().is_some() || connect_timeout(url).is_some_and(is_silent) {
            pooler.pass_over(first);
        }
        let (mut conn, session) = match (opened, deadline.missed()) {
            (_, Some(limit)) => return Err(unanswered(url, limit)),
            (Err(error), None) => return Err(explain(&error)),
            (Ok(opened), None) => opened,
        };
        deadline.check();
        conn.set_instrumentation(Rearm {
            deadline: deadline.clone(),
            has_failed: false,
            local: session.is_none().then(LocalSettings::default),
            next: get_default_instrumentation(),
        });
        Ok(Guarded {
            conn,
            session,
            returned_at: None,
            deadline,
        })
    }

    pub(crate) fn arm(&self, limit: Duration) -> Armed {
        self.deadline.arm(limit)
    }

    /// Limits all statements together, also those that are armed for themselves meanwhile.
    pub(crate) fn arm_in_all(&self, limit: Duration) -> Armed {
        self.deadline.arm_in_all(limit)
    }

    /// Returns whether it was in use a moment ago without a failure, and the server has not closed it
    /// since. That takes no answer of the server. The first look may find its farewell, the second
    /// finds the end.
    fn is_fresh(&mut self) -> bool {
        let of_ours = self.conn.instrumentation().downcast_ref::<Rearm>();
        // Of a connection with an instrumentation of the program's, failures are not known.
        if of_ours.is_none_or(|rearm| rearm.has_failed) {
            return false;
        }
        let now = clock::since_boot();
        let is_recent = self
            .returned_at
            .is_some_and(|at| now.saturating_sub(at) < FRESH);
        let mut is_open = || !matches!(self.conn.notifications_iter().next(), Some(Err(_)));
        is_recent && is_open() && is_open()
    }

    pub(crate) fn missed(&self) -> Option<Duration> {
        self.deadline.missed()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.deadline.start(CLOSE);
    }
}

/// Opens the connections of a pool, each with its own tag: with a shared one, a deadline would
/// close them all.
#[derive(Debug)]
pub(crate) struct PostgresManager {
    pub(crate) url: String,
    pub(crate) pooler: Arc<Pooler>,
}

/// The reason why the pool has no connection.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(String);

impl ManageConnection for PostgresManager {
    type Connection = Guarded;
    type Error = Refused;

    fn connect(&self) -> Result<Guarded, Refused> {
        Guarded::connect(&self.url, None, &self.pooler).map_err(Refused)
    }

    fn is_valid(&self, guarded: &mut Guarded) -> Result<(), Refused> {
        if guarded.is_fresh() {
            return Ok(());
        }
        let armed = guarded.arm(CONNECT);
        let pinged = guarded.conn.ping();
        drop(armed);
        match guarded.missed() {
            Some(limit) => Err(Refused(no_answer(limit))),
            None => {
                pinged.map_err(|error| Refused(error.to_string()))?;
                let of_ours = guarded.conn.instrumentation().downcast_mut::<Rearm>();
                of_ours
                    .into_iter()
                    .for_each(|rearm| rearm.has_failed = false);
                Ok(())
            }
        }
    }

    fn has_broken(&self, guarded: &mut Guarded) -> bool {
        guarded.returned_at = Some(clock::since_boot());
        std::thread::panicking() || guarded.conn.is_broken() || guarded.missed().is_some()
    }
}

/// Returns how the sessions are given out: as the settings say, or as it is recognised now. `second` opens another
/// connection.
fn pooling(
    conn: &mut PgConnection,
    deadline: &Deadline,
    pooler: &Pooler,
    second: impl FnOnce() -> Option<(PgConnection, Deadline)>,
) -> QueryResult<Pooling> {
    if let Some(known) = pooler.known() {
        return Ok(known);
    }
    if recognise::is_direct(conn, deadline.port())? {
        pooler.recognise(Pooling::Session);
        return Ok(Pooling::Session);
    }
    let Some((mut other, deadline)) = second() else {
        // It is looked for again with the next connection.
        return Ok(Pooling::Session);
    };
    let armed = deadline.arm(SECOND);
    let found = recognise::pooling_of(conn, &mut other);
    deadline.start(CLOSE);
    drop((other, armed));
    if let Ok(found) = found {
        pooler.recognise(found);
    }
    Ok(found.unwrap_or(Pooling::Session))
}

/// Opens a second connection, to see whether it meets the same session. The pooler may have none free.
fn second(url: &str, hurry: Option<Hurry>) -> Option<(PgConnection, Deadline)> {
    let (deadline, url) = tagged(url, hurry);
    let armed = deadline.arm(SECOND);
    let opened = PgConnection::establish(&url);
    drop(armed);
    Some((opened.ok()?, deadline))
}

/// Takes away the limits that a role may have for sessions without work and for whole transactions: connections are kept,
/// and an index may be built for long. A server that does not have such a setting is left alone.
const UNLIMITED: &str = "\
    CASE WHEN current_setting('idle_session_timeout', true) <> '0' THEN set_config('idle_session_timeout', '0', false) END, \
    CASE WHEN current_setting('transaction_timeout', true) <> '0' THEN set_config('transaction_timeout', '0', false) END";

/// Sets deadlines in the server, so that a frozen client cannot hold a row, and returns the session. Returns `None`
/// if the connection has none of its own; then nothing is prepared in it either.
fn set_up(conn: &mut PgConnection, pooling: Pooling) -> QueryResult<Option<ServerSession>> {
    if pooling == Pooling::Transaction {
        conn.set_prepared_statement_cache_size(CacheSize::Disabled);
        return Ok(None);
    }
    let text = format!(
        "SELECT set_config('statement_timeout', '30s', false), \
         set_config('lock_timeout', '5s', false), \
         set_config('idle_in_transaction_session_timeout', '15s', false), \
         set_config('default_transaction_isolation', 'read committed', false), {UNLIMITED}, {SESSION}"
    );
    diesel::sql_query(text).get_result(conn).map(Some)
}

/// Terminates a session that does not answer, if it still exists: it may hold locks. If its server
/// process is suspended, it ends when that process resumes.
pub(crate) fn end(conn: &mut PgConnection, session: &ServerSession) -> QueryResult<()> {
    diesel::sql_query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_get_activity($1) \
         WHERE CAST(extract(epoch FROM backend_start) AS text) = $2",
    )
    .bind::<Integer, _>(session.pid)
    .bind::<Nullable<Text>, _>(&session.since)
    .execute(conn)
    .map(drop)
}

/// Sets the server's own timeouts somewhat below `limit`.
pub(crate) fn hurry(conn: &mut PgConnection, limit: Duration) -> QueryResult<()> {
    let most = |limit: Duration, most: u64| {
        let limit = limit.min(Duration::from_secs(most));
        limit.max(Duration::from_millis(1))
    };
    let (statement, lock) = (most(limit * 3 / 4, 30), most(limit / 4, 2));
    if let Some(local) = local(conn) {
        (local.statement_timeout, local.lock_timeout) = (statement, lock);
        return Ok(());
    }
    diesel::sql_query(
        "SELECT set_config('statement_timeout', $1, false), set_config('lock_timeout', $2, false)",
    )
    .bind::<Text, _>(statement.as_millis().to_string())
    .bind::<Text, _>(lock.as_millis().to_string())
    .execute(conn)
    .map(drop)
}

/// Returns the error text for an attempt to connect that got no answer.
fn unanswered(url: &str, limit: Duration) -> String {
    let mut text = no_answer(limit);
    if host_count(url) > 1 {
        text.push_str(", perhaps from its first host; the next attempt starts with another");
    }
    text
}

/// Returns libpq's message in one line, which names each host, with advice if it has none.
fn explain(message: &str) -> String {
    let mut text = one_line(message);
    if message.contains("database \"") && message.contains("does not exist") {
        text.push_str("; create it first, with `createdb` for example");
    } else if message.contains("role \"") || message.contains("password") {
        text.push_str("; check user and password in the address");
    } else if message.contains("session is read-only") || message.contains("is in hot standby mode")
    {
        text.push_str(
            "; no host of the address accepts changes: promote a standby, or add the primary to the hosts",
        );
    }
    text
}
