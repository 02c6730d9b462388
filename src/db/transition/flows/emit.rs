//! Emits events, in the transaction of the caller.

use crate::db::conn::connection::Conn;
use crate::db::table::flows::events;
use crate::db::table::wanted_keys::{self, NewRequest};
use diesel::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

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

/// Whether two texts are the same JSON, whatever the order of its fields.
///
/// Numbers are compared as they are written: read as floating-point numbers, two long ones that differ would be one.
fn is_same(first: &str, other: &str) -> bool {
    fn parsed<'t, T: Deserialize<'t>>(first: &'t str, other: &'t str) -> Option<(T, T)> {
        Some((
            serde_json::from_str(first).ok()?,
            serde_json::from_str(other).ok()?,
        ))
    }
    let (first, other) = (first.trim(), other.trim());
    if first == other {
        return true;
    }
    if let Some((one, two)) = parsed::<BTreeMap<String, &RawValue>>(first, other) {
        let mut pairs = one.iter().zip(&two);
        return one.len() == two.len()
            && pairs
                .all(|((key, one), (other, two))| key == other && is_same(one.get(), two.get()));
    }
    if let Some((one, two)) = parsed::<Vec<&RawValue>>(first, other) {
        let mut pairs = one.iter().zip(&two);
        return one.len() == two.len() && pairs.all(|(one, two)| is_same(one.get(), two.get()));
    }
    if let Some((one, two)) = parsed::<String>(first, other) {
        return one == two;
    }
    // A double has 15 digits that are always kept.
    let is_short_float = |text: &str| text.contains(['.', 'e', 'E']) && text.len() <= 16;
    is_short_float(first)
        && is_short_float(other)
        && parsed::<f64>(first, other).is_some_and(|(one, two)| one == two)
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn payloads_are_compared_as_json() {
        for (first, other, same) in [
            (
                "{\"a\": [1, 2], \"b\": null}",
                "{\"b\":null,\"a\":[1,2]}",
                true,
            ),
            ("{\"a\":1}", "{\"a\":1,\"b\":1}", false),
            ("[1]", "[1,1]", false),
            ("\"\\u0061\"", "\"a\"", true),
            ("\"1\"", "1", false),
            ("1.50", "1.5", true),
            ("1", "1.0", false),
            ("10000000000000000001", "10000000000000000002", false),
            ("[98765432109876543210]", "[98765432109876543211]", false),
            ("0.10000000000000000001", "0.1", false),
            ("true", "true ", true),
        ] {
            assert_eq!(is_same(first, other), same, "{first} and {other}");
        }
    }
}
