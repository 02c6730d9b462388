//! Rates: how many jobs with the same key start in a time.

mod by_sql;
mod closed;
mod held;
mod set;
mod together;

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::jobs::{Log, Note};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::jobs;
use windlass::limits::Rate;
use windlass::testing;
use windlass::{Context, Job, JobError, JobId, JobResult, NewJob, Policy, Registry, enqueue_all};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn registry() -> Registry {
    Registry::new()
        .register::<Note>(Arc::new(Log::default()))
        .register::<Push>(())
}

/// A job type with a rate in its code.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Push {
    tenant: String,
    rows: u32,
    refused_for: Option<u64>,
}

impl Push {
    fn new(tenant: &str, rows: u32) -> Self {
        Push {
            tenant: tenant.to_owned(),
            rows,
            refused_for: None,
        }
    }
}

impl Job for Push {
    const NAME: &'static str = "push";
    type State = ();
    type Output = ();

    fn rate(&self) -> Option<Rate> {
        let key = format!("api/{}", self.tenant);
        Some(Rate::per_hour(10).burst(4).key(key).cost(self.rows))
    }

    fn perform(self, cx: &Context<'_, ()>) -> JobResult {
        match self.refused_for {
            Some(seconds) if cx.attempt() == 1 => {
                Err(JobError::rate_limited(Duration::from_secs(seconds)))
            }
            _ => Ok(()),
        }
    }
}

fn note(text: &str, rate: Rate) -> NewJob {
    NewJob::new(&Note::new(text)).unwrap().rate(rate)
}

fn is_finished(db: &TestDb, job: JobId) -> bool {
    let text = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL AND id =";
    db.count(&format!("{text} {job}")) == 1
}

/// Performs what may run now, with all limits and rates, and returns how many jobs finished.
fn drained(db: &TestDb) -> usize {
    let mut conn = db.connection();
    testing::drain(&mut conn, &registry()).unwrap().finished()
}

/// A burst starts at once; then a token comes every six minutes.
fn a_burst_and_then_the_rate(db: &TestDb) {
    let mut conn = db.connection();
    let pushes = (0..7).map(|_| NewJob::new(&Push::new("acme", 1)).unwrap());
    enqueue_all(&mut conn, pushes).unwrap();
    Push::new("other", 1).enqueue(&mut conn).unwrap();
    assert_eq!(db.rows("ready_executions"), 0);
    assert_eq!(drained(db), 5);
    assert_eq!(drained(db), 0);
    testing::travel(&mut conn, Duration::from_secs(240)).unwrap();
    assert_eq!(drained(db), 0);
    testing::travel(&mut conn, Duration::from_secs(121)).unwrap();
    assert_eq!(drained(db), 1);
    testing::travel(&mut conn, HOUR).unwrap();
    assert_eq!((drained(db), db.rows("blocked_executions")), (2, 0));
}

fn a_job_that_costs_more_holds_up_those_behind_it(db: &TestDb) {
    let mut conn = db.connection();
    for rows in [3, 3, 1] {
        Push::new("acme", rows).enqueue(&mut conn).unwrap();
    }
    assert_eq!(drained(db), 1);
    // One token is left, which the last would need.
    testing::travel(&mut conn, Duration::from_secs(11 * 60)).unwrap();
    assert_eq!(drained(db), 0);
    testing::travel(&mut conn, Duration::from_secs(2 * 60)).unwrap();
    assert_eq!(drained(db), 1);
    testing::travel(&mut conn, HOUR).unwrap();
    assert_eq!(drained(db), 1);
}

fn priorities_lead(db: &TestDb) {
    let mut conn = db.connection();
    let rate = || Rate::per_hour(1).key("one");
    let jobs = [("b", 2), ("c", 3), ("a", 1)];
    let jobs = jobs.map(|(text, priority)| note(text, rate()).priority(priority));
    let jobs = enqueue_all(&mut conn, jobs).unwrap();
    for expected in [2, 0, 1] {
        assert_eq!(drained(db), 1);
        assert!(is_finished(db, jobs[expected].id));
        testing::travel(&mut conn, HOUR).unwrap();
    }
}

/// A second rate with few tokens holds its jobs up, and no others of the first rate.
fn several_rates_pass_together(db: &TestDb) {
    let mut conn = db.connection();
    let all = || Rate::per_second(1_000).burst(1_000).key("api");
    let day = |tenant: &str| Rate::per_day(2).burst(2).key(format!("day/{tenant}"));
    for text in ["a", "a", "a", "a", "a", "b", "b", "c"] {
        note(text, all())
            .rate(day(text))
            .enqueue(&mut conn)
            .unwrap();
    }
    assert_eq!(drained(db), 5);
    // Those that wait hold no token of the first rate.
    assert_eq!(tokens(db, "api"), 0);
    testing::travel(&mut conn, 12 * HOUR + SECOND).unwrap();
    assert_eq!(drained(db), 1);
    testing::travel(&mut conn, 24 * HOUR + SECOND).unwrap();
    assert_eq!((drained(db), db.rows("blocked_executions")), (2, 0));
    assert_eq!(db.rows_of("windlass_lines"), 0);
}

/// Returns how many tokens of a key are promised to jobs that have not started.
fn tokens(db: &TestDb, key: &str) -> i64 {
    let promised = db.texts(&format!(
        "SELECT promised AS t FROM windlass_rates WHERE rate_key = '{key}' AND promised IS NOT NULL"
    ));
    let ready = "SELECT CAST(job_id AS text) AS t FROM solid_queue_ready_executions";
    let ready = db.texts(ready);
    let jobs = promised.iter().flat_map(|text| {
        let groups: Vec<(i64, i64, Vec<i64>)> = serde_json::from_str(text).unwrap();
        groups.into_iter().flat_map(|(_, _, jobs)| jobs)
    });
    jobs.filter(|job| ready.contains(&job.to_string())).count() as i64
}

fn the_other_side_says_no(db: &TestDb) {
    let mut conn = db.connection();
    let first = Push {
        refused_for: Some(600),
        ..Push::new("acme", 1)
    };
    let first = first.enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), 0);
    let job = jobs::find(&mut conn, first.id).unwrap().unwrap();
    assert_eq!(job.attempts.len(), 0, "{job:?}");
    // Its key is closed, another one is not.
    Push::new("acme", 1).enqueue(&mut conn).unwrap();
    Push::new("other", 1).enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), 1);
    testing::travel(&mut conn, Duration::from_secs(590)).unwrap();
    assert_eq!(drained(db), 0);
    // The first one says no again, as its attempt was not counted.
    execute(
        &mut conn,
        "UPDATE solid_queue_jobs SET arguments = replace(arguments, '600', 'null')",
    );
    testing::travel(&mut conn, 20 * SECOND).unwrap();
    assert_eq!(drained(db), 2);
}

fn a_rate_of_the_policy_and_of_an_enqueue(db: &TestDb) {
    let mut conn = db.connection();
    let rate = Rate::per_hour(1).key("policy");
    let policy = Policy::new().rate(rate);
    for text in ["a", "b"] {
        let job = NewJob::new(&Note::new(text)).unwrap();
        job.policy(policy.clone()).enqueue(&mut conn).unwrap();
    }
    let free = NewJob::new(&Push::new("acme", 1)).unwrap().without_rates();
    free.enqueue(&mut conn).unwrap();
    assert_eq!(db.rows("ready_executions"), 1);
    assert_eq!(drained(db), 2);
}

fn tests_ignore_rates_unless_they_ask(db: &TestDb) {
    let mut conn = db.connection();
    let pushes = (0..7).map(|_| NewJob::new(&Push::new("acme", 1)).unwrap());
    enqueue_all(&mut conn, pushes).unwrap();
    let drain = testing::Drain::new(&registry()).without_limits();
    let drained = drain.run_on(&mut conn).unwrap();
    drained.assert_all_finished(7);
}

fn invalid_rates_are_refused(db: &TestDb) {
    let mut conn = db.connection();
    let error = note("a", Rate::per_second(0)).enqueue(&mut conn);
    let text = error.unwrap_err().to_string();
    assert!(text.contains("its rate allows no start"), "{text}");
    assert_eq!(db.rows("jobs"), 0);
}

on_each_database!(
    a_burst_and_then_the_rate,
    a_job_that_costs_more_holds_up_those_behind_it,
    priorities_lead,
    several_rates_pass_together,
    the_other_side_says_no,
    a_rate_of_the_policy_and_of_an_enqueue,
    tests_ignore_rates_unless_they_ask,
    invalid_rates_are_refused,
);
