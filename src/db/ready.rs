//! `solid_queue_ready_executions`: claiming.

use super::conn::{Conn, on};
use super::foreign::Lossy;
use super::semaphores::{self, IS_WANTED, Key, keys};
use super::sql::{cached, id_list, sql};
use crate::mutant;
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
}

/// Moves up to `limit` ready executions to claimed ones of a process that is
/// registered, oldest and most important first.
pub(crate) fn claim(conn: &mut Conn<'_>, want: &Want<'_>) -> QueryResult<Claims> {
    loop {
        let rows = match conn {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => insert_or_look(conn, want)?,
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => match step_by_step(conn, want)? {
                Some(rows) => rows,
                None => return Ok(Claims::Unregistered),
            },
        };
        let Some(first) = rows.first() else {
            return Ok(Claims::Unregistered);
        };
        let is_wanted = first.is_wanted;
        let (mut held, rest): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .filter(|row| row.claim_id != NOTHING)
            .partition(|row| row.job_id != NOTHING);
        held.sort_by_cached_key(|row| (place(want.queues, row), row.priority, row.job_id));
        let orphans: Vec<i64> = rest.iter().map(|row| row.claim_id).collect();
        if !orphans.is_empty() {
            super::claimed::drop_orphans(conn, want.process_id, &orphans)?;
        }
        // Nothing but orphans is not nothing: jobs may stand behind them.
        if !held.is_empty() || orphans.is_empty() {
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

/// A job that is claimed already, its ready execution put there by somebody's
/// hand, loses that execution and holds up no other. That is so rare that the
/// claim looks out for it only when it has met one: an insertion on trial is
/// written twice into the log, a tenth of the claim's time. (A NOT EXISTS costs
/// less, until the planner believes that nothing is claimed and reads, for
/// each job, all that vacuum has left.)
#[cfg(feature = "postgres")]
fn insert_or_look(conn: &mut PgConnection, want: &Want<'_>) -> QueryResult<Vec<Claimed>> {
    use diesel::result::{DatabaseErrorKind::UniqueViolation, Error::DatabaseError};
    // An error would end the caller's transaction.
    if !super::conn::in_transaction(conn) {
        match in_one_statement(conn, want, "") {
            Err(DatabaseError(UniqueViolation, _)) => {}
            done => return done,
        }
    }
    in_one_statement(conn, want, "ON CONFLICT (job_id) DO NOTHING")
}

/// Postgres: one statement in autocommit, so that a client that freezes can
/// hold no lock. It locks the process' own row first: a process that was
/// pruned must take nothing, and one that is taking cannot be pruned. That
/// row always comes back; no row at all means that the process is gone.
///
/// The picked rows are MATERIALIZED: the planner might otherwise run the
/// LIMIT more than once and take too many. They are deleted by where they
/// stand, without a second look into an index; one that somebody moved while
/// it was being locked is left for the next claim.
#[cfg(feature = "postgres")]
fn in_one_statement(
    conn: &mut PgConnection,
    want: &Want<'_>,
    on_conflict: &str,
) -> QueryResult<Vec<Claimed>> {
    use diesel::sql_types::Array;
    let picked = picked(want.queues);
    let me = if mutant::is("claim_without_process") {
        "SELECT $1::bigint AS id"
    } else {
        "SELECT id FROM solid_queue_processes WHERE id = $1 AND NOT draining FOR KEY SHARE"
    };
    let text = super::sql::Dialect::Postgres.write(&format!(
        "WITH me AS MATERIALIZED ( \
           {me}), \
         picked AS MATERIALIZED ({picked}), \
         gone AS (DELETE FROM solid_queue_ready_executions WHERE ctid = ANY (ARRAY(SELECT spot FROM picked)) \
           RETURNING job_id, cautious, concurrency_key), \
         held AS (INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at, started_at, concurrency_key) \
           SELECT job_id, $1, {{now}}, CASE WHEN $5 AND cautious THEN NULL ELSE {{now}} END, concurrency_key FROM gone \
           {on_conflict} RETURNING id, job_id, started_at) \
         SELECT coalesce(held.id, 0) AS claim_id, held.started_at IS NOT NULL AS begun, {IS_WANTED} AS is_wanted, {COLUMNS} \
         FROM me LEFT JOIN held ON true LEFT JOIN solid_queue_jobs j ON j.id = held.job_id",
    ));
    let (none, all) = (Vec::new(), [String::new()]);
    let (names, slots) = match want.queues {
        Queues::All => (&none, &all[..]),
        Queues::Named(names) => (names, &names[..]),
    };
    let from = |slot: usize| want.from.get(slot).copied().unwrap_or(Mark::BEGINNING);
    let marks: Vec<Mark> = (0..slots.len()).map(from).collect();
    cached(
        sql(text)
            .bind::<BigInt, _>(want.process_id)
            .bind::<BigInt, _>(want.limit as i64)
            .bind::<Array<Text>, _>(want.classes)
            .bind::<Array<Text>, _>(names)
            .bind::<Bool, _>(want.ahead)
            .bind::<Array<Integer>, _>(marks.iter().map(|mark| mark.priority).collect::<Vec<_>>())
            .bind::<Array<BigInt>, _>(marks.iter().map(|mark| mark.job_id).collect::<Vec<_>>()),
    )
    .load(conn)
}

/// The places of the rows to be taken, locked.
#[cfg(feature = "postgres")]
fn picked(queues: &Queues) -> &'static str {
    match queues {
        Queues::All => {
            "SELECT r.ctid AS spot FROM solid_queue_ready_executions r \
             WHERE EXISTS (SELECT 1 FROM me) AND cardinality($4) = 0 \
             AND (r.priority, r.job_id) >= (($6)[1], ($7)[1]) \
             AND (r.class_name IS NULL OR r.class_name = ANY ($3)) \
             AND r.queue_name NOT IN (SELECT queue_name FROM solid_queue_pauses) \
             ORDER BY r.priority, r.job_id LIMIT $2 FOR UPDATE OF r SKIP LOCKED"
        }
        Queues::Named(_) => {
            "SELECT r.spot FROM unnest($4, $6, $7) WITH ORDINALITY AS q (name, priority, job_id, place) \
             CROSS JOIN LATERAL ( \
               SELECT ctid AS spot FROM solid_queue_ready_executions \
               WHERE queue_name = q.name AND (priority, job_id) >= (q.priority, q.job_id) \
               AND (class_name IS NULL OR class_name = ANY ($3)) \
               ORDER BY priority, job_id LIMIT $2 FOR UPDATE SKIP LOCKED) AS r \
             WHERE EXISTS (SELECT 1 FROM me) \
             AND q.name NOT IN (SELECT queue_name FROM solid_queue_pauses) LIMIT $2"
        }
    }
}

#[cfg(feature = "sqlite")]
#[derive(QueryableByName)]
struct Pick {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

/// SQLite: nobody else writes during the transaction, so nothing needs
/// locking. `None`: the process is not registered.
#[cfg(feature = "sqlite")]
fn step_by_step(conn: &mut Conn<'_>, want: &Want<'_>) -> QueryResult<Option<Vec<Claimed>>> {
    // A look without the write lock: idle workers must not fight over it.
    match peek(conn, want)? {
        None => return Ok(None),
        Some(seen) if !seen.has_jobs => return Ok(Some(nothing(seen.is_wanted))),
        Some(_) => {}
    }
    conn.transaction(|conn| {
        let Some(seen) = peek(conn, want)? else {
            return Ok(None);
        };
        let picked = id_list(&candidates(conn, want, want.limit)?);
        let text = conn.write(
            "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at, started_at, concurrency_key) \
             SELECT job_id, $1, {now}, CASE WHEN $2 AND cautious THEN NULL ELSE {now} END, concurrency_key \
             FROM solid_queue_ready_executions WHERE id IN {in $3} \
             ORDER BY priority, job_id ON CONFLICT (job_id) DO NOTHING RETURNING id",
        );
        let claims: Vec<Pick> = on!(conn, |c| cached(
            sql(text)
                .bind::<BigInt, _>(want.process_id)
                .bind::<Bool, _>(want.ahead)
                .bind::<Text, _>(&picked)
        )
        .load(c))?;
        let text = conn.write("DELETE FROM solid_queue_ready_executions WHERE id IN {in $1}");
        on!(conn, |c| cached(sql(text).bind::<Text, _>(&picked)).execute(c))?;
        let held = held(conn, &claims)?;
        Ok(Some(if held.is_empty() { nothing(seen.is_wanted) } else { held }))
    })
}

#[cfg(feature = "sqlite")]
fn held(conn: &mut Conn<'_>, claims: &[Pick]) -> QueryResult<Vec<Claimed>> {
    let ids: Vec<i64> = claims.iter().map(|claim| claim.id).collect();
    let text = conn.write(&format!(
        "SELECT c.id AS claim_id, c.started_at IS NOT NULL AS begun, {IS_WANTED} AS is_wanted, {COLUMNS} \
         FROM solid_queue_claimed_executions c \
         LEFT JOIN solid_queue_jobs j ON j.id = c.job_id WHERE c.id IN {{in $1}}"
    ));
    let rows: Vec<Claimed> = on!(conn, |c| cached(sql(text).bind::<Text, _>(id_list(&ids)))
        .load(c))?;
    Ok(rows)
}

/// The one row that says: registered, and nothing to do.
#[cfg(feature = "sqlite")]
fn nothing(is_wanted: bool) -> Vec<Claimed> {
    vec![Claimed {
        claim_id: NOTHING,
        begun: false,
        job_id: NOTHING,
        queue_name: String::new(),
        class_name: String::new(),
        arguments: String::new(),
        priority: 0,
        attempts: 0,
        at_most_once: false,
        created_at: NaiveDateTime::default(),
        scheduled_at: None,
        max_attempts: None,
        policy: None,
        unique_id: None,
        is_limited: false,
        is_wanted,
    }]
}

#[cfg(feature = "sqlite")]
#[derive(QueryableByName)]
struct Seen {
    #[diesel(sql_type = Bool)]
    is_wanted: bool,
    #[diesel(sql_type = Bool)]
    has_jobs: bool,
}

/// What a worker asks that may have nothing to do. `None`: the process is not
/// registered.
#[cfg(feature = "sqlite")]
fn peek(conn: &mut Conn<'_>, want: &Want<'_>) -> QueryResult<Option<Seen>> {
    let me = if mutant::is("claim_without_process") {
        "(SELECT $3 AS id)"
    } else {
        "solid_queue_processes WHERE id = $3 AND NOT draining"
    };
    // By an index, whatever the planner knows: the table may be large.
    let (has_jobs, names) = match want.queues {
        Queues::All => (
            format!(
                "(SELECT 1 FROM solid_queue_ready_executions WHERE $1 = '[]' AND {MAY_TAKE} \
                 ORDER BY priority, job_id LIMIT 1) IS NOT NULL"
            ),
            &[][..],
        ),
        Queues::Named(names) => (
            format!(
                "EXISTS (SELECT 1 FROM json_each($1) AS name CROSS JOIN solid_queue_ready_executions \
                 WHERE queue_name = name.value AND {MAY_TAKE})"
            ),
            &names[..],
        ),
    };
    let text = format!("SELECT {has_jobs} AS has_jobs, {IS_WANTED} AS is_wanted FROM {me}");
    let json = |texts: &[String]| serde_json::to_string(texts).unwrap_or_default();
    on!(conn, |c| cached(
        sql(text)
            .bind::<Text, _>(json(names))
            .bind::<Text, _>(json(want.classes))
            .bind::<BigInt, _>(want.process_id)
    )
    .get_result(c))
    .optional()
}

/// Of a known class, as bound to `$2`, and not of a paused queue.
#[cfg(feature = "sqlite")]
const MAY_TAKE: &str = "(class_name IS NULL OR class_name IN (SELECT value FROM json_each($2))) \
     AND queue_name NOT IN (SELECT queue_name FROM solid_queue_pauses)";

#[cfg(feature = "sqlite")]
fn candidates(conn: &mut Conn<'_>, want: &Want<'_>, limit: usize) -> QueryResult<Vec<i64>> {
    let classes = serde_json::to_string(want.classes).unwrap_or_default();
    let mut picked = Vec::new();
    let names = match want.queues {
        Queues::All => &[String::new()][..],
        Queues::Named(names) => names,
    };
    let queue = match want.queues {
        Queues::All => "$1 = ''",
        Queues::Named(_) => "queue_name = $1",
    };
    let text = conn.write(&format!(
        "SELECT id FROM solid_queue_ready_executions WHERE {queue} AND {MAY_TAKE} \
         ORDER BY priority, job_id LIMIT $3"
    ));
    for name in names {
        let left = limit - picked.len();
        if left == 0 {
            break;
        }
        let rows: Vec<Pick> = on!(conn, |c| cached(
            sql(text.clone())
                .bind::<Text, _>(name)
                .bind::<Text, _>(&classes)
                .bind::<BigInt, _>(left as i64)
        )
        .load(c))?;
        picked.extend(rows.into_iter().map(|row| row.id));
    }
    Ok(picked)
}

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
    super::wakeup::notify(conn)
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
