//! Detects dead processes by their heartbeats, and prunes them.

use crate::db::conn::dialect::IdRange;
use crate::db::model::decision::Death;
use crate::db::table::processes::{self, Observed};
use crate::db::transition::prune;
use crate::db::transition::recover::{self, Recovered};
use crate::db::{LockWait, with_lock_wait};
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::job::JobId;
use crate::process::base::context::ProcessContext;
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::liveness::Liveness;
use crate::process::base::session::Session;
use crate::process::upkeep::{Duty, DutyTurn, NextTurn, faults};
use crate::{clock, mutant};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Detects dead processes. A process is dead when its heartbeat count has not changed for the
/// threshold on the detector's own monotonic clock. Only time in which the detector could read it
/// counts: gaps are left out, and what was seen before them still counts. Clocks of two hosts are
/// never compared.
#[derive(Debug)]
pub(crate) struct FailureDetector {
    threshold: Duration,
    /// Two readings further apart than this leave a gap in the observation.
    gap: Duration,
    last_reading: Option<Instant>,
    /// The time of observation in all, without the gaps.
    observed: Duration,
    heartbeats: HashMap<i64, ObservedHeartbeat>,
    /// Since when there is no worker, in `observed`, and whether that was logged.
    no_worker: Option<(Duration, bool)>,
    /// Since when processes without a row have held claims, in `observed`.
    without_row: HashMap<i64, Duration>,
    /// The id up to which failed executions were checked.
    failed_before: i64,
    /// The newest failed execution, and when it was seen.
    failed_since: Option<(i64, Instant)>,
}

#[derive(Debug, Clone, Copy)]
struct ObservedHeartbeat {
    heartbeat_seq: i64,
    /// In the detector's `observed`.
    since: Duration,
}

impl FailureDetector {
    pub(crate) fn new(threshold: Duration, reading_interval: Duration) -> Self {
        FailureDetector {
            threshold,
            gap: reading_interval * 3,
            last_reading: None,
            observed: Duration::ZERO,
            heartbeats: HashMap::new(),
            no_worker: None,
            without_row: HashMap::new(),
            failed_before: 0,
            failed_since: None,
        }
    }

    /// Does not count the time until the next reading.
    pub(crate) fn skip(&mut self) {
        self.last_reading = None;
    }

    /// Takes a reading, and returns the processes that are dead by it. `own` are never among them:
    /// a supervisor does not prune itself.
    pub(crate) fn read(
        &mut self,
        processes: &[Observed],
        own: &[i64],
        now: Instant,
    ) -> Vec<Observed> {
        let since_last = self.last_reading.replace(now).map(|last| now - last);
        let counts = since_last.filter(|since_last| *since_last <= self.gap);
        self.observed += counts.unwrap_or_default();
        let observed = self.observed;
        let mut heartbeats = HashMap::new();
        for process in processes {
            let known = self
                .heartbeats
                .get(&process.id)
                .filter(|known| known.heartbeat_seq == process.heartbeat_seq);
            let known = known.copied().unwrap_or(ObservedHeartbeat {
                heartbeat_seq: process.heartbeat_seq,
                since: observed,
            });
            heartbeats.insert(process.id, known);
        }
        self.heartbeats = heartbeats;
        let dead_for = |threshold: Duration| -> Vec<Observed> {
            processes
                .iter()
                .filter(|process| !own.contains(&process.id))
                .filter(|process| observed - self.heartbeats[&process.id].since >= threshold)
                .cloned()
                .collect()
        };
        let dead = dead_for(self.threshold);
        // Many at once are more likely disconnected than dead: wait the same time again.
        if dead.len() >= 3 && dead.len() * 2 > processes.len() {
            return dead_for(self.threshold.saturating_mul(2));
        }
        dead
    }

    /// Returns `true` once there has been no worker for the threshold, and again only after one came.
    fn lacks_workers(&mut self, processes: &[Observed]) -> bool {
        if processes.iter().any(|process| process.kind == "Worker") {
            self.no_worker = None;
            return false;
        }
        let (since, is_logged) = self.no_worker.get_or_insert((self.observed, false));
        let is_overdue = self.observed - *since >= self.threshold;
        is_overdue && !std::mem::replace(is_logged, true)
    }

    /// Notes the id of the newest failed execution. Returns the range of those that have existed
    /// for the threshold, from after the first id up to the second: a running process has noticed
    /// by then that its claims are gone.
    fn read_failed(&mut self, newest: i64, now: Instant) -> Option<IdRange> {
        let (until, since) = *self.failed_since.get_or_insert((newest, now));
        let is_overdue = now - since >= self.threshold && until > self.failed_before;
        if until <= self.failed_before {
            self.failed_since = None;
        }
        is_overdue.then_some(IdRange {
            after: self.failed_before,
            up_to: until,
        })
    }

    /// Notes that the failed executions up to this one need no further check.
    fn note_checked_failed(&mut self, until: i64) {
        self.failed_before = until;
        self.failed_since = None;
    }

    /// Notes, after each reading, which processes hold claims without a row. Returns those that did
    /// so at every reading for the threshold: a running process has noticed by then that its row is
    /// gone.
    pub(crate) fn read_without_row(&mut self, processes: &[i64]) -> Vec<i64> {
        let known = std::mem::take(&mut self.without_row);
        let since = |id: &i64| (*id, known.get(id).copied().unwrap_or(self.observed));
        self.without_row = processes.iter().map(since).collect();
        let is_overdue = |id: &&i64| self.observed - self.without_row[id] >= self.threshold;
        processes.iter().filter(is_overdue).copied().collect()
    }
}

/// Prunes one process: all at once, or claim by claim if some of it is locked or refused. With a
/// `heartbeat_seq`, only if the process has not sent another heartbeat. An error means that the
/// database is in trouble.
pub(crate) fn prune(
    session: &mut Session,
    id: i64,
    heartbeat_seq: Option<i64>,
    death: &Death,
) -> Result<Option<Recovered>, Duration> {
    if heartbeat_seq.is_some() && mutant::is("prune_from_stale_snapshot") {
        return faults::prune_stale(session, id, death);
    }
    let whole = session.run("prune a process", |conn| {
        with_lock_wait(conn, LockWait::Short, |conn| {
            prune::prune(conn, id, heartbeat_seq, death)
        })
    });
    match whole {
        Err(_) if !session.is_in_trouble() && session.is_well() => {}
        whole => return whole,
    }
    let pieces = session.run("prune a process claim by claim", |conn| {
        with_lock_wait(conn, LockWait::Short, |conn| {
            prune::prune_one_by_one(conn, id, heartbeat_seq, death)
        })
    })?;
    Ok(pieces.inspect(|recovered| report_left(session, recovered)))
}

fn report_left(session: &mut Session, recovered: &Recovered) {
    if let Some(left) = &recovered.left {
        session.report("recover all claims of a dead process", left);
    }
}

/// Recovers the claims of processes whose row was deleted. They count as crashed, because nothing
/// else is known about them.
fn recover_without_row(
    session: &mut Session,
    detector: &mut FailureDetector,
    subscriber: &Subscriber,
) -> Result<(), Duration> {
    let found = session.run("look for claims without a process", prune::without_row)?;
    for id in detector.read_without_row(&found) {
        let death = Death {
            is_crash: true,
            how: "had no row any more".to_owned(),
        };
        let recovered = session.run("recover claims without a process", |conn| {
            with_lock_wait(conn, LockWait::Short, |conn| {
                prune::recover_without_row(conn, id, &death)
            })
        });
        if recovered.is_err() && session.is_in_trouble() {
            return recovered.map(drop);
        }
        if let Ok(Some(recovered)) = recovered {
            report_left(session, &recovered);
            report_pruned(subscriber, "process", &id.to_string(), &death, &recovered);
        }
    }
    Ok(())
}

/// Recovers jobs that a supervisor of Solid Queue failed because the Windlass process that ran them
/// sent no heartbeat, or did not exist for that supervisor.
fn take_back(
    session: &mut Session,
    detector: &mut FailureDetector,
    subscriber: &Subscriber,
) -> Result<(), Duration> {
    let newest = session.run("look for failed jobs", recover::newest)?;
    let Some(range) = detector.read_failed(newest, clock::instant()) else {
        return Ok(());
    };
    let death = Death {
        is_crash: true,
        how: "was treated as dead by a supervisor of Solid Queue".to_owned(),
    };
    let recovered = session.run("take back what Solid Queue failed", |conn| {
        with_lock_wait(conn, LockWait::Short, |conn| {
            recover::take_back(conn, range, &death)
        })
    })?;
    // The rest follows at the next reading.
    if !recovered.is_any() {
        detector.note_checked_failed(range.up_to);
        return Ok(());
    }
    report_pruned(
        subscriber,
        "process",
        "failed by Solid Queue",
        &death,
        &recovered,
    );
    Ok(())
}

/// Prunes dead processes, and recovers claims that no process holds.
pub(crate) struct Prune {
    detector: FailureDetector,
    /// The time between two readings.
    interval: Duration,
    heartbeat: Arc<Heartbeat>,
    liveness: Liveness,
    subscriber: Subscriber,
}

/// The pause while the supervisor's own heartbeats fail.
const WHILE_FAILING: Duration = Duration::from_millis(20);

impl Prune {
    /// Creates the duty of a supervisor with this heartbeat. A process without a heartbeat for `threshold` is dead.
    pub(crate) fn new(
        context: &ProcessContext,
        heartbeat: &Arc<Heartbeat>,
        threshold: Duration,
    ) -> Self {
        let interval = threshold / 6;
        Prune {
            detector: FailureDetector::new(threshold, interval),
            interval,
            heartbeat: Arc::clone(heartbeat),
            liveness: context.liveness.clone(),
            subscriber: context.subscriber.clone(),
        }
    }
}

impl Duty for Prune {
    fn name(&self) -> &'static str {
        "prune"
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        // If the supervisor's own heartbeat fails, others may fail as well: a full disk, or a
        // read-only database, can still be read.
        if !self.heartbeat.is_beating() {
            self.detector.skip();
            return Ok(DutyTurn {
                changed: 0,
                next: NextTurn::In(WHILE_FAILING),
            });
        }
        let own = self.heartbeat.all();
        let own: Vec<i64> = own.iter().map(|registration| registration.id).collect();
        let (detector, subscriber) = (&mut self.detector, &self.subscriber);
        self.liveness
            .waiting(|| prune_dead(session, detector, &own, subscriber))?;
        Ok(DutyTurn::done())
    }
}

/// Prunes the processes that the detector finds dead. A process that cannot be pruned at present
/// does not delay the others.
fn prune_dead(
    session: &mut Session,
    detector: &mut FailureDetector,
    own: &[i64],
    subscriber: &Subscriber,
) -> Result<(), Duration> {
    let processes = session.run("read the heartbeats", processes::observe)?;
    let dead = detector.read(&processes, own, clock::instant());
    if detector.lacks_workers(&processes) {
        log::warn!("no worker is registered with this database: ready jobs wait for one");
    }
    for dead in dead {
        let death = Death {
            is_crash: !dead.draining,
            how: "sent no heartbeat for too long".to_owned(),
        };
        match prune(session, dead.id, Some(dead.heartbeat_seq), &death) {
            Ok(Some(recovered)) => {
                report_pruned(subscriber, &dead.kind, &dead.name, &death, &recovered)
            }
            Ok(None) => {}
            Err(delay) if session.is_in_trouble() => return Err(delay),
            Err(_) => {}
        }
    }
    let recovered = recover_without_row(session, detector, subscriber);
    if recovered.is_err() && session.is_in_trouble() {
        return recovered;
    }
    recovered.and(take_back(session, detector, subscriber))
}

/// Reports a pruned process, unless an attempt before has reported it, and nothing has come of this one.
pub(crate) fn report_pruned(
    subscriber: &Subscriber,
    kind: &str,
    name: &str,
    death: &Death,
    recovered: &Recovered,
) {
    // A repetition without success.
    let nothing = Recovered {
        left: recovered.left.clone(),
        ..Recovered::default()
    };
    if recovered.left.is_some() && *recovered == nothing {
        return;
    }
    subscriber.emit(&Event::Pruned {
        kind,
        name,
        how: &death.how,
        released: recovered.released.len(),
        delayed: recovered.delayed.len(),
        failed: recovered.failed.len(),
    });
    for job in &recovered.cancelled {
        subscriber.emit(&Event::Cancelled {
            job: JobId(*job),
            class: "",
            queue: "",
            attempt: 0,
            claim: 0,
        });
    }
    for (job, class) in &recovered.discarded {
        subscriber.emit(&Event::Discarded {
            job: JobId(*job),
            class,
            queue: "",
            attempt: 0,
            claim: 0,
            kind: "timeout",
            message: "the job ran for longer than its timeout",
        });
    }
    if death.is_crash {
        report_stalled(subscriber, recovered);
    }
}

fn report_stalled(subscriber: &Subscriber, recovered: &Recovered) {
    let outcomes = [
        ("released", &recovered.released),
        ("delayed", &recovered.delayed),
        ("failed", &recovered.failed),
    ];
    for (outcome, jobs) in outcomes {
        for job in jobs {
            subscriber.emit(&Event::Stalled {
                job: JobId(*job),
                outcome,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: i64, heartbeat_seq: i64) -> Observed {
        Observed {
            id,
            name: format!("worker-{id}"),
            kind: "Worker".to_owned(),
            heartbeat_seq,
            draining: false,
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn ids(dead: &[Observed]) -> Vec<i64> {
        dead.iter().map(|process| process.id).collect()
    }

    #[test]
    fn an_unchanged_heartbeat_is_death_after_the_threshold() {
        let start = clock::instant();
        let mut detector = FailureDetector::new(3 * SECOND, SECOND);
        for second in 0..3 {
            assert!(
                detector
                    .read(
                        &[process(1, 7), process(2, i64::from(second))],
                        &[],
                        start + SECOND * second
                    )
                    .is_empty()
            );
        }
        let dead = detector.read(&[process(1, 7), process(2, 3)], &[], start + 3 * SECOND);
        assert_eq!(ids(&dead), [1]);
    }

    #[test]
    fn nobody_dies_while_or_just_after_the_database_was_away() {
        let start = clock::instant();
        let mut detector = FailureDetector::new(3 * SECOND, SECOND);
        detector.read(&[process(1, 7)], &[], start);
        assert!(
            detector
                .read(&[process(1, 7)], &[], start + 10 * SECOND)
                .is_empty()
        );
        for second in 11..13 {
            assert!(
                detector
                    .read(&[process(1, 7)], &[], start + SECOND * second)
                    .is_empty()
            );
        }
        assert_eq!(
            ids(&detector.read(&[process(1, 7)], &[], start + 13 * SECOND)),
            [1]
        );
    }

    #[test]
    fn a_lack_of_workers_is_logged_once() {
        let start = clock::instant();
        let mut detector = FailureDetector::new(2 * SECOND, SECOND);
        let mut lacks = |second: u32, processes: &[Observed]| {
            detector.read(processes, &[], start + SECOND * second);
            detector.lacks_workers(processes)
        };
        let lacked = (0..5).map(|second| lacks(second, &[]));
        assert_eq!(
            lacked.collect::<Vec<_>>(),
            [false, false, true, false, false]
        );
        assert!(!lacks(5, &[process(1, 1)]));
        assert!(!lacks(6, &[]) && !lacks(7, &[]) && lacks(8, &[]));
    }

    #[test]
    fn what_was_seen_before_a_gap_counts() {
        let start = clock::instant();
        let mut detector = FailureDetector::new(3 * SECOND, SECOND);
        // A gap after each second of observation.
        for pair in 0..3 {
            for second in [10 * pair, 10 * pair + 1] {
                let dead = detector.read(&[process(1, 7)], &[], start + SECOND * second);
                assert_eq!(ids(&dead), if second < 21 { vec![] } else { vec![1] });
                detector.read_without_row(&[5]);
            }
        }
        assert_eq!(detector.read_without_row(&[5]), [5]);
        // A heartbeat after the gap is a sign of life.
        let dead = detector.read(&[process(1, 8)], &[], start + 30 * SECOND);
        assert!(dead.is_empty());
    }

    #[test]
    fn time_that_is_skipped_does_not_count() {
        let start = clock::instant();
        let mut detector = FailureDetector::new(2 * SECOND, SECOND);
        detector.read(&[process(1, 7)], &[], start);
        detector.skip();
        for second in 1..3 {
            let dead = detector.read(&[process(1, 7)], &[], start + SECOND * second);
            assert!(dead.is_empty(), "{second}");
        }
        let dead = detector.read(&[process(1, 7)], &[], start + 3 * SECOND);
        assert_eq!(ids(&dead), [1]);
    }

    #[test]
    fn a_supervisor_never_prunes_itself() {
        let start = clock::instant();
        let mut detector = FailureDetector::new(SECOND, SECOND);
        detector.read(&[process(1, 7)], &[1], start);
        assert!(
            detector
                .read(&[process(1, 7)], &[1], start + 2 * SECOND)
                .is_empty()
        );
    }

    #[test]
    fn a_wave_of_deaths_waits_once_more() {
        let start = clock::instant();
        let mut detector = FailureDetector::new(2 * SECOND, SECOND);
        let all: Vec<Observed> = (1..=4).map(|id| process(id, 1)).collect();
        for second in 0..4 {
            assert!(detector.read(&all, &[], start + SECOND * second).is_empty());
        }
        assert_eq!(
            ids(&detector.read(&all, &[], start + 4 * SECOND)),
            [1, 2, 3, 4]
        );
    }
}
