//! The keys of rates that are in use, as operators see them.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::statement::Statement;
use crate::db::model::rate::{PromisedJobs, RateBucket, RatePace, SetPace};
use crate::db::table::rates::{STEPS, SetPaces, micros_now, promised_of, set_paces};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Nullable, Text};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// So many starts in a time, and so many at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StartRate {
    /// The starts in that time.
    pub starts: i64,
    /// The time, in seconds.
    pub seconds: f64,
    /// The most starts at once. `None` if none was set: then it is that of a [`Rate`](crate::limits::Rate) without a burst.
    pub burst: Option<i64>,
}

const MICROS: f64 = 1_000_000.0;

impl From<SetPace> for StartRate {
    fn from(set: SetPace) -> Self {
        StartRate {
            starts: set.number,
            seconds: set.period as f64 / MICROS,
            burst: set.burst,
        }
    }
}

impl From<RatePace> for StartRate {
    fn from(pace: RatePace) -> Self {
        StartRate::from(SetPace {
            number: pace.number,
            period: pace.period,
            burst: Some(pace.burst),
        })
    }
}

/// Writes `10/s, 20 at once`.
impl fmt::Display for StartRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1.0, "s"), (60.0, "m"), (3_600.0, "h"), (86_400.0, "d")];
        let unit = units.iter().find(|(seconds, _)| *seconds == self.seconds);
        match unit {
            Some((_, unit)) => write!(f, "{}/{unit}", self.starts)?,
            None => write!(f, "{} in {} s", self.starts, self.seconds)?,
        }
        self.burst
            .map_or(Ok(()), |burst| write!(f, ", {burst} at once"))
    }
}

/// The key of a rate that is in use.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RateStatus {
    /// The key.
    pub key: String,
    /// The rate that counts: the one that was set at run time, or that of the last job whose turn it was. `None` if the key
    /// was closed before a job had it.
    pub rate: Option<StartRate>,
    /// The key of the [limit](crate::limits::list) that set the rate at run time: this one, or that of its group.
    pub set_as: Option<String>,
    /// The tokens that are there, without those of jobs that are ready and have not started.
    pub tokens: i64,
    /// The jobs that wait for a token, counted up to 1,000; 1,001 means more.
    pub waiting: i64,
    /// Seconds since the first of them began to wait, by the database's clock.
    pub waited_seconds: Option<f64>,
    /// Seconds for which it is closed, as a job was refused by the other side.
    pub closed_seconds: Option<f64>,
}

/// The most jobs of a key that are counted.
const MOST_WAITING: i64 = 1_000;

#[derive(QueryableByName)]
struct UsedKey {
    #[diesel(sql_type = Text)]
    rate_key: String,
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = BigInt)]
    period: i64,
    #[diesel(sql_type = BigInt)]
    burst: i64,
    #[diesel(sql_type = BigInt)]
    level: i64,
    #[diesel(sql_type = BigInt)]
    counted_at: i64,
    #[diesel(sql_type = BigInt)]
    now: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    closed_until: Option<i64>,
    /// The jobs of which no look has counted a start.
    #[diesel(sql_type = Nullable<Text>)]
    promised: Option<String>,
    #[diesel(sql_type = BigInt)]
    waiting: i64,
    #[diesel(sql_type = Nullable<Double>)]
    waited_seconds: Option<f64>,
}

impl UsedKey {
    fn status(self, set: &SetPaces) -> RateStatus {
        let own = RatePace {
            number: self.number.max(1),
            period: self.period.max(1),
            burst: self.burst.max(1),
        };
        let mut bucket = RateBucket {
            pace: own,
            level: self.level,
            counted_at: self.counted_at,
        };
        let promised = promised_of(self.promised.as_deref());
        let promised = PromisedJobs::all(&promised);
        let set = set.of(&self.rate_key);
        bucket.fill(self.now);
        if let Some((_, pace)) = set {
            bucket.change(pace.for_cost(bucket.pace.burst));
        }
        let rate = match set {
            Some((_, pace)) => Some(StartRate::from(pace)),
            None => (own != RatePace::LOOSE).then(|| StartRate::from(own)),
        };
        let closed = self.closed_until.map(|until| until - self.now);
        RateStatus {
            rate,
            set_as: set.map(|(key, _)| key.to_owned()),
            tokens: match rate {
                Some(_) => bucket.room(promised),
                None => 0,
            },
            waiting: self.waiting.min(MOST_WAITING + 1),
            waited_seconds: self.waited_seconds,
            closed_seconds: closed
                .filter(|closed| *closed > 0)
                .map(|closed| closed as f64 / MICROS),
            key: self.rate_key,
        }
    }
}

/// Returns the keys in use after `after`, by key: up to `most`.
pub(crate) fn keys_in_use(
    conn: &mut Conn<'_>,
    after: &str,
    most: i64,
) -> QueryResult<Vec<RateStatus>> {
    // Jobs whose only gate is the rate are in the line with its key; the other lines say for which gate they wait.
    let waiting = |columns: &str, order: &str, most: i64| {
        format!(
            "SELECT {columns} FROM (SELECT * FROM (SELECT b.created_at FROM solid_queue_blocked_executions b \
               WHERE b.gate = used.rate_key {order} LIMIT {most}) AS alone \
             UNION ALL SELECT * FROM (SELECT b.created_at FROM (SELECT l.line FROM windlass_lines l WHERE l.gate_kind = 'rate' \
               AND l.gate_key = used.rate_key AND l.line <> used.rate_key LIMIT {most}) AS lines \
               CROSS JOIN solid_queue_blocked_executions b WHERE b.gate = lines.line LIMIT {most}) AS others) AS waiting"
        )
    };
    let now = format!("{} - {STEPS}", micros_now(conn));
    let count = waiting("count(*)", "", MOST_WAITING + 1);
    let oldest = waiting(
        "min(waiting.created_at)",
        "ORDER BY b.priority, b.job_id",
        20,
    );
    let text = format!(
        "SELECT rate_key, number, period, burst, level, counted_at, closed_until, now, promised, waiting, {} AS waited_seconds \
         FROM (SELECT used.rate_key, used.number, used.period, used.burst, used.level, used.counted_at, used.closed_until, {now} AS now, used.promised, \
           ({count}) AS waiting, ({oldest}) AS oldest \
           FROM (SELECT * FROM windlass_rates WHERE rate_key > $1 ORDER BY rate_key LIMIT $2) AS used) AS looked ORDER BY rate_key",
        age(conn, "oldest")
    );
    let rows: Vec<UsedKey> = Statement::new(text)
        .uncached()
        .bind(after)
        .bind(most)
        .load(conn)?;
    let keys: BTreeSet<String> = rows.iter().map(|row| row.rate_key.clone()).collect();
    let set = set_paces(conn, &keys)?;
    Ok(rows.into_iter().map(|row| row.status(&set)).collect())
}

#[derive(QueryableByName)]
struct ClosedFor {
    #[diesel(sql_type = Nullable<BigInt>)]
    closed: Option<i64>,
}

/// Returns the seconds for which a key is closed.
pub(crate) fn closed_for(conn: &mut Conn<'_>, key: &str) -> QueryResult<Option<f64>> {
    let text = format!(
        "SELECT closed_until - {} + {STEPS} AS closed FROM windlass_rates WHERE rate_key = $1",
        micros_now(conn)
    );
    let row: Option<ClosedFor> = Statement::new(text)
        .bind(key)
        .uncached()
        .get_result(conn)
        .optional()?;
    let closed = row.and_then(|row| row.closed).filter(|micros| *micros > 0);
    Ok(closed.map(|micros| micros as f64 / MICROS))
}
