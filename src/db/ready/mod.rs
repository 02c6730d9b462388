//! `solid_queue_ready_executions`: claiming.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use super::conn::{Conn, on};
use super::foreign::Lossy;
use super::semaphores::{self, Key, keys};
use super::sql::{cached, id_list, sql};
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};

/// From which queues a worker takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Queues {
    /// All, by priority and age across them.
    All,
    /// These in this order; by priority and age within each.
    Named(Vec<String>),
}

/// What to claim, and for whom.
#[derive(Debug)]
pub(crate) struct Want<'a> {
    pub(crate) process_id: i64,
    pub(crate) queues: &'a Queues,
    /// Rows of other classes are left for a worker that knows them. Rows made
    /// by Rails name no class here and are taken.
    pub(crate) classes: &'a [String],
    pub(crate) limit: usize,
    /// More than there are idle threads: those that must not be noted as begun
    /// too early are not.
    pub(crate) ahead: bool,
    /// Where to begin to look, for each queue in order, or for all together.
    /// Missing ones begin at the beginning.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) from: &'a [Mark],
    /// The id after which to look for wanted keys.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) wanted_after: i64,
}

/// A place in the order of ready executions.
///
/// Postgres leaves what was taken in the index until the next vacuum, and
/// whoever begins at the beginning has to pass all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) priority: i32,
    pub(crate) job_id: i64,
}

impl Mark {
    /// Before all others.
    pub(crate) const BEGINNING: Mark = Mark {
        priority: i32::MIN,
        job_id: i64::MIN,
    };
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Claims {
    /// The process holds these now.
    Held {
        /// The most important first.
        jobs: Vec<Claimed>,
        /// Blocked jobs are to be promoted, see [`super::blocked::promote`].
        is_wanted: bool,
    },
    /// The process is no longer registered, or draining: nothing was taken.
    Unregistered,
}

/// A job that a process holds.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct Claimed {
    /// The fence: every change to the job names it.
    #[diesel(sql_type = BigInt)]
    pub(crate) claim_id: i64,
    /// Noted as begun: a thread may have it at once.
    #[diesel(sql_type = Bool)]
    pub(crate) begun: bool,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) arguments: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    #[diesel(sql_type = Integer)]
    pub(crate) attempts: i32,
    #[diesel(sql_type = Bool)]
    pub(crate) at_most_once: bool,
    #[diesel(sql_type = Timestamp)]
    pub(crate) created_at: NaiveDateTime,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) scheduled_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) max_attempts: Option<i32>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) policy: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) unique_id: Option<String>,
    /// It holds a slot of its concurrency key.
    #[diesel(sql_type = Bool)]
    pub(crate) is_limited: bool,
    /// Blocked jobs of whatever key are to be promoted.
    #[diesel(sql_type = Bool)]
    is_wanted: bool,
    /// Others were picked as well, and blocked as they have a limit.
    #[diesel(sql_type = Bool)]
    has_blocked: bool,
}

/// Moves up to `limit` ready executions to claimed ones of a process that is
/// registered, oldest and most important first.
pub(crate) fn claim(conn: &mut Conn<'_>, want: &Want<'_>) -> QueryResult<Claims> {
    loop {
        let rows = match conn {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => postgres::insert_or_look(conn, want)?,
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => match sqlite::step_by_step(conn, want)? {
                Some(rows) => rows,
                None => return Ok(Claims::Unregistered),
            },
        };
        let Some(first) = rows.first() else {
            return Ok(Claims::Unregistered);
        };
        let (is_wanted, has_blocked) = (first.is_wanted, first.has_blocked);
        let (mut held, rest): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .filter(|row| row.claim_id != NOTHING)
            .partition(|row| row.job_id != NOTHING);
        held.sort_by_cached_key(|row| (place(want.queues, row), row.priority, row.job_id));
        let orphans: Vec<i64> = rest.iter().map(|row| row.claim_id).collect();
        if !orphans.is_empty() {
            super::claimed::drop_orphans(conn, want.process_id, &orphans)?;
        }
        // Nothing but these is not nothing: jobs may stand behind them.
        let has_more = has_blocked || !orphans.is_empty();
        if !held.is_empty() || !has_more {
            return Ok(Claims::Held {
                jobs: held,
                is_wanted,
            });
        }
    }
}

/// Which of the wanted queues, in order, a job came from.
fn place(queues: &Queues, row: &Claimed) -> usize {
    let Queues::Named(names) = queues else {
        return 0;
    };
    let found = names.iter().position(|name| *name == row.queue_name);
    found.unwrap_or(names.len())
}

/// No id is 0: it stands for the absent row of an outer join.
const NOTHING: i64 = 0;

const COLUMNS: &str = "coalesce(j.id, 0) AS job_id, coalesce(j.queue_name, '') AS queue_name, \
     coalesce(j.class_name, '') AS class_name, coalesce(j.arguments, 'null') AS arguments, coalesce(j.priority, 0) AS priority, \
     coalesce(j.attempts, 0) AS attempts, coalesce(j.at_most_once, false) AS at_most_once, \
     coalesce({moment j.created_at}, {now}) AS created_at, {moment j.scheduled_at} AS scheduled_at, \
     j.max_attempts, j.policy, j.unique_id, j.concurrency_limit IS NOT NULL AS is_limited";

/// Makes jobs ready, and wakes who sleeps; those with a limit must hold a slot
/// already, or have just got one: see [`super::blocked`] for all others. One
/// that is ready already, by somebody's hand, must not hold up the others.
pub(super) fn insert(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = conn.write(
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at, concurrency_key) \
         SELECT id, queue_name, priority, class_name, {cautious}, {now}, \
           CASE WHEN concurrency_limit IS NOT NULL THEN concurrency_key END \
         FROM solid_queue_jobs WHERE id IN {in $1} ORDER BY id ON CONFLICT (job_id) DO NOTHING",
    );
    on!(conn, |c| cached(sql(text).bind::<Text, _>(id_list(jobs)))
        .execute(c))?;
    super::wakeup::notify(conn, jobs.len())
}

/// Takes the ready executions of jobs away, and with them their slots.
pub(super) fn delete(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = conn.write(
        "DELETE FROM solid_queue_ready_executions WHERE job_id IN {in $1} RETURNING concurrency_key",
    );
    let rows: Vec<Key> = on!(conn, |c| cached(sql(text).bind::<Text, _>(id_list(jobs)))
        .load(c))?;
    semaphores::want(conn, &keys(rows))
}
