//! Emits events, in the transaction of the caller.

use crate::db::conn::connection::Conn;
use crate::db::table::flows::events;
use crate::db::table::wanted_keys::{self, NewRequest};
use diesel::prelude::*;
use serde_json::Value;

/// How often the event of another transaction may disappear before this gives up.
const ROUNDS: usize = 3;

/// Stores an event and requests a promotion of the jobs that wait for it. Returns `false` if there is one of this name
/// with another payload, which stays.
pub(crate) fn emit(conn: &mut Conn<'_>, name: &str, payload: &str) -> QueryResult<bool> {
    conn.join_transaction(|conn| {
        for _ in 0..ROUNDS {
            if !events::insert(conn, name, payload)? {
                // A statement of its own: it sees the one that the insert has met.
                match events::payload(conn, name)? {
                    Some(first) if is_same(&first, payload) => {}
                    Some(_) => return Ok(false),
                    // Cleared meanwhile.
                    None => continue,
                }
            }
            // Also for an event that was there: another program may have deleted the request.
            wanted_keys::request(conn, [NewRequest::Event(name.to_owned())])?;
            return Ok(true);
        }
        Err(diesel::result::Error::NotFound)
    })
}

/// Whether two texts are the same JSON.
fn is_same(first: &str, other: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    first == other || value(first).is_some_and(|first| value(other) == Some(first))
}
