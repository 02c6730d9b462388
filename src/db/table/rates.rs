//! `windlass_rates`, `windlass_rate_tokens` and `windlass_lines`: the tokens of rates, those that are promised to ready jobs, and
//! the lines of jobs that wait for several gates.
//!
//! All times are microseconds by the database's clock less its steps, see [`Moment`]. The invariant of all committed data: if
//! a job waits in a line, then its line is requested, or one of its rates has a time at which it is due, or its line waits
//! for a concurrency key without a free slot.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, id_list, micros};
use crate::db::conn::statement::Statement;
use crate::db::model::rate::{NewRate, RateBucket, RatePace};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use std::collections::BTreeSet;
use std::time::Duration;

/// The steps of the database's clock so far, in microseconds: a setting, which only a step changes.
const STEPS: &str = "coalesce((SELECT CAST(s.value AS bigint) FROM windlass_settings s WHERE s.name = 'clock_steps'), 0)";

/// Returns a condition: `column` is one of the texts of the parameter.
fn is_one_of(conn: &Conn<'_>, column: &str, parameter: &str) -> String {
    match conn.dialect() {
        Dialect::Postgres => format!("{column} = ANY ({parameter})"),
        Dialect::Sqlite => format!("{column} IN (SELECT value FROM json_each({parameter}))"),
    }
}

/// Binds such texts.
fn bind_texts<'v>(
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
pub(crate) struct Moment {
    /// In microseconds since 1970.
    pub(crate) clock: i64,
    /// The sum of its steps that were noticed.
    pub(crate) steps: i64,
}

impl Moment {
    /// Returns the time without steps.
    pub(crate) fn now(self) -> i64 {
        self.clock.saturating_sub(self.steps)
    }
}

#[derive(QueryableByName)]
struct MomentRow {
    #[diesel(sql_type = BigInt)]
    clock: i64,
    #[diesel(sql_type = BigInt)]
    steps: i64,
}

/// Reads the clock.
pub(crate) fn moment(conn: &mut Conn<'_>) -> QueryResult<Moment> {
    let text = format!("SELECT {} AS clock, {STEPS} AS steps", micros_now(conn));
    let row: MomentRow = Statement::new(text).get_result(conn)?;
    Ok(Moment {
        clock: row.clock,
        steps: row.steps,
    })
}

/// Returns an expression for the clock in microseconds.
fn micros_now(conn: &Conn<'_>) -> &'static str {
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

/// A key that was used, or for which a rate was set at run time.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct RateRow {
    /// True if it is what was set for the key, or for its group.
    #[diesel(sql_type = Bool)]
    pub(crate) is_set: bool,
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
}

impl RateRow {
    pub(crate) fn pace(&self) -> RatePace {
        RatePace {
            number: self.number.max(1),
            period: self.period.max(1),
            burst: self.burst.max(1),
        }
    }
}

/// Returns what is stored of these keys, and what was set for them or their groups.
pub(crate) fn read(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<Vec<RateRow>> {
    let text = format!(
        "SELECT false AS is_set, rate_key, number, period, burst, level, counted_at, closed_until, due_at, has_waiting \
           FROM windlass_rates WHERE {} \
         UNION ALL SELECT true, limit_key, rate_number, rate_period, rate_burst, 0, 0, NULL, NULL, false \
           FROM windlass_limits WHERE {} AND rate_number IS NOT NULL",
        is_one_of(conn, "rate_key", "$1"),
        is_one_of(conn, "limit_key", "$2"),
    );
    let groups: Vec<String> = keys.iter().filter_map(|key| group(key)).collect();
    let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
    let set: Vec<&str> = keys
        .iter()
        .copied()
        .chain(groups.iter().map(|group| &**group))
        .collect();
    let statement = bind_texts(conn, Statement::new(text), &keys);
    bind_texts(conn, statement, &set).load(conn)
}

/// Returns the group of a key, with `*` for all its keys: `api/*`.
pub(crate) fn group(key: &str) -> Option<String> {
    let (group, _) = key.split_once('/')?;
    Some(format!("{group}/*"))
}

/// A key as it is to be stored.
pub(crate) type StoredRate<'r> = (&'r str, i64, i64, i64, i64, i64, Option<i64>, bool);

/// Stores the tokens of keys, which the caller has locked. A row that is there keeps the time until which it is closed.
pub(crate) fn store(conn: &mut Conn<'_>, rows: &[StoredRate<'_>]) -> QueryResult<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let number = |part: usize| format!("CAST(value ->> {part} AS bigint)");
    let numbers: Vec<String> = (1..7).map(number).collect();
    let text = format!(
        "INSERT INTO windlass_rates (rate_key, number, period, burst, level, counted_at, due_at, has_waiting) \
         SELECT value ->> 0, {}, CAST(value ->> 7 AS text) IN ('true', '1') FROM {{rows $1}} WHERE true \
         ON CONFLICT (rate_key) DO UPDATE SET number = excluded.number, period = excluded.period, burst = excluded.burst, \
         level = excluded.level, counted_at = excluded.counted_at, due_at = excluded.due_at, \
         has_waiting = excluded.has_waiting",
        numbers.join(", ")
    );
    let rows = serde_json::to_string(rows).unwrap_or_default();
    Statement::new(text).bind(rows).execute(conn)
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
        "INSERT INTO windlass_rates (rate_key, number, period, burst, level, counted_at, closed_until) \
         VALUES ($1, $2, $3, $4, $5, {now}, {now} + $6) ON CONFLICT (rate_key) DO UPDATE SET closed_until = \
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
    rates.unwrap_or_default()
}

/// Closes the key of a job's first rate.
pub(crate) fn close_of_job(conn: &mut Conn<'_>, job: i64, closed: Duration) -> QueryResult<()> {
    match of_job(conn, job)?.first() {
        Some(rate) => close(conn, &rate.key, rate.pace, closed),
        None => Ok(()),
    }
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
        "SELECT rate_key FROM windlass_rates WHERE due_at <= {} - {STEPS} ORDER BY due_at LIMIT $1",
        micros_now(conn)
    );
    let rows: Vec<DueKey> = Statement::new(text).bind(most as i64).load(conn)?;
    Ok(rows.into_iter().map(|row| row.rate_key).collect())
}

#[derive(QueryableByName)]
struct NextDue {
    #[diesel(sql_type = Nullable<BigInt>)]
    micros: Option<i64>,
}

/// Returns the time until the next key is due.
pub(crate) fn next_due(conn: &mut Conn<'_>) -> QueryResult<Option<Duration>> {
    let text = format!(
        "SELECT (SELECT due_at FROM windlass_rates WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1) - {} + {STEPS} AS micros",
        micros_now(conn)
    );
    let next: NextDue = Statement::new(text).get_result(conn)?;
    let micros = next.micros.map(|micros| u64::try_from(micros).unwrap_or(0));
    Ok(micros.map(Duration::from_micros))
}

/// Lets time pass for all keys, in a test.
pub(crate) fn travel(conn: &mut Conn<'_>, micros: i64) -> QueryResult<()> {
    let text = "UPDATE windlass_rates SET counted_at = counted_at - $1, closed_until = closed_until - $1, due_at = due_at - $1";
    Statement::new(text).bind(micros).uncached().execute(conn)
}

// --- Tokens ---

/// A token of a job that was made ready.
#[derive(Debug, QueryableByName)]
pub(crate) struct TokenRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) rate_key: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) cost: i64,
    /// True if its job has not started since.
    #[diesel(sql_type = Bool)]
    pub(crate) is_promised: bool,
    /// The start of the run that goes on, or the end of the job, by the database's clock.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) started_at: Option<i64>,
    /// By the database's clock.
    #[diesel(sql_type = BigInt)]
    pub(crate) created_at: i64,
}

/// Returns up to `most` tokens of these keys, by key: which of them are promised, and which were taken by a start.
///
/// It is one snapshot, so that no job is missed on its way from ready to claimed.
pub(crate) fn tokens(
    conn: &mut Conn<'_>,
    keys: &[&str],
    most: usize,
) -> QueryResult<Vec<TokenRow>> {
    let text = format!(
        "SELECT t.id, t.rate_key, t.cost, {{micros t.created_at}} AS created_at, \
           ((SELECT r.id FROM solid_queue_ready_executions r WHERE r.job_id = t.job_id LIMIT 1) IS NOT NULL \
           OR (SELECT c.id FROM solid_queue_claimed_executions c WHERE c.job_id = t.job_id AND c.started_at IS NULL LIMIT 1) \
             IS NOT NULL) AS is_promised, \
           coalesce((SELECT {{micros c.started_at}} FROM solid_queue_claimed_executions c WHERE c.job_id = t.job_id LIMIT 1), \
             (SELECT {{micros j.finished_at}} FROM solid_queue_jobs j WHERE j.id = t.job_id)) AS started_at \
         FROM windlass_rate_tokens t WHERE {} ORDER BY t.rate_key, t.id LIMIT $2",
        is_one_of(conn, "t.rate_key", "$1")
    );
    bind_texts(conn, Statement::new(text), keys)
        .bind(most as i64)
        .load(conn)
}

/// Gives tokens to jobs: a key, a job and a cost each.
pub(crate) fn promise(conn: &mut Conn<'_>, tokens: &[(&str, i64, i64)]) -> QueryResult<()> {
    if tokens.is_empty() {
        return Ok(());
    }
    let text = "INSERT INTO windlass_rate_tokens (rate_key, job_id, cost, created_at) \
         SELECT value ->> 0, CAST(value ->> 1 AS bigint), CAST(value ->> 2 AS bigint), {now} FROM {rows $1}";
    let rows = serde_json::to_string(tokens).unwrap_or_default();
    Statement::new(text).bind(rows).execute(conn)
}

/// Deletes tokens whose start was counted.
pub(crate) fn delete_tokens(conn: &mut Conn<'_>, tokens: &[i64]) -> QueryResult<()> {
    if tokens.is_empty() {
        return Ok(());
    }
    let text = "DELETE FROM windlass_rate_tokens WHERE id IN {in $1}";
    Statement::new(text).bind(id_list(tokens)).execute(conn)
}

// --- Lines ---

/// The kind of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GateKind {
    Rate,
    Limit,
}

impl GateKind {
    pub(crate) fn column(self) -> &'static str {
        match self {
            GateKind::Rate => "rate",
            GateKind::Limit => "limit",
        }
    }
}

#[derive(QueryableByName)]
struct LineName {
    #[diesel(sql_type = Text)]
    line: String,
}

/// Returns up to `most` lines that wait for each of these gates, in the order of their first jobs.
pub(crate) fn lines_at(
    conn: &mut Conn<'_>,
    kind: GateKind,
    keys: &[&str],
    most: usize,
) -> QueryResult<Vec<String>> {
    let mut lines = Vec::new();
    let text = "SELECT line FROM windlass_lines WHERE gate_kind = $1 AND gate_key = $2 ORDER BY priority, job_id LIMIT $3";
    for key in keys {
        let rows: Vec<LineName> = Statement::new(text)
            .bind(kind.column())
            .bind(*key)
            .bind(most as i64)
            .load(conn)?;
        lines.extend(rows.into_iter().map(|row| row.line));
    }
    Ok(lines)
}

/// A line, the kind and the key of the gate at which it waits, and the priority and the id of its first job.
pub(crate) type WaitingLine<'l> = (&'l str, &'static str, &'l str, i32, i64);

/// Notes at which gates lines wait.
pub(crate) fn place_lines(conn: &mut Conn<'_>, lines: &[WaitingLine<'_>]) -> QueryResult<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let text = "INSERT INTO windlass_lines (line, gate_kind, gate_key, priority, job_id) \
         SELECT value ->> 0, value ->> 1, value ->> 2, CAST(value ->> 3 AS integer), CAST(value ->> 4 AS bigint) \
         FROM {rows $1} WHERE true ON CONFLICT (line) DO UPDATE SET gate_kind = excluded.gate_kind, gate_key = excluded.gate_key, \
         priority = excluded.priority, job_id = excluded.job_id";
    let rows = serde_json::to_string(lines).unwrap_or_default();
    Statement::new(text).bind(rows).execute(conn)
}

/// Forgets lines in which no job waits.
pub(crate) fn drop_lines(conn: &mut Conn<'_>, lines: &[&str]) -> QueryResult<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let text = format!(
        "DELETE FROM windlass_lines WHERE {}",
        is_one_of(conn, "line", "$1")
    );
    bind_texts(conn, Statement::new(text), lines).execute(conn)
}

/// Returns those of the lines in which more jobs wait than the number beside them.
pub(crate) fn longer_than(conn: &mut Conn<'_>, lines: &[(&str, i64)]) -> QueryResult<Vec<String>> {
    if lines.is_empty() || conn.dialect() == Dialect::Sqlite {
        return Ok(Vec::new());
    }
    let text = "SELECT w.line FROM (SELECT value ->> 0 AS line, CAST(value ->> 1 AS bigint) AS jobs FROM {rows $1}) AS w \
         WHERE (SELECT count(*) FROM (SELECT 1 FROM solid_queue_blocked_executions b WHERE b.gate = w.line LIMIT w.jobs + 1) AS few) > w.jobs";
    let rows = serde_json::to_string(lines).unwrap_or_default();
    let longer: Vec<LineName> = Statement::new(text).bind(rows).load(conn)?;
    Ok(longer.into_iter().map(|row| row.line).collect())
}

/// The place of a job in its line.
#[derive(Debug, QueryableByName)]
pub(crate) struct PlaceInLine {
    #[diesel(sql_type = Text)]
    pub(crate) line: String,
    /// The kind and the key of the gate for which the line waits, if it has several.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) gate_kind: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) gate_key: Option<String>,
    /// The number of jobs before it, up to the most that are counted.
    #[diesel(sql_type = BigInt)]
    pub(crate) ahead: i64,
}

/// Returns the place of a job in its line, if it waits in one.
pub(crate) fn place(conn: &mut Conn<'_>, job: i64, most: u32) -> QueryResult<Option<PlaceInLine>> {
    let text = format!(
        "SELECT b.gate AS line, (SELECT l.gate_kind FROM windlass_lines l WHERE l.line = b.gate) AS gate_kind, \
           (SELECT l.gate_key FROM windlass_lines l WHERE l.line = b.gate) AS gate_key, \
           (SELECT count(*) FROM (SELECT 1 FROM solid_queue_blocked_executions o WHERE o.gate = b.gate \
             AND (o.priority, o.job_id) < (b.priority, b.job_id) LIMIT {most}) AS before) AS ahead \
         FROM solid_queue_blocked_executions b WHERE b.job_id = $1 AND b.gate IS NOT NULL"
    );
    Statement::new(text)
        .bind(job)
        .uncached()
        .get_result(conn)
        .optional()
}

#[derive(QueryableByName)]
struct DueIn {
    #[diesel(sql_type = Nullable<BigInt>)]
    due: Option<i64>,
    #[diesel(sql_type = BigInt)]
    each: i64,
}

/// Returns the time until a key is due, and the time between two of its tokens.
pub(crate) fn due_in(conn: &mut Conn<'_>, key: &str) -> QueryResult<Option<(Duration, Duration)>> {
    let text = format!(
        "SELECT due_at - {} + {STEPS} AS due, period / number AS each FROM windlass_rates WHERE rate_key = $1",
        micros_now(conn)
    );
    let row: Option<DueIn> = Statement::new(text)
        .bind(key)
        .uncached()
        .get_result(conn)
        .optional()?;
    let time = |micros: i64| Duration::from_micros(u64::try_from(micros).unwrap_or(0));
    Ok(row.and_then(|row| Some((time(row.due?), time(row.each)))))
}

/// A job that waits in a line.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct LineJob {
    #[diesel(sql_type = Text)]
    pub(crate) line: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) rates: Option<String>,
    /// True if the job ends if its concurrency key has no free slot.
    #[diesel(sql_type = Bool)]
    pub(crate) discards: bool,
}

impl LineJob {
    /// Returns its rates.
    pub(crate) fn rates(&self) -> Vec<NewRate> {
        of_column(self.rates.as_deref())
    }
}

/// Returns the first jobs of lines, each with the most to return, locked. Those that another transaction is moving are
/// skipped, but not in a line of an ordered key.
pub(crate) fn first_of(
    conn: &mut Conn<'_>,
    lines: &[(&str, i64)],
    in_order: i32,
) -> QueryResult<Vec<LineJob>> {
    const COLUMNS: &str = "b.job_id, b.priority, j.rates, \
         coalesce(j.concurrency_conflict = 'discard' AND j.last_claim_id IS NULL AND j.attempts = 0 AND j.crash_count = 0, false) AS discards";
    match conn.dialect() {
        Dialect::Postgres => {
            let text = format!(
                "SELECT w.line, {COLUMNS} FROM (SELECT value ->> 0 AS line, CAST(value ->> 1 AS bigint) AS most FROM {{rows $1}}) AS w \
                 CROSS JOIN LATERAL (SELECT job_id, priority FROM solid_queue_blocked_executions WHERE gate = w.line \
                   ORDER BY priority, job_id LIMIT w.most FOR UPDATE SKIP LOCKED) AS b \
                 JOIN solid_queue_jobs j ON j.id = b.job_id \
                 WHERE b.priority > {in_order} OR b.job_id = (SELECT f.job_id FROM solid_queue_blocked_executions f \
                   WHERE f.gate = w.line ORDER BY f.priority, f.job_id LIMIT 1)"
            );
            let rows = serde_json::to_string(lines).unwrap_or_default();
            Statement::new(text).bind(rows).load(conn)
        }
        Dialect::Sqlite => {
            let text = format!(
                "SELECT $1 AS line, {COLUMNS} FROM (SELECT job_id, priority FROM solid_queue_blocked_executions WHERE gate = $1 \
                   ORDER BY priority, job_id LIMIT $2) AS b CROSS JOIN solid_queue_jobs j WHERE j.id = b.job_id"
            );
            let mut jobs = Vec::new();
            for (line, most) in lines {
                let first = Statement::new(&text).bind(*line).bind(*most);
                jobs.extend(first.load::<LineJob>(conn)?);
            }
            Ok(jobs)
        }
    }
}
