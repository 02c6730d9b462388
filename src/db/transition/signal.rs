//! Gives the slots of Solid Queue's semaphores back.
//!
//! Ruby takes a slot of a job's semaphore, and then makes the job ready. The claim of such a job [notes](crate::db::table::claimed::noted_semaphore) the
//! semaphore where other claims have their concurrency key. However the claim ends, its end requests a promotion of
//! this note in the same transaction, so that no slot is lost with a process. The promotion raises the value of the
//! semaphore, and gives its free slots to the blocked jobs of Ruby, as Solid Queue does at the end of its own jobs.
//!
//! Windlass does not know the limit of a semaphore, which is in the Ruby class. A slot is given back only to the
//! semaphore that it was taken from: one that has expired and was made anew has another id.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::{id_list, micros};
use crate::db::conn::statement::Statement;
use crate::db::conn::wakeup;
use crate::db::table::blocked;
use crate::db::table::claimed::NOTE;
use crate::db::table::holders::AT_ONCE;
use crate::db::table::semaphores::DOES_NOT_WAIT;
use crate::db::table::wanted_keys::{self, key_list};
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Returns the semaphore's id and key that a note names.
fn parsed(note: &str) -> Option<(i64, &str)> {
    let (_ready, rest) = note.strip_prefix(NOTE)?.split_once('/')?;
    let (semaphore, key) = rest.split_once('/')?;
    Some((semaphore.parse().ok()?, key))
}

/// What came of the requests.
#[derive(Debug, Default)]
pub(crate) struct Signalled {
    /// Jobs of Ruby that are ready now.
    pub(crate) ready: Vec<i64>,
    /// How many keys were requested again, as another transaction has locked their semaphore or their jobs.
    pub(crate) left_over: usize,
}

#[derive(Debug, QueryableByName)]
struct Semaphore {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    key: String,
    #[diesel(sql_type = BigInt)]
    value: i64,
}

/// Handles requests: gives back the slots that notes name, and the free slots of their keys to the jobs of Ruby that
/// wait for them. `of_ruby` are the requested keys of semaphores.
///
/// It waits for no lock. Ruby may hold the locks of several semaphores in any order. Its statements are rare, so none is
/// kept prepared.
pub(crate) fn signal(
    conn: &mut Conn<'_>,
    requested: &BTreeSet<String>,
    of_ruby: &BTreeSet<String>,
) -> QueryResult<Signalled> {
    let mut signals: BTreeMap<&str, Vec<(i64, &String)>> = BTreeMap::new();
    for note in requested {
        if let Some((id, key)) = parsed(note) {
            signals.entry(key).or_default().push((id, note));
        }
    }
    let keys = signals.keys().map(|key| (*key).to_owned());
    let keys: BTreeSet<String> = keys.chain(of_ruby.iter().cloned()).collect();
    let mut signalled = Signalled::default();
    if keys.is_empty() {
        return Ok(signalled);
    }
    let locked = lock(conn, &keys)?;
    let mut again = BTreeSet::new();
    // No more than a promotion moves at most.
    let share = (AT_ONCE / locked.len().max(1) as i64).max(1);
    for semaphore in &locked {
        let given = signals.remove(&*semaphore.key).unwrap_or_default();
        let back = given.iter().filter(|(id, _)| *id == semaphore.id).count();
        let passed = pass_on(conn, semaphore, back as i64, share)?;
        if passed.is_left_over {
            again.insert(semaphore.key.clone());
        }
        signalled.ready.extend(passed.jobs);
    }
    if locked.len() < keys.len() {
        let busy = existing(conn, &keys, &locked)?;
        for key in &busy {
            let notes = signals.remove(&**key).unwrap_or_default();
            again.extend(notes.into_iter().map(|(_, note)| note.clone()));
            again.insert(key.clone());
        }
    }
    signalled.left_over = again.len();
    wanted_keys::request_promotion_later(conn, &again)?;
    Ok(signalled)
}

/// Locks the semaphores of the keys that no other transaction has locked.
fn lock(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<Vec<Semaphore>> {
    let text = "SELECT s.id, s.key, CAST(s.value AS bigint) AS value FROM solid_queue_semaphores s \
         WHERE s.key IN (SELECT value ->> 0 FROM {rows $1}) ORDER BY s.key {lock skip of s}";
    Statement::new(text)
        .unkept()
        .bind(key_list(keys))
        .load(conn)
}

/// Returns the keys whose semaphore exists and was not locked by [`lock`].
fn existing(
    conn: &mut Conn<'_>,
    keys: &BTreeSet<String>,
    locked: &[Semaphore],
) -> QueryResult<BTreeSet<String>> {
    let text = "SELECT s.id, s.key, CAST(s.value AS bigint) AS value FROM solid_queue_semaphores s \
         WHERE s.key IN (SELECT value ->> 0 FROM {rows $1})";
    let all: Vec<Semaphore> = Statement::new(text)
        .unkept()
        .bind(key_list(keys))
        .load(conn)?;
    let busy = all
        .into_iter()
        .filter(|one| locked.iter().all(|locked| locked.key != one.key));
    Ok(busy.map(|one| one.key).collect())
}

/// The `duration` of a class of Ruby that names none.
const DURATION: Duration = Duration::from_secs(180);

#[derive(Debug, QueryableByName)]
struct BlockedByRuby {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Nullable<Timestamp>)]
    created_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    expires_at: Option<NaiveDateTime>,
}

impl BlockedByRuby {
    /// The `duration` of its class: how long its slot is kept for it.
    fn duration(&self) -> Duration {
        let times = self.expires_at.zip(self.created_at);
        let between = times.and_then(|(end, start)| (end - start).to_std().ok());
        // Windlass has blocked it, and knows no duration.
        between.filter(|kept| !kept.is_zero()).unwrap_or(DURATION)
    }
}

/// The jobs that got the slots of a semaphore.
struct PassedOn {
    jobs: Vec<i64>,
    /// Whether a slot is free, and a job of the key is blocked all the same: another transaction has locked it, or it
    /// comes with the next promotion.
    is_left_over: bool,
}

/// Gives `back` slots to a locked semaphore, and its free slots to up to `most` of the jobs that wait for it. These have no class in
/// their ready execution, like all that Ruby makes ready, so that their claims note the semaphore.
fn pass_on(
    conn: &mut Conn<'_>,
    semaphore: &Semaphore,
    back: i64,
    most: i64,
) -> QueryResult<PassedOn> {
    let free = semaphore.value + back;
    let mut passed = PassedOn {
        jobs: Vec::new(),
        is_left_over: false,
    };
    if free > 0 {
        let text = format!(
            "SELECT b.job_id, {{moment b.created_at}} AS created_at, {{moment b.expires_at}} AS expires_at \
             FROM solid_queue_blocked_executions b WHERE b.concurrency_key = $1 AND b.expires_at < {{time '{DOES_NOT_WAIT}'}} \
             ORDER BY b.priority, b.job_id LIMIT $2 {{lock skip of b}}"
        );
        let next: Vec<BlockedByRuby> = Statement::new(text)
            .unkept()
            .bind(&semaphore.key[..])
            .bind(free.min(most))
            .load(conn)?;
        passed.jobs = next.iter().map(|one| one.job_id).collect();
        make_ready(conn, &passed.jobs)?;
        if let Some(kept) = next.iter().map(BlockedByRuby::duration).max() {
            keep(conn, semaphore, kept)?;
        }
        passed.is_left_over =
            (passed.jobs.len() as i64) < free && has_blocked(conn, &semaphore.key)?;
    }
    let change = back - passed.jobs.len() as i64;
    if change != 0 {
        let text = "UPDATE solid_queue_semaphores SET value = value + $1 WHERE id = $2";
        Statement::new(text)
            .unkept()
            .bind(change)
            .bind(semaphore.id)
            .execute(conn)?;
    }
    Ok(passed)
}

fn make_ready(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    blocked::delete(conn, jobs)?;
    let text = "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, cautious, created_at) \
         SELECT id, queue_name, priority, {cautious}, {now} FROM solid_queue_jobs WHERE id IN {in $1} ORDER BY id \
         ON CONFLICT (job_id) DO NOTHING";
    Statement::new(text)
        .unkept()
        .bind(id_list(jobs))
        .execute(conn)?;
    wakeup::notify(conn, jobs.len())
}

/// Has the semaphore expire no earlier than this long from now. Solid Queue deletes expired ones.
fn keep(conn: &mut Conn<'_>, semaphore: &Semaphore, duration: Duration) -> QueryResult<()> {
    let text = "UPDATE solid_queue_semaphores SET expires_at = {later $1} WHERE id = $2 AND expires_at < {later $1}";
    Statement::new(text)
        .unkept()
        .bind(micros(duration))
        .bind(semaphore.id)
        .execute(conn)
}

#[derive(QueryableByName)]
struct HasBlocked {
    #[diesel(sql_type = diesel::sql_types::Bool)]
    found: bool,
}

fn has_blocked(conn: &mut Conn<'_>, key: &str) -> QueryResult<bool> {
    let text = format!(
        "SELECT EXISTS (SELECT 1 FROM solid_queue_blocked_executions b WHERE b.concurrency_key = $1 \
         AND b.expires_at < {{time '{DOES_NOT_WAIT}'}}) AS found"
    );
    let row: HasBlocked = Statement::new(text).unkept().bind(key).get_result(conn)?;
    Ok(row.found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_a_semaphore() {
        assert_eq!(parsed("windlass/semaphore/7/12/a/b"), Some((12, "a/b")));
        assert_eq!(parsed("windlass/semaphore/7/x/a"), None);
        assert_eq!(parsed("windlass/again"), None);
    }
}
