//! Events, for which jobs wait.

use crate::db::transition::flows::wake as stored;
use crate::db::{AsConn, own};
use crate::error::{Doing, Error, Result};
use crate::job::arguments::readable::to_json;
use crate::job::arguments::{MAX_DEPTH, is_too_deep};
use serde::Serialize;

/// The maximum size of an event's name, in bytes.
const LONGEST_NAME: usize = 255;

/// The maximum size of a payload as JSON, in bytes.
const LARGEST_PAYLOAD: usize = 64 * 1024;

/// Emits an event: jobs that [wait](crate::Context::wait_event) for it run again, with its payload.
///
/// It is part of your transaction, if one is open: the event is there when that commits. Jobs that wait for it later get
/// it as well, as long as it is [kept](crate::Retention::events_for): 30 days by default. So it does not matter
/// which comes first, the event or the wait.
///
/// An event happens once. To emit it again with the same payload does nothing, so that a repeated request is harmless;
/// with another payload it is an error, and the first stays. Use names that say which: `paid/7`.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use serde_json::json;
///
/// windlass::emit(&mut conn, "paid/7", &json!({ "cents": 990 }))?;
/// windlass::emit(&mut conn, "paid/7", &json!({ "cents": 990 }))?; // the same once more
/// let other = windlass::emit(&mut conn, "paid/7", &json!({ "cents": 1 }));
/// assert!(matches!(other, Err(windlass::Error::EventTaken { .. })));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// - [`Error::EventTaken`] if the event was emitted before with another payload, compared as JSON.
/// - [`Error::InvalidEvent`] if the name is empty, has more than 255 bytes or a NUL, or if the payload cannot be
///   written as JSON, takes more than 64 KiB or is nested deeper than 120 arrays and objects.
/// - [`Error::Query`] if the database rejects a statement.
pub fn emit<C, T>(conn: &mut C, event: &str, payload: &T) -> Result<()>
where
    C: AsConn + ?Sized,
    T: Serialize + ?Sized,
{
    let payload = to_json(payload).map_err(|error| {
        let reason = format!("its payload cannot be written as JSON: {error}");
        invalid(event, reason)
    })?;
    emit_json(conn, event, &payload)
}

/// Does the same with a payload that is JSON.
pub(crate) fn emit_json<C: AsConn + ?Sized>(
    conn: &mut C,
    event: &str,
    payload: &str,
) -> Result<()> {
    if let Some(problem) = problem_of_name(event) {
        return Err(invalid(event, problem));
    }
    if payload.len() > LARGEST_PAYLOAD {
        let reason = format!(
            "its payload takes {} bytes, more than the maximum of {LARGEST_PAYLOAD}: keep the data elsewhere, and give a \
             reference to it",
            payload.len()
        );
        return Err(invalid(event, reason));
    }
    if is_too_deep(payload) {
        let reason = format!(
            "its payload is nested deeper than {MAX_DEPTH} arrays and objects, and could not be read by what waits for it"
        );
        return Err(invalid(event, reason));
    }
    let accepted = stored::emit(&mut own(conn), event, payload).doing("emit an event")?;
    if !accepted {
        let event = event.to_owned();
        return Err(Error::EventTaken { event });
    }
    conn.after_enqueue()
}

fn invalid(event: &str, reason: String) -> Error {
    Error::InvalidEvent {
        event: format!("{event:.64}").escape_debug().to_string(),
        reason,
    }
}

/// Returns what is wrong with the name of an event.
pub(crate) fn problem_of_name(event: &str) -> Option<String> {
    let is_wrong = event.is_empty() || event.len() > LONGEST_NAME || event.contains('\0');
    is_wrong.then(|| {
        format!("an event's name has 1 to {LONGEST_NAME} bytes, none of them NUL: {event:.64?}")
    })
}
