//! The position at which a busy worker starts to scan the ready executions. A scan from the
//! beginning each time would pass all rows deleted since the last vacuum.

use crate::clock;
use crate::db::model::claim::{ClaimQueues, Claimed, Cursor};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The position up to which each queue was claimed. Jobs before that (a more important job, a
/// released one, one whose enqueue committed late) are found by the next scan from the beginning.
#[derive(Debug, Default)]
pub(crate) struct ScanCursors {
    /// By the name of the queue; `None` for all queues together.
    reached: HashMap<String, Cursor>,
    /// The time at which the next scan from the beginning is due.
    again_at: Option<Instant>,
    scan: Scan,
    /// The durations of the last scans from the beginning, without the time for the jobs that they
    /// found; the newest is last.
    costs: [Duration; 3],
}

/// The scan under way, or the last one.
#[derive(Debug, Default, Clone, Copy)]
struct Scan {
    /// True if cursors are used and moved at all.
    by_marks: bool,
    /// The time at which it started, if it scans from the beginning.
    began: Option<Instant>,
    of_all: bool,
}

/// The time between two scans from the beginning, for which an urgent job waits, unless these pass
/// many deleted rows: then ten times as long as that takes, at first at most [`PROBATION`].
const INTERVAL: Duration = Duration::from_millis(5);

/// The duration of a claim that passes no deleted rows, with its commit.
const A_CLAIM: Duration = Duration::from_millis(2);

/// A scan from the beginning that takes longer passes many deleted rows that a long transaction
/// keeps from being vacuumed. Cursors are then used for jobs of all kinds, also when the queues are
/// empty.
const SLOW: Duration = Duration::from_millis(20);

/// A scan that takes even longer counts alone, until the next one, which follows soon: it may only
/// have waited for a lock, or paused with its process. Jobs that are retried or were scheduled come
/// before the cursors.
const VERY_SLOW: Duration = Duration::from_millis(100);

const PROBATION: Duration = Duration::from_secs(3);

/// The longest time of a claim for each job, so that a large claim does not count as a slow scan.
const A_JOB: Duration = Duration::from_micros(50);

impl ScanCursors {
    /// Starts a scan, which may skip what comes before the cursors.
    pub(crate) fn begin(&mut self, by_marks: bool) {
        let now = clock::instant();
        let is_due = self.reached.is_empty() || self.again_at.is_none_or(|at| at <= now);
        let by_marks = by_marks || self.is_slow();
        self.scan = Scan {
            by_marks,
            began: (is_due || !by_marks).then_some(now),
            of_all: false,
        };
    }

    /// Returns where a claim starts, in the order of the queues.
    pub(crate) fn from(&mut self, queues: &ClaimQueues) -> Vec<Cursor> {
        self.scan.of_all = matches!(queues, ClaimQueues::All);
        if self.scan.began.is_some() {
            return Vec::new();
        }
        let mark = |name: &str| self.reached.get(name).copied().unwrap_or(Cursor::BEGINNING);
        match queues {
            ClaimQueues::All => vec![mark("")],
            ClaimQueues::Named(names) => names.iter().map(|name| mark(name)).collect(),
        }
    }

    /// Returns whether the scan has skipped something, so that another one must follow at once.
    pub(crate) fn passed_some(&self) -> bool {
        self.scan.began.is_none() && !self.is_slow()
    }

    /// Returns how long what the last scan skipped may wait, or `None` if it skipped nothing.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let again_at = self.again_at.filter(|_| self.scan.began.is_none())?;
        Some(again_at.saturating_duration_since(clock::instant()))
    }

    fn is_slow(&self) -> bool {
        self.is_proven() || self.costs[2] > VERY_SLOW
    }

    fn is_proven(&self) -> bool {
        self.costs.iter().all(|cost| *cost > SLOW)
    }

    /// Notes which jobs a scan found that wanted up to `limit`. After fewer jobs the next scan starts from the beginning, unless that is slow.
    pub(crate) fn reach(&mut self, jobs: &[Arc<Claimed>], limit: usize) {
        let took = self.scan.began.map(|began| began.elapsed());
        self.reach_after(took, jobs, limit);
    }

    /// Notes that a scan was cancelled because it took too long. A scan from the beginning is not
    /// repeated at once, because jobs behind the cursors would wait forever.
    pub(crate) fn give_up(&mut self) {
        if let Some(took) = self.scan.began.map(|began| began.elapsed()) {
            self.give_up_after(took);
        }
    }

    fn give_up_after(&mut self, took: Duration) {
        self.costs.rotate_left(1);
        self.costs[2] = took;
        self.again_at = Some(clock::instant() + self.pause_after(took));
    }

    /// Returns when another scan from the beginning may follow one that took `took`.
    fn pause_after(&self, took: Duration) -> Duration {
        let longest = if self.is_proven() {
            Duration::MAX
        } else {
            PROBATION
        };
        // One scan may only have waited for the disk.
        let usual = if took > VERY_SLOW {
            took
        } else {
            took.min(self.costs[1])
        };
        let passing = usual.saturating_sub(A_CLAIM);
        (passing * 10).clamp(INTERVAL, longest)
    }

    /// Notes the result of a scan. `took` is how long it took, if it was from the beginning. The time
    /// for the jobs that it found does not count.
    fn reach_after(&mut self, took: Option<Duration>, jobs: &[Arc<Claimed>], limit: usize) {
        let of_jobs = A_JOB * u32::try_from(jobs.len()).unwrap_or(u32::MAX);
        let took = took.map(|took| took.saturating_sub(of_jobs));
        if let Some(took) = took {
            self.costs.rotate_left(1);
            self.costs[2] = took;
        }
        if jobs.len() < limit && !self.is_slow() {
            return self.forget();
        }
        if !self.scan.by_marks && !self.is_slow() {
            return;
        }
        if let Some(took) = took {
            self.again_at = Some(clock::instant() + self.pause_after(took));
            // If nothing was found, nothing is before the old cursors.
            if !jobs.is_empty() {
                self.reached.clear();
            }
        }
        let of_all = self.scan.of_all;
        // One look-up in the map for consecutive jobs of one queue.
        for same in jobs.chunk_by(|one, next| of_all || one.queue_name == next.queue_name) {
            let name = if of_all { "" } else { &same[0].queue_name };
            if let Some(furthest) = same.iter().map(|job| Cursor::of(job)).max() {
                self.note(name, furthest);
            }
        }
    }

    fn note(&mut self, name: &str, mark: Cursor) {
        match self.reached.get_mut(name) {
            Some(reached) => *reached = mark.max(*reached),
            None => drop(self.reached.insert(name.to_owned(), mark)),
        }
    }

    /// Makes the next scan start from the beginning.
    pub(crate) fn forget(&mut self) {
        *self = ScanCursors {
            costs: self.costs,
            ..ScanCursors::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(25);

    fn claimed() -> Claimed {
        Claimed {
            claim_id: 1,
            job_id: 1,
            ..Claimed::default()
        }
    }

    /// Makes a scan that takes `took` and finds nothing.
    fn begin_and_scan(cursors: &mut ScanCursors, took: Duration) -> Vec<Cursor> {
        cursors.begin(false);
        scan(cursors, took)
    }

    fn scan(cursors: &mut ScanCursors, took: Duration) -> Vec<Cursor> {
        let from = cursors.from(&ClaimQueues::All);
        let took = cursors.scan.began.map(|_| took);
        cursors.reach_after(took, &[], 1);
        from
    }

    fn with_a_cursor(cursors: &mut ScanCursors) {
        let mark = Cursor {
            priority: 0,
            job_id: 7,
        };
        cursors.reached.insert(String::new(), mark);
    }

    #[test]
    fn cursors_end_with_the_queue() {
        let mut cursors = ScanCursors::default();
        for _ in 0..5 {
            with_a_cursor(&mut cursors);
            cursors.begin(true);
            assert_eq!(scan(&mut cursors, Duration::ZERO), []);
            assert_eq!(cursors.patience(), None);
        }
    }

    #[test]
    fn they_stay_where_a_scan_from_the_beginning_is_slow() {
        let mut cursors = ScanCursors::default();
        for _ in 0..4 {
            assert_eq!(begin_and_scan(&mut cursors, LONG), []);
        }
        with_a_cursor(&mut cursors);
        let from = begin_and_scan(&mut cursors, LONG);
        assert_eq!(from.len(), 1);
        assert_eq!(from[0].job_id, 7);
        // Jobs before the cursor are looked for, but not at once.
        assert!(!cursors.passed_some());
        let patience = cursors.patience().unwrap();
        assert!(patience <= 10 * LONG, "{patience:?}");
    }

    #[test]
    fn one_very_slow_scan_is_enough() {
        let mut cursors = ScanCursors::default();
        assert_eq!(begin_and_scan(&mut cursors, 60 * LONG), []);
        with_a_cursor(&mut cursors);
        assert_eq!(begin_and_scan(&mut cursors, Duration::ZERO).len(), 1);
        // The process may have paused: what the scan skipped does not wait ten times that long.
        let patience = cursors.patience().unwrap();
        assert!(patience <= PROBATION, "{patience:?}");
    }

    #[test]
    fn they_stay_where_nothing_stands_before_them() {
        let mut cursors = ScanCursors::default();
        begin_and_scan(&mut cursors, 6 * LONG);
        with_a_cursor(&mut cursors);
        cursors.again_at = None;
        assert_eq!(begin_and_scan(&mut cursors, 6 * LONG), [], "it is time");
        assert_eq!(begin_and_scan(&mut cursors, Duration::ZERO)[0].job_id, 7);
    }

    #[test]
    fn a_scan_that_was_given_up_is_not_repeated_at_once() {
        let mut cursors = ScanCursors::default();
        for _ in 0..3 {
            with_a_cursor(&mut cursors);
            cursors.again_at = None;
            cursors.begin(false);
            assert_eq!(cursors.from(&ClaimQueues::All), [], "it is time");
            cursors.give_up_after(1200 * LONG);
            assert_eq!(begin_and_scan(&mut cursors, Duration::ZERO)[0].job_id, 7);
        }
        assert!(cursors.patience().unwrap() > PROBATION);
    }

    #[test]
    fn an_urgent_job_does_not_wait_because_a_claim_found_many() {
        let mut cursors = ScanCursors::default();
        let jobs: Vec<Arc<Claimed>> = (0..128).map(|_| Arc::new(claimed())).collect();
        cursors.begin(true);
        assert_eq!(cursors.from(&ClaimQueues::All), []);
        cursors.reach_after(Some(Duration::from_millis(7)), &jobs, 128);
        cursors.begin(true);
        cursors.from(&ClaimQueues::All);
        let patience = cursors.patience().unwrap();
        assert!(patience <= INTERVAL, "{patience:?}");
    }

    #[test]
    fn one_scan_that_had_to_wait_proves_nothing() {
        let mut cursors = ScanCursors::default();
        for took in [LONG, Duration::ZERO, LONG, LONG, Duration::ZERO, LONG] {
            with_a_cursor(&mut cursors);
            assert_eq!(begin_and_scan(&mut cursors, took), []);
        }
    }
}
