//! Rates in use that need a look, and the number of jobs that wait for those of each group.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::model::gate_line::GateLine;
use crate::db::table::rates::{DueKey, STEPS, micros_now, of_column, set_paces};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use std::collections::{BTreeMap, BTreeSet};

/// A job that is the first of its rate, and costs more than the rate allows at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeverMet {
    /// The key of the rate.
    pub key: String,
    /// The job.
    pub job: i64,
    /// The tokens that it needs.
    pub cost: i64,
    /// The most that there are at once.
    pub burst: i64,
    /// The key for which the rate was set at run time, if it was.
    pub set_as: Option<String>,
}

/// The most keys that are looked at.
const MOST_KEYS: i64 = 1_000;

#[derive(QueryableByName)]
struct FirstOfRate {
    #[diesel(sql_type = Text)]
    rate_key: String,
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Nullable<Text>)]
    rates: Option<String>,
}

/// Returns the rates that can never be met, of the first 1,000 keys for which jobs wait.
pub fn never_met(conn: &mut Conn<'_>) -> QueryResult<Vec<NeverMet>> {
    let text = format!(
        "WITH waiting AS MATERIALIZED (SELECT rate_key FROM windlass_rates WHERE has_waiting ORDER BY rate_key LIMIT {MOST_KEYS}), \
         firsts AS MATERIALIZED (SELECT w.rate_key, (SELECT b.job_id FROM solid_queue_blocked_executions b \
             WHERE b.gate = w.rate_key ORDER BY b.priority, b.job_id LIMIT 1) AS job_id FROM waiting w \
           UNION ALL SELECT w.rate_key, (SELECT l.job_id FROM windlass_lines l WHERE l.gate_kind = 'rate' \
             AND l.gate_key = w.rate_key ORDER BY l.priority, l.job_id LIMIT 1) AS job_id FROM waiting w) \
         SELECT firsts.rate_key, firsts.job_id, (SELECT j.rates FROM solid_queue_jobs j WHERE j.id = firsts.job_id) AS rates \
         FROM firsts WHERE firsts.job_id IS NOT NULL ORDER BY firsts.rate_key, firsts.job_id"
    );
    let rows: Vec<FirstOfRate> = Statement::new(text).uncached().load(conn)?;
    let keys: BTreeSet<String> = rows.iter().map(|row| row.rate_key.clone()).collect();
    let set = set_paces(conn, &keys)?;
    let found = rows.into_iter().filter_map(|row| {
        let rates = of_column(row.rates.as_deref());
        let rate = rates.into_iter().find(|rate| rate.key == row.rate_key)?;
        let burst = set.pace(&rate).burst;
        (rate.cost > burst).then(|| NeverMet {
            job: row.job_id,
            cost: rate.cost,
            burst,
            set_as: set.of(&rate.key).map(|(key, _)| key.to_owned()),
            key: rate.key,
        })
    });
    Ok(found.collect())
}

/// Returns up to `most` keys that are closed for more than these seconds, by key.
pub fn closed_longer_than(
    conn: &mut Conn<'_>,
    seconds: i64,
    most: i64,
) -> QueryResult<Vec<String>> {
    let text = format!(
        "SELECT rate_key FROM windlass_rates WHERE closed_until > {} - {STEPS} + $1 ORDER BY rate_key LIMIT $2",
        micros_now(conn)
    );
    let rows: Vec<DueKey> = Statement::new(text)
        .uncached()
        .bind(seconds.saturating_mul(1_000_000))
        .bind(most)
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.rate_key).collect())
}

// --- The groups of keys ---

/// The jobs that wait for the rates of a group, and its keys that are closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateGroup {
    /// The jobs that wait.
    pub waiting: u64,
    /// The keys that are closed.
    pub closed: u64,
}

/// The most jobs, and the most closed keys, that are counted in all.
const MOST_OF_ALL: i64 = 10_000;

#[derive(QueryableByName)]
struct LineJobs {
    #[diesel(sql_type = Text)]
    line: String,
    #[diesel(sql_type = Nullable<Text>)]
    gate_kind: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    gate_key: Option<String>,
    #[diesel(sql_type = BigInt)]
    jobs: i64,
}

impl LineJobs {
    /// Returns the key of the rate for which it waits, if it waits for one.
    fn rate(&self) -> Option<String> {
        match self.gate_kind.as_deref() {
            Some("rate") => self.gate_key.clone(),
            Some(_) => None,
            None => GateLine::of(&self.line).rates.into_iter().next(),
        }
    }
}

/// Returns the groups of keys for which jobs wait or that are closed, by the part of the key before the first `/`.
pub fn groups(conn: &mut Conn<'_>) -> QueryResult<BTreeMap<String, RateGroup>> {
    let text = format!(
        "SELECT few.line, l.gate_kind, l.gate_key, few.jobs FROM (SELECT waiting.gate AS line, count(*) AS jobs FROM ( \
             SELECT gate FROM solid_queue_blocked_executions WHERE gate > '' ORDER BY gate LIMIT {}) AS waiting GROUP BY waiting.gate) AS few \
         LEFT JOIN windlass_lines l ON l.line = few.line ORDER BY few.line",
        MOST_OF_ALL + 1
    );
    let lines: Vec<LineJobs> = Statement::new(text).uncached().load(conn)?;
    let closed = closed_longer_than(conn, 0, MOST_OF_ALL + 1)?;
    let group = |key: &str| key.split('/').next().unwrap_or_default().to_owned();
    let mut groups: BTreeMap<String, RateGroup> = BTreeMap::new();
    for (line, key) in lines.iter().filter_map(|line| Some((line, line.rate()?))) {
        let of = groups.entry(group(&key)).or_default();
        of.waiting += u64::try_from(line.jobs).unwrap_or(0);
    }
    for key in closed {
        groups.entry(group(&key)).or_default().closed += 1;
    }
    Ok(groups)
}
