//! Gates that let only so many jobs through: quotas, limits at which jobs do not wait, and limits that change.

use crate::Result;
use crate::check::Violations;
use crate::jobs::{Log, SLOTS, line};
use crate::place::{Place, count};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use windlass::limits::LimitConflict;
use windlass::{Concurrency, Context, DbConnection, Error, Job, JobResult, NewJob, Quota};

/// A job with one of three keys, which ends if no slot is free.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Conflicting(pub u64);

/// A job with the key [`RAISED`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Raised(pub u64);

/// A job of a quota a day, of the given size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Daily(u32);

/// A job of a quota a second.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rationed;

pub const RAISED: &str = "chaos_raised/1";
const A_SECOND: u64 = 10;

/// The work is a pause of so many milliseconds.
pub fn work(cx: &Context<'_, Log>, millis: u64) -> JobResult {
    cx.line(&line("start", cx));
    std::thread::sleep(Duration::from_millis(millis));
    cx.line(&line("end", cx));
    Ok(())
}

impl Job for Conflicting {
    const NAME: &'static str = "chaos_conflicting";
    type State = Log;
    type Output = ();

    fn concurrency(&self) -> Option<Concurrency> {
        let limit = Concurrency::new(self.0 % 3).limit(SLOTS);
        Some(limit.on_conflict(LimitConflict::Discard))
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        work(cx, 100 + self.0 % 400)
    }
}

impl Job for Raised {
    const NAME: &'static str = "chaos_raised";
    type State = Log;
    type Output = ();

    fn concurrency(&self) -> Option<Concurrency> {
        Some(Concurrency::new(1))
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        work(cx, self.0 % 4)
    }
}

impl Job for Daily {
    const NAME: &'static str = "chaos_daily";
    type State = Log;
    type Output = ();

    fn quota(&self) -> Option<Quota> {
        Some(Quota::of_class(Self::NAME).per_day(self.0.into()))
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        work(cx, 0)
    }
}

impl Job for Rationed {
    const NAME: &'static str = "chaos_rationed";
    type State = Log;
    type Output = ();

    fn quota(&self) -> Option<Quota> {
        Some(Quota::of_class(Self::NAME).per_second(A_SECOND))
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        work(cx, 0)
    }
}

/// Tries to enqueue some jobs of quotas, and notes under which keys they were refused.
pub fn enqueue_rationed(conn: &mut DbConnection, daily: u32, refused: &Log) -> Result<(), Error> {
    for _ in 0..fastrand::u32(1..=2 * A_SECOND as u32) {
        let key = format!("quota {:x}", fastrand::u64(..));
        let job = match fastrand::u32(..4) {
            0 if daily > 0 => NewJob::new(&Daily(daily))?,
            _ => NewJob::new(&Rationed)?,
        };
        match job.idempotency_key(&key).enqueue(conn) {
            Err(Error::QuotaExceeded { .. }) => refused.line(&key),
            other => drop(other?),
        }
    }
    Ok(())
}

/// Returns true if enough jobs wait for a slot of [`RAISED`].
pub fn is_crowded(conn: &mut DbConnection) -> bool {
    let waiting = format!(
        "SELECT count(*) AS n FROM solid_queue_blocked_executions WHERE concurrency_key = '{RAISED}'"
    );
    count(conn, &waiting).is_ok_and(|waiting| waiting >= 50_000)
}

/// Uses up what is left of the quota of a day: no place of it has leaked.
pub fn fill_up(place: &Place, daily: u32, violations: &mut Violations) -> Result<()> {
    let day = "SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = 'chaos_daily'";
    if daily == 0 {
        return Ok(());
    }
    let mut n = 0;
    // Transactions that were cut off may hold some for a while.
    for _ in 0..daily.saturating_add(120) {
        let enqueue = |mut conn| NewJob::new(&Daily(daily))?.enqueue(&mut conn);
        match place.database.connect().and_then(enqueue) {
            Err(Error::QuotaExceeded { .. }) => {
                n = place.count(day)?;
                if n >= i64::from(daily) {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(500));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(500)),
            Ok(_) => {}
        }
    }
    violations.add("I20", format!("a quota of {daily} a day refuses after {n}"));
    Ok(())
}

/// Changes the limit of [`RAISED`] now and then, and knows which were in force.
pub struct Limit {
    /// The longest time from a promotion's read of an older limit to its commit: one statement on SQLite, which has one
    /// writer; on Postgres longer than a process is frozen or a stranger holds a table.
    grace: Duration,
    /// The time for which each is in force.
    length: Duration,
    due: Instant,
    /// From when each may be in force. The job's own comes first.
    history: Vec<(Instant, i64)>,
    /// The time of the last count of holders, and their number.
    counted_at: Instant,
    holders: i64,
    pub changes: u64,
}

/// That of the jobs themselves.
const OWN: i64 = 1;
const CHOICES: [i64; 6] = [0, 1, 7, 1_000, 1_000, 1_000_000_000];

impl Limit {
    pub fn new(place: &Place, seconds: u64) -> Self {
        let length = Duration::from_secs(seconds / 4).min(Duration::from_secs(20));
        Limit {
            grace: Duration::from_secs(if place.is_postgres() { 10 } else { 0 }),
            length,
            due: Instant::now() + length,
            history: vec![(Instant::now(), OWN)],
            counted_at: Instant::now(),
            holders: 0,
            changes: 0,
        }
    }

    /// Draws another limit, if it is time, and counts the holders: no more than before, or than a limit since then.
    pub fn keep(&mut self, place: &Place, violations: &mut Violations) {
        if Instant::now() >= self.due {
            self.set(place, CHOICES[fastrand::usize(..CHOICES.len())]);
        }
        let begun = Instant::now();
        let since = self.counted_at.checked_sub(self.grace);
        let query = format!(
            "SELECT (SELECT count(*) FROM solid_queue_ready_executions WHERE concurrency_key = '{RAISED}') \
             + (SELECT count(*) FROM solid_queue_claimed_executions WHERE concurrency_key = '{RAISED}') AS n"
        );
        let Ok(n) = place.count(&query) else { return };
        let ends = self.history.iter().skip(1).map(|(since, _)| Some(*since));
        let in_force = self.history.iter().zip(ends.chain([None]));
        let in_force = in_force.filter(|(_, end)| end.is_none_or(|end| Some(end) >= since));
        let limits: Vec<i64> = in_force.map(|((_, limit), _)| *limit).collect();
        // After a lower one, those that run go on, and none starts.
        let most = limits
            .iter()
            .copied()
            .max()
            .unwrap_or(OWN)
            .max(self.holders);
        if n > most {
            let before = self.holders;
            let wrong = format!("{n} jobs hold slots under {limits:?}, {before} did before");
            violations.add("I22", wrong);
        }
        (self.counted_at, self.holders) = (begun, n);
    }

    /// In force when this returns `true`; else perhaps.
    pub fn set(&mut self, place: &Place, slots: i64) -> bool {
        let set = |mut conn| -> windlass::Result<()> {
            let slots = u32::try_from(slots).unwrap_or(u32::MAX);
            windlass::limits::set(&mut conn, RAISED, slots, "chaos", "")
        };
        let is_set = place.database.connect().and_then(set).is_ok();
        // Without an answer it may be the one before.
        let before = self.history.last().map_or(OWN, |(_, limit)| *limit);
        let slots = if is_set { slots } else { slots.max(before) };
        self.history.push((Instant::now(), slots));
        self.changes += 1;
        let pause = if is_set { self.length } else { Duration::ZERO };
        self.due = Instant::now() + pause.mul_f64(0.5 + fastrand::f64());
        is_set
    }

    /// So that the queues drain.
    pub fn open(&mut self, place: &Place) {
        while !self.set(place, 1_000_000_000) {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// The check that jobs with other keys go on while some keys are full: since when the first job of a key has waited, though the
/// key has a free slot. Ready jobs have a slot, and may come behind all that is more important.
#[derive(Default)]
pub struct Others(Option<(Instant, i64)>);

impl Others {
    const PATIENCE: Duration = Duration::from_secs(120);

    pub fn look(&mut self, place: &Place, violations: &mut Violations) {
        // It reads all that is ready.
        if fastrand::u32(..5) > 0 {
            return;
        }
        let keyed = "concurrency_key >= 'chaos_work/' AND concurrency_key < 'chaos_work0'";
        let first = format!(
            "SELECT coalesce(min(first), -1) AS n FROM ( \
               SELECT concurrency_key, min(CAST(priority AS bigint) * 1000000000000 + job_id) AS first \
               FROM solid_queue_blocked_executions WHERE {keyed} GROUP BY concurrency_key) AS waiting \
             WHERE (SELECT count(*) FROM ( \
               SELECT concurrency_key FROM solid_queue_ready_executions WHERE {keyed} UNION ALL \
               SELECT concurrency_key FROM solid_queue_claimed_executions WHERE {keyed}) AS held \
               WHERE held.concurrency_key = waiting.concurrency_key) < {SLOTS}"
        );
        let Ok(n) = place.count(&first) else { return };
        match self.0 {
            Some((since, last)) if last == n && n >= 0 => {
                if since.elapsed() > Self::PATIENCE {
                    let wrong =
                        "a job of another key has waited for two minutes beside a free slot";
                    violations.add("I21", wrong.to_owned());
                    self.0 = None;
                }
            }
            _ => self.0 = Some((Instant::now(), n)),
        }
    }
}

/// Checks what must hold when everything has stopped.
pub fn check(place: &Place, drained: bool, daily: u32, violations: &mut Violations) -> Result<()> {
    let there = place.texts(
        "SELECT idempotency_key AS t FROM solid_queue_jobs WHERE idempotency_key LIKE 'quota %'",
    )?;
    let there: HashSet<&str> = there.iter().map(String::as_str).collect();
    for key in std::fs::read_to_string(place.refused())
        .unwrap_or_default()
        .lines()
    {
        if there.contains(key) {
            violations.add("I20", format!("the job `{key}` was refused, and is there"));
        }
    }
    let created = |class: &str| {
        place.texts(&format!(
            "SELECT CAST(created_at AS text) AS t FROM solid_queue_jobs WHERE class_name = '{class}' ORDER BY id"
        ))
    };
    let daily_jobs = created(Daily::NAME)?;
    let days: HashSet<&str> = daily_jobs.iter().map(|time| &time[..10]).collect();
    let most = daily as usize * days.len();
    if daily_jobs.len() > most {
        violations.add("I20", format!("{} jobs, {most} may be", daily_jobs.len()));
    }
    // A job is created a little after the second in which it was counted, so only whole stretches are compared.
    let rationed = created(Rationed::NAME)?;
    let time =
        |text: &String| chrono::NaiveDateTime::parse_from_str(&text[..19], "%Y-%m-%d %H:%M:%S");
    if let (Some(first), Some(last)) = (rationed.iter().min(), rationed.iter().max()) {
        let seconds = (time(last)? - time(first)?).num_seconds() + 2;
        let most = A_SECOND as i64 * seconds;
        if rationed.len() as i64 > most {
            let n = rationed.len();
            violations.add("I20", format!("{n} jobs in {seconds} s, {most} may be"));
        }
    }
    let lost = "SELECT count(*) AS n FROM solid_queue_jobs j WHERE class_name = 'chaos_conflicting' AND finished_at IS NOT NULL \
         AND last_claim_id IS NULL AND NOT EXISTS (SELECT 1 FROM windlass_attempts a WHERE a.job_id = j.id \
         AND a.outcome = 'discarded' AND a.kind = 'concurrency_limit')";
    let left = "SELECT (SELECT count(*) FROM solid_queue_blocked_executions) + (SELECT count(*) FROM windlass_wanted_keys) AS n";
    let late = [
        (lost, "jobs ended without a run and without a reason"),
        (left, "blocked jobs and requests are left"),
    ];
    for (query, what) in late {
        let n = place.count(query)?;
        if n > 0 && (drained || query == lost) {
            violations.add("I21", format!("{n} {what}"));
        }
    }
    for problem in windlass::limits::check_semaphores(&mut place.connect()?)? {
        violations.add("I21", problem.to_string());
    }
    Ok(())
}
