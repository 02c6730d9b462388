//! Gives the slots of Solid Queue's semaphores back.
//!
//! Ruby takes a slot of a job's semaphore, and then makes the job ready. The claim of such a job
//! [notes](crate::db::table::claimed::semaphore_of) the semaphore. However the claim ends, its end requests in the same
//! transaction that the slot is given back, so that none is lost with a process. A promotion raises the value of the
//! semaphore, and gives its free slots to the blocked jobs of Ruby, as Solid Queue does at the end of its own jobs.
//!
//! Windlass does not know the limit of a semaphore, which is in the Ruby class. A slot is given back only to the
//! semaphore that it was taken from: one that has expired and was made anew has another id.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{id_list, micros};
use crate::db::conn::listening;
use crate::db::conn::statement::Statement;
use crate::db::table::blocked;
use crate::db::table::semaphores::{AT_ONCE, DOES_NOT_WAIT};
use crate::db::table::wanted_keys::{self, NewRequest, key_list};
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The result of the requests.
#[derive(Debug, Default)]
pub(crate) struct Signalled {
    /// Jobs of Ruby that are ready now.
    pub(crate) ready: Vec<i64>,
    /// The number of keys that were requested again, as another transaction has locked their semaphore or their jobs.
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

/// Handles requests: gives slots back to semaphores, and their free slots to the jobs of Ruby that wait for them. `of_ruby`
/// are the requested keys of semaphores.
///
/// It waits for no lock. Ruby may hold the locks of several semaphores in any order. Its statements are rare, so none is
/// kept prepared.
pub(crate) fn signal(
    conn: &mut Conn<'_>,
    given: &BTreeMap<i64, i64>,
    of_ruby: &BTreeSet<String>,
) -> QueryResult<Signalled> {
    let mut signalled = Signalled::default();
    if given.is_empty() && of_ruby.is_empty() {
        return Ok(signalled);
    }
    let named = NamedSemaphores::new(given, of_ruby);
    let locked = named.load(conn, "{lock skip of s}")?;
    let mut again = Vec::new();
    // No more than a promotion moves at most.
    let share = (AT_ONCE / locked.len().max(1) as i64).max(1);
    for semaphore in &locked {
        let back = given.get(&semaphore.id).copied().unwrap_or_default();
        let passed = pass_on(conn, semaphore, back, share)?;
        if passed.is_left_over {
            again.push(NewRequest::Key(semaphore.key.clone()));
        }
        signalled.ready.extend(passed.jobs);
    }
    if locked.len() < given.len() + of_ruby.len() {
        let found = named.load(conn, "")?;
        for busy in found {
            if locked.iter().any(|locked| locked.id == busy.id) {
                continue;
            }
            again.extend(
                given
                    .get(&busy.id)
                    .map(|slots| NewRequest::Semaphore(busy.id, *slots)),
            );
            again.push(NewRequest::Key(busy.key));
        }
    }
    signalled.left_over = again.len();
    wanted_keys::request_later(conn, again)?;
    Ok(signalled)
}

/// The semaphores that requests name, by their ids or by their keys.
struct NamedSemaphores {
    ids: String,
    keys: String,
}

impl NamedSemaphores {
    fn new(given: &BTreeMap<i64, i64>, of_ruby: &BTreeSet<String>) -> Self {
        let ids: Vec<i64> = given.keys().copied().collect();
        NamedSemaphores {
            ids: id_list(&ids),
            keys: key_list(of_ruby),
        }
    }

    fn load(&self, conn: &mut Conn<'_>, lock: &str) -> QueryResult<Vec<Semaphore>> {
        let text = format!(
            "SELECT s.id, s.key, CAST(s.value AS bigint) AS value FROM solid_queue_semaphores s WHERE s.key IN ( \
               SELECT n.key FROM solid_queue_semaphores n WHERE n.id IN {{in $1}} \
               UNION ALL SELECT value ->> 0 FROM {{rows $2}}) ORDER BY s.key {lock}"
        );
        Statement::new(text)
            .uncached()
            .bind(&self.ids)
            .bind(&self.keys)
            .load(conn)
    }
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
    /// True if a slot is free, and a job of the key is blocked all the same: another transaction has locked it, or it
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
    let free = semaphore.value.saturating_add(back);
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
            .uncached()
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
            .uncached()
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
        .uncached()
        .bind(id_list(jobs))
        .execute(conn)?;
    listening::notify(conn, jobs.len())
}

/// Has the semaphore expire no earlier than this long from now. Solid Queue deletes expired ones.
fn keep(conn: &mut Conn<'_>, semaphore: &Semaphore, duration: Duration) -> QueryResult<()> {
    let text = "UPDATE solid_queue_semaphores SET expires_at = {later $1} WHERE id = $2 AND expires_at < {later $1}";
    Statement::new(text)
        .uncached()
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
    let row: HasBlocked = Statement::new(text).uncached().bind(key).get_result(conn)?;
    Ok(row.found)
}
