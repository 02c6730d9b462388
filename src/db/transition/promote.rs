//! Promotes blocked executions to the free slots of their concurrency key.

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::sql::{Execution, id_list, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::model::outcome::{AttemptOutcome, Failure, ResultOutcome};
use crate::db::table::semaphores::{self, FOR_EVER, NOT_AT_ALL, Room};
use crate::db::table::wanted_keys::{self, Key};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use std::collections::BTreeSet;
use std::time::Duration;

/// The kind of the reason for which a job ends that found no slot.
pub(crate) const NO_SLOT: &str = "concurrency_limit";

/// What a promotion did.
#[derive(Debug, Default)]
pub(crate) struct Promoted {
    /// Jobs that are ready now.
    pub(crate) ready: Vec<i64>,
    /// Jobs that found no slot and did not want to wait.
    pub(crate) discarded: Vec<Discarded>,
    /// How many keys were looked at.
    pub(crate) keys: usize,
    /// How many of them are to be looked at again: another transaction has
    /// locked jobs of theirs.
    pub(crate) left_over: usize,
    /// How long it took to see whether any key is wanted.
    pub(crate) looked: Duration,
}

/// A job that did not want to wait.
#[derive(Debug, QueryableByName)]
pub(crate) struct Discarded {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) class_name: String,
}

impl Promoted {
    /// Whether there may be more to do at once: not if all that was looked at
    /// is locked by others.
    pub(crate) fn is_progress(&self, batch: usize) -> bool {
        let is_full = self.keys >= batch && self.left_over < self.keys;
        !self.ready.is_empty() || !self.discarded.is_empty() || is_full
    }
}

/// Gives the free slots of up to `batch` wanted keys to their blocked jobs, by
/// priority and then age. Jobs that do not wait and are left over end.
///
/// A transaction of its own, which waits for nothing but the keys: so that an
/// end never depends on who comes next, and nobody waits long.
pub(crate) fn promote(conn: &mut Conn<'_>, batch: usize) -> QueryResult<Promoted> {
    promote_after(conn, wanted_keys::BEGINNING, batch)
}

/// The same for keys that were named after the one with the id `after`.
pub(crate) fn promote_after(
    conn: &mut Conn<'_>,
    after: i64,
    batch: usize,
) -> QueryResult<Promoted> {
    // A look without the write lock: there is mostly nothing to do.
    let begun = clock::instant();
    let is_wanted = semaphores::is_wanted(conn, after)?;
    let nothing = Promoted {
        looked: begun.elapsed(),
        ..Promoted::default()
    };
    if !is_wanted {
        return Ok(nothing);
    }
    conn.transaction(|conn| {
        let keys = semaphores::take_wanted(conn, after, batch)?;
        if keys.is_empty() {
            return Ok(nothing);
        }
        // Counted after the lock is there: by a statement of its own, which
        // sees what those before us have committed.
        let rooms = semaphores::rooms(conn, &keys)?;
        let picked = pick(conn, &rooms)?;
        let ready: Vec<i64> = picked.iter().map(|picked| picked.job_id).collect();
        if !ready.is_empty() {
            delete(conn, &ready)?;
            crate::db::table::ready::insert(conn, &ready)?;
        }
        let discarded = discard(conn, &keys)?;
        let left_over = want_left_over(conn, &rooms, &picked)?;
        Ok(Promoted {
            ready,
            discarded,
            keys: keys.len(),
            left_over,
            ..nothing
        })
    })
}

fn delete(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "DELETE FROM solid_queue_blocked_executions WHERE job_id IN {in $1}";
    Statement::new(text).bind(id_list(jobs)).execute(conn)
}

#[derive(QueryableByName)]
struct Picked {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Text)]
    key: String,
}

/// The jobs whose turn it is, locked. What somebody else is moving is passed
/// over.
fn pick(conn: &mut Conn<'_>, rooms: &[Room]) -> QueryResult<Vec<Picked>> {
    let open: Vec<(&str, i64)> = rooms
        .iter()
        .filter(|room| room.room > 0)
        .map(|room| (&*room.key, room.room))
        .collect();
    if open.is_empty() {
        return Ok(Vec::new());
    }
    match conn.dialect() {
        Dialect::Postgres => {
            let text = format!(
                "SELECT b.job_id, open.key FROM (SELECT value ->> 0 AS key, CAST(value ->> 1 AS bigint) AS room \
                   FROM {{rows $1}}) AS open CROSS JOIN LATERAL ( \
                   SELECT job_id FROM solid_queue_blocked_executions WHERE concurrency_key = open.key \
                   AND expires_at >= {{time '{NOT_AT_ALL}'}} ORDER BY priority, job_id LIMIT open.room \
                   FOR UPDATE SKIP LOCKED) AS b"
            );
            let open = serde_json::to_string(&open).unwrap_or_default();
            Statement::new(text).bind(open).load(conn)
        }
        Dialect::Sqlite => {
            let text = format!(
                "SELECT job_id, concurrency_key AS key FROM solid_queue_blocked_executions WHERE concurrency_key = $1 \
                 AND expires_at >= '{NOT_AT_ALL}' ORDER BY priority, job_id LIMIT $2"
            );
            let mut picked = Vec::new();
            for (key, room) in open {
                let jobs: Vec<Picked> = Statement::new(&text).bind(key).bind(room).load(conn)?;
                picked.extend(jobs);
            }
            Ok(picked)
        }
    }
}

/// Ends those of the jobs of these keys that do not wait, where no slot is free.
///
/// The slots are counted once more, in the look that finds the jobs: since the picking one may have become free, and a
/// job been enqueued after that. `+ 0` here and in its like keeps Postgres from walking through a whole table in the
/// order that is asked for, where a sort is made to look dear to it.
fn discard(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<Vec<Discarded>> {
    let text = format!(
        "SELECT b.job_id FROM solid_queue_blocked_executions b JOIN (SELECT value ->> 0 AS key FROM {{rows $1}}) AS w \
         ON b.concurrency_key = w.key WHERE b.expires_at = {{time '{NOT_AT_ALL}'}} \
         AND {} - ({}) <= 0 ORDER BY b.id + 0 {{lock skip of b}}",
        semaphores::limit_of("w.key"),
        semaphores::held_of("w.key"),
    );
    let list = wanted_keys::key_list(keys);
    let jobs: Vec<Execution> = Statement::new(text).bind(&list).load(conn)?;
    let jobs = job_ids(jobs);
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    delete(conn, &jobs)?;
    let failure = Failure::new(
        NO_SLOT,
        "as many jobs of its concurrency key as may were there already, and it does not wait",
    );
    let how = (AttemptOutcome::Discarded, ResultOutcome::Discarded);
    crate::db::transition::operate::end_waiting(conn, &jobs, how, &failure)?;
    let text = "SELECT id, class_name FROM solid_queue_jobs WHERE id IN {in $1}";
    Statement::new(text).bind(id_list(&jobs)).load(conn)
}

/// A job that was passed over because another transaction had locked it may
/// stay where it is after all: its key is looked at again, by the next worker
/// or dispatcher that comes by. Returns how many keys that are.
fn want_left_over(conn: &mut Conn<'_>, rooms: &[Room], picked: &[Picked]) -> QueryResult<usize> {
    let taken = |key: &str| picked.iter().filter(|job| job.key == key).count() as i64;
    let keys: Vec<(&str, bool)> = rooms
        .iter()
        .map(|room| (&*room.key, taken(&room.key) < room.room))
        .collect();
    let left = |until: &str| {
        format!(
            "EXISTS (SELECT 1 FROM solid_queue_blocked_executions b \
             WHERE b.expires_at = {{time '{until}'}} AND b.concurrency_key = w.key)"
        )
    };
    let text = format!(
        "SELECT w.key AS concurrency_key FROM (SELECT value ->> 0 AS key, CAST(value ->> 1 AS text) AS open \
         FROM {{rows $1}}) AS w WHERE {} OR (w.open IN ('true', '1') AND {})",
        left(NOT_AT_ALL),
        left(FOR_EVER),
    );
    let list = serde_json::to_string(&keys).unwrap_or_default();
    let rows: Vec<Key> = Statement::new(text).bind(&list).load(conn)?;
    let keys = wanted_keys::keys(rows);
    wanted_keys::want_later(conn, &keys)?;
    Ok(keys.len())
}
