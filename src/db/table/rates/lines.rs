//! `windlass_lines`, and the jobs of lines: those that wait for several gates.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::{InputRows, Param, Statement};
use crate::db::model::new_row::IN_ORDER;
use crate::db::model::rate::NewRate;
use crate::db::table::rates::{STEPS, bind_texts, is_one_of, micros_now, of_column};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use std::time::Duration;

/// The kind of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GateKind {
    /// The share of a tenant: the key is the queue.
    Share,
    Rate,
    Limit,
}

impl GateKind {
    pub(crate) fn column(self) -> &'static str {
        match self {
            GateKind::Share => "share",
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

/// A line that waits for a gate.
#[derive(QueryableByName)]
pub(crate) struct LineAtGate {
    #[diesel(sql_type = Text)]
    pub(crate) gate_key: String,
    #[diesel(sql_type = Text)]
    pub(crate) line: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    /// The use that it has noted, if it waits for a share.
    #[diesel(sql_type = BigInt)]
    pub(crate) pass: i64,
}

/// Returns the first lines that wait for each of these gates, up to the number beside it: by priority, then as far as the
/// tenants of a share are behind the others, then by age.
pub(crate) fn lines_at(
    conn: &mut Conn<'_>,
    kind: GateKind,
    keys: &[(&String, usize)],
) -> QueryResult<Vec<LineAtGate>> {
    const OF_GATE: &str = "FROM windlass_lines l WHERE l.gate_kind = $1";
    const ORDER: &str = "ORDER BY l.priority, l.pass, l.job_id";
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    match conn.dialect() {
        Dialect::Postgres => {
            let text = format!(
                "SELECT l.gate_key, l.line, l.priority, l.pass FROM (SELECT value ->> 0 AS key, CAST(value ->> 1 AS bigint) AS most, place \
                   FROM json_array_elements(CAST($2 AS json)) WITH ORDINALITY AS k (value, place)) AS k \
                 CROSS JOIN LATERAL (SELECT l.gate_key, l.line, l.priority, l.pass {OF_GATE} AND l.gate_key = k.key {ORDER} LIMIT k.most) AS l ORDER BY k.place"
            );
            let statement = Statement::new(text).bind(kind.column());
            let keys = serde_json::to_string(keys).unwrap_or_default();
            statement.bind(keys).load(conn)
        }
        Dialect::Sqlite => {
            // It prepares a statement anew for each number that is bound to its LIMIT alone.
            let text = format!(
                "SELECT l.gate_key, l.line, l.priority, l.pass {OF_GATE} AND l.gate_key = $2 {ORDER} LIMIT $3 + 0"
            );
            let mut lines = Vec::new();
            for (key, most) in keys {
                let statement = Statement::new(&text).bind(kind.column()).bind(*key);
                lines.extend(statement.bind(*most as i64).load::<LineAtGate>(conn)?);
            }
            Ok(lines)
        }
    }
}

/// Returns a condition: no job of the ordered `key` that has a rate comes before the blocked execution `b`. Those wait in the
/// line of the key, see [`GateLine`](crate::db::model::gate_line::GateLine).
pub(crate) fn is_before_line(dialect: Dialect, key: &str) -> String {
    format!(
        "(b.priority > {IN_ORDER} OR coalesce({} > b.job_id, true))",
        first_in_line(dialect, key)
    )
}

/// Returns an expression for the first job with a rate of an ordered key.
pub(crate) fn first_in_line(dialect: Dialect, key: &str) -> String {
    let character = match dialect {
        Dialect::Postgres => "chr",
        Dialect::Sqlite => "char",
    };
    format!(
        "(SELECT g.job_id FROM solid_queue_blocked_executions g WHERE g.gate = {character}(30) || {key} \
         ORDER BY g.priority, g.job_id LIMIT 1)"
    )
}

/// Returns an expression for the first job without a rate of an ordered key.
pub(crate) fn first_in_order(key: &str) -> String {
    format!(
        "(SELECT o.job_id FROM solid_queue_blocked_executions o WHERE o.concurrency_key = {key} AND o.priority = {IN_ORDER} \
         ORDER BY o.priority, o.job_id LIMIT 1)"
    )
}

/// Returns a condition: the jobs of an ordered key that have no rate wait behind one that has.
pub(crate) fn is_behind_in_order(dialect: Dialect, key: &str) -> String {
    format!(
        "coalesce({} < {}, false)",
        first_in_line(dialect, key),
        first_in_order(key)
    )
}

/// Returns a condition: a line of jobs with rates that waits for a slot of a key comes before its other jobs.
pub(crate) fn is_behind_line(key: &str) -> String {
    format!(
        "coalesce((SELECT (l.priority, l.job_id) < (o.priority, o.job_id) FROM (SELECT priority, job_id FROM windlass_lines \
             WHERE gate_kind = 'limit' AND gate_key = {key} ORDER BY priority, job_id LIMIT 1) AS l \
           CROSS JOIN (SELECT priority, job_id FROM solid_queue_blocked_executions WHERE concurrency_key = {key} \
             ORDER BY priority, job_id LIMIT 1) AS o), false)"
    )
}

/// Returns a condition: no line of jobs with rates waits for a slot of a key.
pub(crate) fn has_no_line(key: &str) -> String {
    format!(
        "(SELECT l.line FROM windlass_lines l WHERE l.gate_kind = 'limit' AND l.gate_key = {key} LIMIT 1) IS NULL"
    )
}

/// Returns up to `most` lines after one, by name, that wait for concurrency keys; with `group`, for those of a group alone.
pub(crate) fn lines_at_limits(
    conn: &mut Conn<'_>,
    group: Option<&str>,
    after: &str,
    most: usize,
) -> QueryResult<Vec<String>> {
    let of_group = group.map_or("", |_| "AND {group gate_key} = $3");
    let text = format!(
        "SELECT line FROM windlass_lines WHERE line > $1 AND gate_kind = 'limit' {of_group} ORDER BY line LIMIT $2"
    );
    let statement = Statement::new(text)
        .uncached()
        .bind(after)
        .bind(most as i64);
    let statement = match group {
        Some(group) => statement.bind(group),
        None => statement,
    };
    let rows: Vec<LineName> = statement.load(conn)?;
    Ok(rows.into_iter().map(|row| row.line).collect())
}

/// Returns up to `most` lines after one, by name, in which jobs wait and that no request names.
pub(crate) fn unwanted_lines(
    conn: &mut Conn<'_>,
    after: &str,
    most: usize,
) -> QueryResult<(Option<String>, Vec<String>)> {
    let next = |beyond: &str| {
        format!(
            "(SELECT min(b.gate) FROM solid_queue_blocked_executions b WHERE b.gate IS NOT NULL AND b.gate > {beyond})"
        )
    };
    let text = format!(
        "WITH RECURSIVE walk(line, place) AS (SELECT {}, 1 \
           UNION ALL SELECT {}, walk.place + 1 FROM walk WHERE walk.line IS NOT NULL AND walk.place < $2) \
         SELECT walk.line, NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.key IS NULL AND w.target_id IS NULL AND w.name = walk.line) \
           AND NOT EXISTS (SELECT 1 FROM windlass_rates r WHERE r.rate_key = walk.line AND r.has_waiting \
             AND r.counted_at <= {} - {STEPS} + 1000000) \
           AND NOT EXISTS (SELECT 1 FROM windlass_lines l JOIN windlass_fair_queues q ON q.queue_name = l.gate_key \
             WHERE l.line = walk.line AND l.gate_kind = 'share' AND q.due_at IS NOT NULL) AS is_unwanted \
         FROM walk WHERE walk.line IS NOT NULL ORDER BY walk.place",
        next("$1"),
        next("walk.line"),
        micros_now(conn),
    );
    let rows: Vec<SweptLine> = Statement::new(text)
        .uncached()
        .bind(after)
        .bind(most as i64)
        .load(conn)?;
    let last = rows.last().filter(|_| rows.len() >= most);
    let reached = last.map(|row| row.line.clone());
    let unwanted = rows.into_iter().filter(|row| row.is_unwanted);
    Ok((reached, unwanted.map(|row| row.line).collect()))
}

#[derive(QueryableByName)]
struct SweptLine {
    #[diesel(sql_type = Text)]
    line: String,
    #[diesel(sql_type = Bool)]
    is_unwanted: bool,
}

/// A line that waits, and its place.
#[derive(Debug)]
pub(crate) struct WaitingLine<'l> {
    pub(crate) line: &'l str,
    /// The kind and the key of the gate at which it waits.
    pub(crate) kind: &'static str,
    pub(crate) key: &'l str,
    /// The priority and the id of its first job, if known.
    pub(crate) priority: Option<i32>,
    pub(crate) job: Option<i64>,
    /// The use of its tenant, if it waits for a share.
    pub(crate) pass: i64,
    /// Its place among lines of the same priority, if it is one of a tenant. These come in turns: it keeps its place until
    /// jobs of it have gone on, and is the last then.
    pub(crate) turn: LineTurn,
}

/// The place of a line among others of the same priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineTurn {
    /// That of its first job.
    Age,
    /// As before.
    Kept,
    /// The last.
    Served,
}

impl LineTurn {
    fn column(self) -> &'static str {
        match self {
            LineTurn::Age => "age",
            LineTurn::Kept => "kept",
            LineTurn::Served => "served",
        }
    }
}

impl<'l> WaitingLine<'l> {
    fn columns(&self) -> [Param<'l>; 7] {
        [
            self.line.into(),
            self.kind.into(),
            self.key.into(),
            Param::Integer(self.priority),
            self.pass.into(),
            Param::BigInt(self.job),
            self.turn.column().into(),
        ]
    }
}

/// Notes at which gates lines wait.
pub(crate) fn place_lines(conn: &mut Conn<'_>, lines: &[WaitingLine<'_>]) -> QueryResult<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let first = |column: &str| {
        format!(
            "(SELECT b.{column} FROM solid_queue_blocked_executions b WHERE b.gate = input.line \
             ORDER BY b.priority, b.job_id LIMIT 1), 0)"
        )
    };
    let input = InputRows {
        names: ["line", "kind", "key", "priority", "pass", "job", "turn"],
        rows: lines.iter().map(WaitingLine::columns).collect(),
    };
    let dialect = conn.dialect();
    let text = format!(
        "INSERT INTO windlass_lines (line, gate_kind, gate_key, priority, pass, job_id) \
         SELECT input.line, input.kind, input.key, coalesce(input.priority, {}, input.pass, \
           CASE input.turn WHEN 'served' THEN (SELECT max(id) FROM solid_queue_jobs) \
             WHEN 'kept' THEN coalesce((SELECT l.job_id FROM windlass_lines l WHERE l.line = input.line), input.job, {} \
             ELSE coalesce(input.job, {} END \
         FROM {} WHERE true ON CONFLICT (line) DO UPDATE SET gate_kind = excluded.gate_kind, gate_key = excluded.gate_key, \
         priority = excluded.priority, pass = excluded.pass, job_id = excluded.job_id",
        first("priority"),
        first("job_id"),
        first("job_id"),
        input.item(dialect),
    );
    Statement::new(text)
        .bind_all(input.params(dialect))
        .execute(conn)
}

/// Notes what the tenants of lines that wait have used.
pub(crate) fn note_passes(conn: &mut Conn<'_>, lines: &[(&str, i64)]) -> QueryResult<()> {
    let input = InputRows {
        names: ["line", "pass"],
        rows: lines
            .iter()
            .map(|(line, pass)| [(*line).into(), (*pass).into()])
            .collect(),
    };
    let dialect = conn.dialect();
    let text = format!(
        "UPDATE windlass_lines SET pass = input.pass FROM {} WHERE windlass_lines.line = input.line",
        input.item(dialect)
    );
    Statement::new(text)
        .bind_all(input.params(dialect))
        .execute(conn)
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
pub(crate) struct JobInLine {
    #[diesel(sql_type = Text)]
    pub(crate) line: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    /// Its place in the line: one of an ordered key comes first.
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    /// The priority of the job.
    #[diesel(sql_type = Integer)]
    pub(crate) level: i32,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) rates: Option<String>,
    #[diesel(sql_type = Text)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) tenant: Option<String>,
    /// True if the job ends if its concurrency key has no free slot.
    #[diesel(sql_type = Bool)]
    pub(crate) discards: bool,
}

impl JobInLine {
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
) -> QueryResult<Vec<JobInLine>> {
    const COLUMNS: &str = "b.job_id, b.priority, j.priority AS level, j.rates, j.queue_name, j.tenant, \
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
                "SELECT $1 AS line, {} FROM (SELECT job_id, priority FROM solid_queue_blocked_executions WHERE gate = $1 \
                   ORDER BY priority, job_id LIMIT $2 + 0) AS few CROSS JOIN solid_queue_jobs j WHERE j.id = few.job_id",
                COLUMNS.replace("b.", "few.")
            );
            let mut jobs = Vec::new();
            for (line, most) in lines {
                let first = Statement::new(&text).bind(*line).bind(*most);
                jobs.extend(first.load::<JobInLine>(conn)?);
            }
            Ok(jobs)
        }
    }
}
