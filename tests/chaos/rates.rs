//! Jobs with rates, of tenants that share the threads of their queue: in any window, no more of a key start than its rates
//! allow.

use crate::Result;
use crate::check::Violations;
use crate::gates::work;
use crate::jobs::Log;
use crate::place::Place;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass::limits::Rate;
use windlass::{Context, Job, JobError, JobResult};

/// A job of a rate for all, and of one of three others. Some are refused by the other side.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Paced(pub u64);

const ALL: (u32, u32) = (60, 12);
const EACH: (u32, u32) = (30, 6);

impl Paced {
    fn key(job: u64) -> String {
        format!("chaos_pace/{}", job % 3)
    }

    fn cost(job: u64) -> u32 {
        1 + (job % 2) as u32
    }
}

impl Job for Paced {
    const NAME: &'static str = "chaos_paced";
    type State = Log;
    type Output = ();

    fn rates(&self) -> Vec<Rate> {
        let rate = |(number, burst): (u32, u32)| Rate::per_second(number).burst(burst);
        vec![
            rate(ALL),
            rate(EACH).key(Paced::key(self.0)).cost(Paced::cost(self.0)),
        ]
    }

    fn tenant(&self) -> Option<String> {
        (!self.0.is_multiple_of(7)).then(|| format!("tenant {}", self.0 % 5))
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        if self.0.is_multiple_of(50) && fastrand::u32(..3) > 0 {
            return Err(JobError::rate_limited(std::time::Duration::from_millis(
                300,
            )));
        }
        work(cx, self.0 % 20)
    }
}

/// Triggers that write down when jobs with rates start, by the database's clock.
pub fn install_audit(place: &Place) -> Result<()> {
    let insert = |micros: &str| {
        format!(
            "INSERT INTO chaos_starts SELECT j.arguments, {micros} FROM solid_queue_jobs j \
             WHERE j.id = NEW.job_id AND j.rates IS NOT NULL"
        )
    };
    if place.is_postgres() {
        let insert = insert("CAST(extract(epoch FROM NEW.started_at) * 1000000 AS bigint)");
        return place.execute(&[
            "CREATE TABLE chaos_starts (job text, at bigint)",
            &format!(
                "CREATE FUNCTION chaos_started() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {insert}; RETURN NULL; END $$"
            ),
            "CREATE TRIGGER chaos_started AFTER INSERT OR UPDATE OF started_at ON solid_queue_claimed_executions \
             FOR EACH ROW WHEN (NEW.started_at IS NOT NULL) EXECUTE FUNCTION chaos_started()",
        ]);
    }
    let insert = insert(
        "CAST(round((julianday(NEW.started_at) - 2440587.5) * 86400000.0) AS integer) * 1000",
    );
    let trigger = |name: &str, event: &str| {
        format!(
            "CREATE TRIGGER chaos_started_{name} AFTER {event} ON solid_queue_claimed_executions \
             WHEN NEW.started_at IS NOT NULL BEGIN {insert}; END"
        )
    };
    place.execute(&[
        "CREATE TABLE chaos_starts (job text, at integer)",
        &trigger("given", "INSERT"),
        &trigger("later", "UPDATE OF started_at"),
    ])
}

/// Checks every window between two starts of a key.
pub fn check(place: &Place, violations: &mut Violations) -> Result<()> {
    let starts = place.texts("SELECT job || ' ' || at AS t FROM chaos_starts ORDER BY at")?;
    let mut of_key: BTreeMap<String, Bucket> = BTreeMap::new();
    for start in &starts {
        let read = start.rsplit_once(' ').and_then(|(job, at)| {
            let job: Paced = serde_json::from_str(job).ok()?;
            Some((job.0, at.parse::<i64>().ok()?))
        });
        let Some((job, at)) = read else {
            violations.add("I23", format!("a start that cannot be read: {start}"));
            continue;
        };
        let own = (Paced::key(job), EACH, Paced::cost(job));
        for (key, rate, cost) in [("all".to_owned(), ALL, 1), own] {
            let bucket = of_key.entry(key.clone());
            if let Some(lacking) = bucket.or_insert(Bucket::full(rate)).start(at, cost) {
                let wrong = format!("a start of {key} at {at} is {lacking:.3} tokens too early");
                violations.add("I23", wrong);
            }
        }
    }
    Ok(())
}

/// The tokens of a key, as they would be if each start took its own at once.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    number: f64,
    burst: f64,
    level: f64,
    at: i64,
}

/// SQLite's times have milliseconds.
const TOLERANCE: f64 = 0.002;

impl Bucket {
    fn full((number, burst): (u32, u32)) -> Self {
        Bucket {
            number: number.into(),
            burst: burst.into(),
            level: burst.into(),
            at: i64::MIN,
        }
    }

    /// Takes the tokens of a start. Returns how many are lacking.
    fn start(&mut self, at: i64, cost: u32) -> Option<f64> {
        let passed = at.saturating_sub(self.at) as f64 / 1_000_000.0;
        self.level = (self.level + passed * self.number).min(self.burst) - f64::from(cost);
        self.at = at;
        (self.level < -TOLERANCE * self.number).then_some(-self.level)
    }
}
