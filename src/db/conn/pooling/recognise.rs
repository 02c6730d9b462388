//! Finding out whether a pooler gives out the sessions of the server by transaction.

use crate::clock;
use crate::db::conn::pooling::pooler::Pooling;
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

/// How often the sessions are compared: beside other clients, two connections may meet two sessions several times.
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
