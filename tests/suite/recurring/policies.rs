//! Ticks that nobody fired in time, and ticks that come while the job before
//! them has not ended.

use super::{Stamp, rewind, schedule, scheduler, stamp, ticks, until_ticked};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::jobs::Log;
use crate::support::wait::until;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use windlass::recurring::{self, MissedTicks, Overlap};
use windlass::{JobId, Policy, Registry, Worker};

on_each_database!(
    of_missed_ticks_the_latest_is_fired,
    all_missed_ticks_within_a_bound_are_fired,
    missed_ticks_are_skipped,
    a_short_delay_misses_nothing,
    many_missed_ticks_come_in_several_transactions,
    a_tick_is_dropped_while_its_job_has_not_ended,
    one_tick_waits_for_the_job_before_it,
    a_job_that_was_run_by_hand_is_not_overlapped,
    jobs_may_overlap,
    the_time_of_a_tick_is_its_priority,
    jitter_delays_the_job_of_a_tick,
);

/// The task's ticks are 100,000 s apart; the last five had no scheduler.
fn missed(db: &TestDb, missed: MissedTicks) -> (Vec<i64>, Events) {
    schedule(db, &stamp("a", "every 100000s").missed(missed));
    rewind(db, "a", 500_000);
    let events = Events::default();
    let _scheduler = scheduler(db)
        .grace(Duration::from_secs(1))
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    until("it has moved on", || {
        let task = &recurring::list(&mut db.connection()).unwrap()[0];
        task.next_run_at.unwrap() > chrono::Utc::now()
    });
    // Nothing comes after that.
    schedule(db, &stamp("b", "every 1s"));
    until_ticked(db, "b", 2);
    (ticks(db, "a"), events)
}

fn of_missed_ticks_the_latest_is_fired(db: &TestDb) {
    let (ticks, events) = missed(db, MissedTicks::Latest);
    assert_eq!(ticks.len(), 1);
    let now = chrono::Utc::now().timestamp();
    assert_eq!(ticks[0], now - now % 100_000);
    assert_eq!(events.count("TicksMissed"), 1);
}

fn all_missed_ticks_within_a_bound_are_fired(db: &TestDb) {
    let bound = Duration::from_secs(300_000);
    let (ticks, events) = missed(db, MissedTicks::AllWithin(bound));
    assert_eq!(ticks.len(), 3);
    assert!(ticks.windows(2).all(|pair| pair[1] == pair[0] + 100_000));
    assert_eq!(events.count("TicksMissed"), 1);
}

fn missed_ticks_are_skipped(db: &TestDb) {
    let (ticks, events) = missed(db, MissedTicks::Skip);
    assert_eq!(ticks.len(), 0);
    assert_eq!(events.count("TicksMissed"), 1);
}

/// Within the grace, ticks are late and not missed, whatever the policy.
fn a_short_delay_misses_nothing(db: &TestDb) {
    for missed in [MissedTicks::Latest, MissedTicks::Skip] {
        schedule(db, &stamp("a", "every 1s").missed(missed));
        rewind(db, "a", 30);
        let events = Events::default();
        let before = ticks(db, "a").len();
        let scheduler = scheduler(db)
            .grace(Duration::from_secs(300))
            .subscriber(events.subscriber());
        let _scheduler = scheduler.start().unwrap();
        until_ticked(db, "a", before + 30);
        assert_eq!(events.count("TicksMissed"), 0);
        db.execute("DELETE FROM solid_queue_recurring_executions");
    }
}

fn many_missed_ticks_come_in_several_transactions(db: &TestDb) {
    let bound = Duration::from_secs(2_000);
    schedule(
        db,
        &stamp("a", "every 1s").missed(MissedTicks::AllWithin(bound)),
    );
    rewind(db, "a", 450);
    let _schedulers = [
        scheduler(db).start().unwrap(),
        scheduler(db).start().unwrap(),
    ];
    until_ticked(db, "a", 450);
    super::assert_each_second(&ticks(db, "a"));
}

/// Ends the jobs as a worker does.
fn perform(db: &TestDb, jobs: usize) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Stamp>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    until("the jobs are done", || log.len() >= jobs);
}

fn queued(db: &TestDb) -> Option<i64> {
    let task = &recurring::list(&mut db.connection()).unwrap()[0];
    task.queued_run_at.map(|tick| tick.timestamp())
}

fn a_tick_is_dropped_while_its_job_has_not_ended(db: &TestDb) {
    schedule(db, &stamp("a", "every 1s").overlap(Overlap::Skip));
    let events = Events::default();
    let _scheduler = scheduler(db)
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    until("two ticks are dropped", || events.count("TickDropped") >= 2);
    assert_eq!(db.rows("jobs"), 1);
    // A job that has failed has ended.
    db.in_transaction(&[
        "INSERT INTO solid_queue_failed_executions (job_id, created_at) SELECT job_id, created_at FROM solid_queue_ready_executions",
        "DELETE FROM solid_queue_ready_executions",
    ]);
    until_ticked(db, "a", 2);
    let dropped = events.count("TickDropped");
    until("another one is dropped", || {
        events.count("TickDropped") > dropped
    });
    assert_eq!(db.rows("jobs"), 2);
    // So has one that was deleted.
    db.execute("DELETE FROM solid_queue_ready_executions");
    db.execute("DELETE FROM solid_queue_jobs WHERE id = (SELECT max(id) FROM solid_queue_jobs)");
    until("the next one is fired", || db.rows("ready_executions") == 1);
}

fn one_tick_waits_for_the_job_before_it(db: &TestDb) {
    schedule(db, &stamp("a", "every 1s").overlap(Overlap::QueueOne));
    let events = Events::default();
    let first = scheduler(db)
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    until_ticked(db, "a", 1);
    until("a tick waits", || queued(db).is_some());
    until("a later one waits in its place", || {
        events.count("TickDropped") > 0
    });
    drop(first);
    assert_eq!(db.rows("jobs"), 1);
    let waiting = queued(db).unwrap();
    perform(db, 1);
    // Whoever comes next fires it, though no tick is due.
    db.execute("UPDATE solid_queue_recurring_tasks SET next_run_at = '9999-01-01 00:00:00.000000'");
    let _second = scheduler(db).start().unwrap();
    until_ticked(db, "a", 2);
    assert_eq!(ticks(db, "a")[1], waiting);
    assert_eq!(queued(db), None);
}

fn a_job_that_was_run_by_hand_is_not_overlapped(db: &TestDb) {
    schedule(db, &stamp("a", "every 1s").overlap(Overlap::Skip));
    let mut conn = db.connect();
    let by_hand: Vec<JobId> = (0..2)
        .map(|_| recurring::run_now(&mut conn, "a").unwrap())
        .collect();
    let events = Events::default();
    let _scheduler = scheduler(db)
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    until("a tick is dropped", || events.count("TickDropped") >= 1);
    windlass::jobs::cancel(&mut conn, by_hand[0]).unwrap();
    let dropped = events.count("TickDropped");
    until("another one is", || {
        events.count("TickDropped") > dropped + 1
    });
    assert_eq!(db.rows("jobs"), 2);
    windlass::jobs::cancel(&mut conn, by_hand[1]).unwrap();
    until_ticked(db, "a", 1);
}

fn jobs_may_overlap(db: &TestDb) {
    schedule(db, &stamp("a", "every 1s"));
    let _scheduler = scheduler(db).start().unwrap();
    until_ticked(db, "a", 3);
    assert_eq!(queued(db), None);
}

fn the_time_of_a_tick_is_its_priority(db: &TestDb) {
    let task =
        stamp("a", "every 100000s").missed(MissedTicks::AllWithin(Duration::from_secs(300_000)));
    let policy = Policy::new().behind_by(Duration::from_secs(7));
    schedule(db, &task.policy(policy));
    rewind(db, "a", 500_000);
    let _scheduler = scheduler(db).start().unwrap();
    until("the ticks are fired", || db.rows("jobs") == 3);
    let found = db.texts("SELECT CAST(priority AS text) AS t FROM solid_queue_jobs ORDER BY id");
    // 2020-01-01 in Unix' seconds.
    let wanted = ticks(db, "a")
        .into_iter()
        .map(|tick| tick - 1_577_836_800 + 7);
    assert_eq!(found, wanted.map(|at| at.to_string()).collect::<Vec<_>>());
}

fn jitter_delays_the_job_of_a_tick(db: &TestDb) {
    let task =
        stamp("a", "every 100000s").missed(MissedTicks::AllWithin(Duration::from_secs(300_000)));
    schedule(db, &task.jitter(Duration::from_secs(50_000)));
    rewind(db, "a", 500_000);
    let _scheduler = scheduler(db).start().unwrap();
    until("the ticks are fired", || db.rows("jobs") == 3);
    let seconds = if db.is_postgres() {
        "CAST(CAST(extract(epoch FROM scheduled_at) AS bigint) % 100000 AS text)"
    } else {
        "CAST(strftime('%s', scheduled_at) % 100000 AS text)"
    };
    let delays = db.texts(&format!(
        "SELECT {seconds} AS t FROM solid_queue_jobs ORDER BY id"
    ));
    let delays: Vec<i64> = delays.iter().map(|text| text.parse().unwrap()).collect();
    assert!(delays.iter().all(|delay| *delay < 50_000), "{delays:?}");
    let different: BTreeSet<i64> = delays.iter().copied().collect();
    assert_eq!(different.len(), 3, "each tick has its own: {delays:?}");
    let job = recurring::run_now(&mut db.connection(), "a").unwrap().0;
    let ready =
        format!("SELECT count(*) AS n FROM solid_queue_ready_executions WHERE job_id = {job}");
    assert_eq!(db.count(&ready), 1, "by hand it starts at once");
}
