//! Queues whose threads are shared: one of which that changes at random, and one in which tenants must take turns, whatever
//! happens to the processes.

use crate::Result;
use crate::check::Violations;
use crate::gates::work;
use crate::jobs::Log;
use crate::place::Place;
use crate::rates::Paced;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass::tenants::{self, ShareBy};
use windlass::{Context, Job, JobResult, NewJob};

/// A job of a tenant of a round, by its number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Turn(u64, u32);

/// The weights of the tenants of a round.
const WEIGHTS: [u32; 3] = [1, 1, 3];

/// The number of jobs of each tenant in a round.
const JOBS: usize = 60;

/// While more jobs than this are left of a round, no other begins.
const FEW: i64 = 30;

impl Turn {
    fn tenant_of(round: u64, tenant: u32) -> String {
        format!("{round} {tenant}")
    }
}

impl Job for Turn {
    const NAME: &'static str = "chaos_turn";
    const QUEUE: &'static str = "chaos_turns";
    type State = Log;
    type Output = ();

    fn tenant(&self) -> Option<String> {
        Some(Turn::tenant_of(self.0, self.1))
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        work(cx, fastrand::u64(..10))
    }
}

/// Shares the queue of jobs with rates between their tenants, by another measure, or no more.
fn change(place: &Place) -> Result<()> {
    let mut conn = place.connect()?;
    match fastrand::u32(..4) {
        0 => tenants::unshare(&mut conn, Paced::QUEUE).map(drop)?,
        1 => tenants::share(&mut conn, Paced::QUEUE, ShareBy::Time)?,
        _ => tenants::share(&mut conn, Paced::QUEUE, ShareBy::Jobs)?,
    }
    let tenant = format!("tenant {}", fastrand::u32(..5));
    tenants::set_weight(&mut conn, Paced::QUEUE, &tenant, fastrand::u32(1..4))?;
    Ok(())
}

/// The rounds of [`Turn`].
#[derive(Debug, Default)]
pub struct Rounds(u64);

impl Rounds {
    /// Changes a queue at times, and begins a round if hardly any job of the one before is left.
    pub fn keep(&mut self, place: &Place) {
        // Both may meet a fault.
        if fastrand::u32(..20) == 0 {
            let _ = change(place);
        }
        let _ = self.begin(place);
    }

    fn begin(&mut self, place: &Place) -> Result<()> {
        let mut conn = place.connect()?;
        let left = format!(
            "SELECT (SELECT count(*) FROM solid_queue_ready_executions WHERE queue_name = '{0}') \
             + (SELECT count(*) FROM solid_queue_blocked_executions WHERE queue_name = '{0}') AS n",
            Turn::QUEUE
        );
        if place.count(&left)? > FEW {
            return Ok(());
        }
        self.0 += 1;
        let mut jobs = Vec::new();
        for (tenant, weight) in (0..).zip(WEIGHTS) {
            let name = Turn::tenant_of(self.0, tenant);
            tenants::set_weight(&mut conn, Turn::QUEUE, &name, weight)?;
            let job = NewJob::new(&Turn(self.0, tenant))?;
            jobs.extend(std::iter::repeat_n(job, JOBS));
        }
        windlass::enqueue_all(&mut conn, jobs)?;
        Ok(())
    }
}

/// Shares the queue of [`Turn`], and writes down when a promotion has let its jobs go on.
pub fn install_audit(place: &Place) -> Result<()> {
    tenants::share(&mut place.connect()?, Turn::QUEUE, ShareBy::Jobs)?;
    // A promotion stores when it looked at the queue before it lets jobs go on.
    let insert = "INSERT INTO chaos_turns (tenant, at) SELECT j.tenant, \
           (SELECT q.looked_at FROM windlass_fair_queues q WHERE q.queue_name = OLD.queue_name) \
         FROM solid_queue_jobs j WHERE j.id = OLD.job_id";
    let condition = format!("WHEN (OLD.queue_name = '{}')", Turn::QUEUE);
    if place.is_postgres() {
        return place.execute(&[
            "CREATE TABLE chaos_turns (n bigserial, tenant text, at bigint)",
            &format!(
                "CREATE FUNCTION chaos_turn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {insert}; RETURN NULL; END $$"
            ),
            &format!(
                "CREATE TRIGGER chaos_turn AFTER DELETE ON solid_queue_blocked_executions FOR EACH ROW {condition} \
                 EXECUTE FUNCTION chaos_turn()"
            ),
        ]);
    }
    place.execute(&[
        "CREATE TABLE chaos_turns (n integer PRIMARY KEY, tenant text, at bigint)",
        &format!(
            "CREATE TRIGGER chaos_turn AFTER DELETE ON solid_queue_blocked_executions {condition} BEGIN {insert}; END"
        ),
    ])
}

/// The number of jobs of the tenants of a round that have gone on.
type Counts = [usize; WEIGHTS.len()];

/// Checks that the tenants of each round have got their shares, between any two promotions.
pub fn check(place: &Place, violations: &mut Violations) -> Result<()> {
    let turns =
        place.texts("SELECT tenant || ' ' || CAST(at AS text) AS t FROM chaos_turns ORDER BY n")?;
    let mut rounds: BTreeMap<u64, (Option<i64>, Vec<Counts>)> = BTreeMap::new();
    for turn in &turns {
        let parts: Vec<i64> = turn
            .split(' ')
            .filter_map(|part| part.parse().ok())
            .collect();
        let [round, tenant, at] = parts[..] else {
            violations.add("I24", format!("a turn that cannot be read: {turn}"));
            continue;
        };
        let (last, counts) = rounds.entry(round.cast_unsigned()).or_default();
        let mut now = counts.last().copied().unwrap_or_default();
        now[usize::try_from(tenant)?] += 1;
        let is_same = last.replace(at) == Some(at);
        match counts.last_mut().filter(|_| is_same) {
            Some(counted) => *counted = now,
            None => counts.push(now),
        }
    }
    for (round, (_, counts)) in &rounds {
        for one in 0..WEIGHTS.len() {
            for other in 0..one {
                if let Some(spread) = unfair(counts, one, other) {
                    let wrong = format!(
                        "round {round}: {spread:.2} jobs for nothing between the tenants {other} and {one}"
                    );
                    violations.add("I24", wrong);
                }
            }
        }
    }
    Ok(())
}

/// Returns how far two tenants were ahead of each other, in turns, if that is more than one turn of each: while both waited.
fn unfair(counts: &[Counts], one: usize, other: usize) -> Option<f64> {
    let both_wait = |now: &&Counts| [one, other].iter().all(|of| (1..JOBS).contains(&now[*of]));
    let ahead = |now: &Counts| {
        let used = |of: usize| now[of] as f64 / f64::from(WEIGHTS[of]);
        used(one) - used(other)
    };
    let ahead = counts.iter().filter(both_wait).map(ahead);
    let range = ahead.fold(None, |range: Option<(f64, f64)>, ahead| {
        let (least, most) = range.unwrap_or((ahead, ahead));
        Some((least.min(ahead), most.max(ahead)))
    });
    let (least, most) = range?;
    let turn = |of: usize| 1.0 / f64::from(WEIGHTS[of]);
    (most - least > turn(one) + turn(other) + 1e-6).then_some(most - least)
}
