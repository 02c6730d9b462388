//! Enqueues that have waited for another transaction with the same name.

use crate::db::Refusal;
use crate::db::model::new_row::NewRow;
use crate::error::{Error, Result};

/// The most names in an error.
const FIRST: usize = 5;

/// Says which unique ids and idempotency keys the jobs have, if a lock was not free in time: another transaction with one
/// of them has not ended.
pub(crate) fn name_locked<T>(rows: &[NewRow], enqueued: Result<T>) -> Result<T> {
    let named = rows.iter().find(|row| row.is_named());
    match (enqueued, named) {
        (Err(Error::Query { source, .. }), Some(row)) if Refusal::is_lock_timeout(&source) => {
            Err(Error::NamesLocked {
                class: row.class_name.clone(),
                names: names(rows),
                source,
            })
        }
        (enqueued, _) => enqueued,
    }
}

fn names(rows: &[NewRow]) -> String {
    let of_row = |row: &NewRow| {
        let unique = row
            .unique_id
            .as_ref()
            .map(|id| format!("the unique id `{id}`"));
        let key = row
            .idempotency_key
            .as_ref()
            .map(|key| format!("the idempotency key `{key}`"));
        unique.into_iter().chain(key)
    };
    let mut names: Vec<String> = rows.iter().flat_map(of_row).take(FIRST + 1).collect();
    if names.len() > FIRST {
        names[FIRST] = "another name of the list".to_owned();
    }
    names.join(" or ")
}
