//! The note of a claim: what its process reports about the running job.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How far a running job has come, as reported by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Progress {
    /// From 0 to 100.
    pub percent: f64,
    /// A description.
    pub message: String,
}

/// The longest message, in bytes.
const LONGEST: usize = 500;

impl Progress {
    pub(crate) fn new(percent: f64, mut message: String) -> Self {
        let end = (0..=LONGEST.min(message.len()))
            .rev()
            .find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
        let percent = if percent.is_nan() { 0.0 } else { percent };
        Progress {
            percent: percent.clamp(0.0, 100.0),
            message,
        }
    }
}

/// The content of the column, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The name of the thread that performs the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) thread: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Progress>,
}

impl Note {
    /// Parses a column. Text of another version that cannot be parsed gives an empty note.
    pub(crate) fn of_column(text: Option<&str>) -> Note {
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }
}

/// A note to store, and its claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimNote<'n> {
    pub(crate) claim_id: i64,
    pub(crate) note: &'n Note,
}

/// Stores the notes of claims that the process still holds, and returns those that were stored.
/// Claims that are locked, by the job itself in a long transaction for example, are skipped: a
/// heartbeat never waits.
pub(crate) fn save(
    conn: &mut Conn<'_>,
    process_id: i64,
    notes: &[ClaimNote<'_>],
) -> QueryResult<Vec<i64>> {
    let text = match conn.dialect() {
        Dialect::Postgres => {
            // The notes of all claims are one value, in which each row finds its own: a join of two lists may be one of
            // each row with each other.
            "WITH told AS MATERIALIZED (SELECT CAST($1 AS jsonb) AS notes), \
             held AS MATERIALIZED (SELECT id FROM solid_queue_claimed_executions \
               WHERE process_id + 0 = $2 AND id = ANY (ARRAY(SELECT CAST(jsonb_object_keys(notes) AS bigint) FROM told)) \
               ORDER BY id + 0 {lock skip}) \
             UPDATE solid_queue_claimed_executions SET note = (SELECT notes FROM told) ->> CAST(id AS text) \
             WHERE id IN {in SELECT id FROM held} RETURNING id"
        }
        Dialect::Sqlite => {
            "UPDATE solid_queue_claimed_executions SET note = told.value FROM json_each($1) AS told \
             WHERE solid_queue_claimed_executions.id = CAST(told.key AS integer) AND process_id = $2 RETURNING id"
        }
    };
    let told: BTreeMap<i64, String> = notes
        .iter()
        .map(|one| {
            let note = serde_json::to_string(one.note).unwrap_or_default();
            (one.claim_id, note)
        })
        .collect();
    let told = serde_json::to_string(&told).unwrap_or_default();
    let written: Vec<Id> = Statement::new(text)
        .bind(&told)
        .bind(process_id)
        .load(conn)?;
    Ok(written.into_iter().map(|row| row.id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_kept_within_bounds() {
        let told = Progress::new(f64::NAN, "ä".repeat(LONGEST));
        assert_eq!((told.percent, told.message.len()), (0.0, LONGEST));
        assert_eq!(Progress::new(-1.0, String::new()).percent, 0.0);
        assert_eq!(Progress::new(f64::INFINITY, String::new()).percent, 100.0);
    }

    #[test]
    fn a_note_of_another_version_is_passed_over() {
        let note = Note::of_column(Some(r#"{"thread":"a","new":1}"#));
        assert_eq!(note.thread.as_deref(), Some("a"));
        assert_eq!(Note::of_column(Some("nonsense")), Note::default());
        assert_eq!(Note::of_column(None), Note::default());
    }
}
