//! `windlass_rates`: the buckets of rates. Beside it, the [lines](self::lines) of jobs that wait for several gates.
//!
//! All times are microseconds by the database's clock less its steps, see [`RateMoment`]. The invariant of all committed data: if
//! a job waits in a line, then its line is requested, or one of its rates has a time at which it is due, or its line waits
//! for a concurrency key without a free slot.

mod in_use;
mod lines;
mod set;
mod troubles;

pub use in_use::{RateStatus, StartRate};
pub(crate) use in_use::{closed_for, keys_in_use};
pub(crate) use lines::*;
pub(crate) use set::*;
pub use troubles::{NeverMet, RateGroup, closed_longer_than, groups, never_met};

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Execution, id_list, job_ids, micros};
use crate::db::conn::statement::{InputRows, Param, Statement};
use crate::db::model::rate::{NewRate, PromisedJobs, RateBucket, RatePace};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use std::collections::BTreeSet;
use std::time::Duration;

/// The steps of the database's clock so far, in microseconds: a setting, which only a step changes.
pub(super) const STEPS: &str = "coalesce((SELECT CAST(s.value AS bigint) FROM windlass_settings s WHERE s.name = 'clock_steps'), 0)";

/// Returns a condition: `column` is one of the texts of the parameter.
pub(super) fn is_one_of(conn: &Conn<'_>, column: &str, parameter: &str) -> String {
    match conn.dialect() {
        Dialect::Postgres => format!("{column} = ANY ({parameter})"),
        Dialect::Sqlite => format!("{column} IN (SELECT value FROM json_each({parameter}))"),
    }
}

/// Binds such texts.
pub(super) fn bind_texts<'v>(
    conn: &Conn<'_>,
    statement: Statement<'v>,
    texts: &'v [&'v str],
) -> Statement<'v> {
    match conn.dialect() {
        Dialect::Postgres => statement.bind(texts),
        Dialect::Sqlite => statement.bind(serde_json::to_string(texts).unwrap_or_default()),
    }
}

// --- The clock ---

/// A reading of the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateMoment {
    /// In microseconds since 1970.
    pub(crate) clock: i64,
    /// The sum of its steps that were noticed.
    pub(crate) steps: i64,
}

impl RateMoment {
    /// Returns the time without steps.
    pub(crate) fn now(self) -> i64 {
        self.clock.saturating_sub(self.steps)
    }
}

#[derive(QueryableByName)]
struct RateMomentRow {
    #[diesel(sql_type = BigInt)]
    clock: i64,
    #[diesel(sql_type = BigInt)]
    steps: i64,
}

/// Reads the clock.
pub(crate) fn moment(conn: &mut Conn<'_>) -> QueryResult<RateMoment> {
    let text = format!("SELECT {} AS clock, {STEPS} AS steps", micros_now(conn));
    let row: RateMomentRow = Statement::new(text).get_result(conn)?;
    Ok(RateMoment {
        clock: row.clock,
        steps: row.steps,
    })
}

/// Returns an expression for the clock in microseconds.
pub(super) fn micros_now(conn: &Conn<'_>) -> &'static str {
    match conn.dialect() {
        Dialect::Postgres => "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)",
        Dialect::Sqlite => {
            "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS bigint) * 1000"
        }
    }
}

/// Notes a step of the clock, unless another process has noted one meanwhile.
pub(crate) fn note_step(conn: &mut Conn<'_>, before: i64, steps: i64) -> QueryResult<()> {
    let text = "INSERT INTO windlass_settings (name, value) VALUES ('clock_steps', $1) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE windlass_settings.value = $2";
    Statement::new(text)
        .bind(steps.to_string())
        .bind(before.to_string())
        .uncached()
        .execute(conn)
}

// --- Rates ---

/// A key that was used.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct RateRow {
    #[diesel(sql_type = Text)]
    pub(crate) rate_key: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) number: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) period: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) burst: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) level: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) counted_at: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) closed_until: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) due_at: Option<i64>,
    /// True if jobs wait until it is due.
    #[diesel(sql_type = Bool)]
    pub(crate) has_waiting: bool,
    /// See [`PromisedJobs`].
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) promised: Option<String>,
}

impl RateRow {
    pub(crate) fn promised(&self) -> Vec<PromisedJobs> {
        promised_of(self.promised.as_deref())
    }

    pub(crate) fn pace(&self) -> RatePace {
        RatePace {
            number: self.number.max(1),
            period: self.period.max(1),
            burst: self.burst.max(1),
        }
    }
}

/// Reads the column of promised jobs.
fn promised_of(column: Option<&str>) -> Vec<PromisedJobs> {
    column.map_or_else(Vec::new, |text| {
        serde_json::from_str(text).unwrap_or_default()
    })
}

/// Returns those of these jobs that are ready, or claimed and not started.
///
/// It is one snapshot, so that no job is missed on its way from ready to claimed.
pub(crate) fn unstarted(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<BTreeSet<i64>> {
    let text = "SELECT job_id FROM solid_queue_ready_executions WHERE job_id IN {in $1} UNION ALL \
         SELECT job_id FROM solid_queue_claimed_executions WHERE job_id IN {in $1} AND started_at IS NULL";
    let rows: Vec<Execution> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    Ok(job_ids(rows).into_iter().collect())
}

/// Returns what is stored of these keys, locked. Those that another transaction has locked are in the second result: that may be
/// one of a caller, or of a process that is frozen.
pub(crate) fn read(
    conn: &mut Conn<'_>,
    keys: &BTreeSet<String>,
) -> QueryResult<(Vec<RateRow>, BTreeSet<String>)> {
    let free = read_free(conn, keys)?;
    let found: BTreeSet<&str> = free.iter().map(|row| &*row.rate_key).collect();
    let missing = keys.iter().map(|key| &**key);
    let missing: Vec<&str> = missing.filter(|key| !found.contains(key)).collect();
    if missing.is_empty() || conn.dialect() == Dialect::Sqlite {
        return Ok((free, BTreeSet::new()));
    }
    let text = "SELECT rate_key FROM windlass_rates WHERE rate_key = ANY ($1)";
    let locked: Vec<DueKey> = Statement::new(text).bind(&missing[..]).load(conn)?;
    Ok((free, locked.into_iter().map(|row| row.rate_key).collect()))
}

fn read_free(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<Vec<RateRow>> {
    let text = format!(
        "SELECT rate_key, number, period, burst, level, counted_at, closed_until, due_at, has_waiting, promised \
         FROM windlass_rates WHERE {} {{lock skip}}",
        is_one_of(conn, "rate_key", "$1"),
    );
    let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
    bind_texts(conn, Statement::new(text), &keys).load(conn)
}

/// A key as it is to be stored.
#[derive(Debug)]
pub(crate) struct StoredRate<'r> {
    pub(crate) key: &'r str,
    pub(crate) bucket: RateBucket,
    pub(crate) due_at: Option<i64>,
    pub(crate) has_waiting: bool,
    pub(crate) promised: Option<String>,
}

const RATE_COLUMNS: [&str; 9] = [
    "rate_key",
    "number",
    "period",
    "burst",
    "level",
    "counted_at",
    "due_at",
    "has_waiting",
    "promised",
];

impl StoredRate<'_> {
    fn columns(&self) -> [Param<'_>; RATE_COLUMNS.len()] {
        let RatePace {
            number,
            period,
            burst,
        } = self.bucket.pace;
        [
            self.key.into(),
            number.into(),
            period.into(),
            burst.into(),
            self.bucket.level.into(),
            self.bucket.counted_at.into(),
            Param::BigInt(self.due_at),
            self.has_waiting.into(),
            self.promised.clone().into(),
        ]
    }
}

/// Stores the tokens of keys, which the caller has locked. A row that is there keeps the time until which it is closed.
pub(crate) fn store(conn: &mut Conn<'_>, rows: &[StoredRate<'_>]) -> QueryResult<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let input = InputRows {
        names: RATE_COLUMNS,
        rows: rows.iter().map(StoredRate::columns).collect(),
    };
    let dialect = conn.dialect();
    let text = format!(
        "INSERT INTO windlass_rates ({}) SELECT input.* FROM {} WHERE true \
         ON CONFLICT (rate_key) DO UPDATE SET number = excluded.number, period = excluded.period, burst = excluded.burst, \
         level = excluded.level, counted_at = excluded.counted_at, due_at = excluded.due_at, \
         has_waiting = excluded.has_waiting, promised = excluded.promised",
        RATE_COLUMNS.join(", "),
        input.item(dialect),
    );
    Statement::new(text)
        .bind_all(input.params(dialect))
        .execute(conn)
}

/// Closes a key for so long, by the database's clock: nothing that has it starts before. A key that was never used has this
/// pace.
pub(crate) fn close(
    conn: &mut Conn<'_>,
    key: &str,
    pace: RatePace,
    closed: Duration,
) -> QueryResult<()> {
    let now = format!("{} - {STEPS}", micros_now(conn));
    let text = format!(
        "INSERT INTO windlass_rates (rate_key, number, period, burst, level, counted_at, closed_until, due_at) \
         VALUES ($1, $2, $3, $4, $5, {now}, {now} + $6, {now} + $6) ON CONFLICT (rate_key) DO UPDATE SET closed_until = \
         CASE WHEN windlass_rates.closed_until > excluded.closed_until THEN windlass_rates.closed_until ELSE excluded.closed_until END"
    );
    Statement::new(text)
        .bind(key)
        .bind(pace.number)
        .bind(pace.period)
        .bind(pace.burst)
        .bind(RateBucket::full(pace, 0).level)
        .bind(micros(closed))
        .uncached()
        .execute(conn)
}

#[derive(QueryableByName)]
struct RatesOfJob {
    #[diesel(sql_type = Nullable<Text>)]
    rates: Option<String>,
}

/// Returns the rates of a job.
pub(crate) fn of_job(conn: &mut Conn<'_>, job: i64) -> QueryResult<Vec<NewRate>> {
    let text = "SELECT rates FROM solid_queue_jobs WHERE id = $1";
    let row: Option<RatesOfJob> = Statement::new(text)
        .bind(job)
        .uncached()
        .get_result(conn)
        .optional()?;
    Ok(row.map_or_else(Vec::new, |row| of_column(row.rates.as_deref())))
}

fn of_column(text: Option<&str>) -> Vec<NewRate> {
    let rates = text.and_then(|text| serde_json::from_str(text).ok());
    let rates: Vec<NewRate> = rates.unwrap_or_default();
    rates.into_iter().map(NewRate::checked).collect()
}

/// Deletes keys, unless they are closed: without a row, a bucket is full.
pub(crate) fn forget(conn: &mut Conn<'_>, keys: &[&str], now: i64) -> QueryResult<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let text = format!(
        "DELETE FROM windlass_rates WHERE {} AND coalesce(closed_until, 0) <= $2",
        is_one_of(conn, "rate_key", "$1")
    );
    bind_texts(conn, Statement::new(text), keys)
        .bind(now)
        .execute(conn)
}

#[derive(QueryableByName)]
struct DueKey {
    #[diesel(sql_type = Text)]
    rate_key: String,
}

/// Returns up to `most` keys that are due, the earliest first.
pub(crate) fn due(conn: &mut Conn<'_>, most: usize) -> QueryResult<Vec<String>> {
    let text = format!(
        "SELECT rate_key FROM windlass_rates WHERE due_at <= {} - {STEPS} ORDER BY due_at LIMIT $1 + 0",
        micros_now(conn)
    );
    let rows: Vec<DueKey> = Statement::new(text).bind(most as i64).load(conn)?;
    Ok(rows.into_iter().map(|row| row.rate_key).collect())
}

/// Leaves the key that is due first for a while, because the database refuses its promotion.
pub(crate) fn postpone(conn: &mut Conn<'_>) -> QueryResult<()> {
    let text = format!(
        "UPDATE windlass_rates SET due_at = {now} - {STEPS} + $1 WHERE rate_key = (SELECT rate_key FROM windlass_rates \
         WHERE due_at <= {now} - {STEPS} ORDER BY due_at LIMIT 1)",
        now = micros_now(conn)
    );
    Statement::new(text).bind(REFUSED).uncached().execute(conn)
}

/// The time for which a key is left that the database refuses, in microseconds.
pub(super) const REFUSED: i64 = 10_000_000;

#[derive(QueryableByName)]
struct NextDue {
    #[diesel(sql_type = Nullable<BigInt>)]
    micros: Option<i64>,
}

/// Returns the time until the next key is due, or the next queue whose threads are shared.
pub(crate) fn next_due(conn: &mut Conn<'_>) -> QueryResult<Option<Duration>> {
    let text = format!(
        "SELECT (SELECT min(due_at) FROM (SELECT min(due_at) AS due_at FROM windlass_rates WHERE due_at IS NOT NULL \
           UNION ALL SELECT min(due_at) FROM windlass_fair_queues) AS due) - {} + {STEPS} AS micros",
        micros_now(conn)
    );
    let next: NextDue = Statement::new(text).get_result(conn)?;
    let micros = next.micros.map(|micros| u64::try_from(micros).unwrap_or(0));
    Ok(micros.map(Duration::from_micros))
}

/// Makes all keys due whose starts are not counted yet, in a test. Returns whether there are any.
pub(crate) fn count_soon(conn: &mut Conn<'_>) -> QueryResult<bool> {
    let text = "UPDATE windlass_rates SET due_at = 0 WHERE promised IS NOT NULL";
    Ok(Statement::new(text).uncached().changes(conn)? > 0)
}

/// Lets time pass for all keys, in a test.
pub(crate) fn travel(conn: &mut Conn<'_>, micros: i64) -> QueryResult<()> {
    let text = "UPDATE windlass_rates SET counted_at = counted_at - $1, closed_until = closed_until - $1, due_at = due_at - $1";
    Statement::new(text).bind(micros).uncached().execute(conn)
}
