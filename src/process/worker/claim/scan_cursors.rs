//! From where a busy worker looks for ready executions: not from the
//! beginning each time, past all that was taken since the last vacuum.

use crate::clock;
use crate::db::model::claim::{ClaimQueues, Claimed, Cursor};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How far each queue was taken. What comes before that (a more important
/// job, one that was given back, one whose enqueue took long to commit) is
/// found by the next look from the beginning.
#[derive(Debug, Default)]
pub(crate) struct ScanCursors {
    /// By the name of the queue; for all together, by none.
    reached: HashMap<String, Cursor>,
    /// When a look is to begin at the beginning again.
    again_at: Option<Instant>,
    look: Look,
    /// What the last looks from the beginning took, but for the jobs that they
    /// found, the last one last.
    costs: [Duration; 3],
}

/// The look under way, or the last one.
#[derive(Debug, Default, Clone, Copy)]
struct Look {
    /// Whether cursors are used and moved at all.
    by_marks: bool,
    /// When it began, if at the beginning.
    began: Option<Instant>,
    of_all: bool,
}

/// The longest time between two looks from the beginning, unless these take
/// long themselves: then ten times as long as one, at first [`PROBATION`] at most.
const INTERVAL: Duration = Duration::from_millis(50);

/// A look from the beginning that takes longer has much to pass that was taken
/// and not yet cleared away, as a long transaction forbids it. Cursors
/// are then used for jobs of all kinds, and when the queues are empty too.
const DEAR: Duration = Duration::from_millis(20);

/// One that takes even longer says so by itself, until the next one, which
/// follows soon: it may only have waited for a lock, or stood still with its
/// process, and jobs that are retried or were scheduled come before the cursors.
const VERY_DEAR: Duration = Duration::from_millis(100);

const PROBATION: Duration = Duration::from_secs(3);

/// What a claim takes for each job at most, so that it is not mistaken for a
/// look that is dear.
const A_JOB: Duration = Duration::from_micros(50);

impl ScanCursors {
    /// A look begins, which may pass what came before the cursors.
    pub(crate) fn begin(&mut self, by_marks: bool) {
        let now = clock::instant();
        let is_due = self.reached.is_empty() || self.again_at.is_none_or(|at| at <= now);
        let by_marks = by_marks || self.is_dear();
        self.look = Look {
            by_marks,
            began: (is_due || !by_marks).then_some(now),
            of_all: false,
        };
    }

    /// Where a claim begins, in the order of the queues.
    pub(crate) fn from(&mut self, queues: &ClaimQueues) -> Vec<Cursor> {
        self.look.of_all = matches!(queues, ClaimQueues::All);
        if self.look.began.is_some() {
            return Vec::new();
        }
        let mark = |name: &str| self.reached.get(name).copied().unwrap_or(Cursor::BEGINNING);
        match queues {
            ClaimQueues::All => vec![mark("")],
            ClaimQueues::Named(names) => names.iter().map(|name| mark(name)).collect(),
        }
    }

    /// Whether the look has not seen everything, and another is to follow at
    /// once.
    pub(crate) fn passed_some(&self) -> bool {
        self.look.began.is_none() && !self.is_dear()
    }

    /// For how long what the last look has passed may wait. `None`: it has
    /// passed nothing.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let again_at = self.again_at.filter(|_| self.look.began.is_none())?;
        Some(again_at.saturating_duration_since(clock::instant()))
    }

    fn is_dear(&self) -> bool {
        self.is_proven() || self.costs[2] > VERY_DEAR
    }

    fn is_proven(&self) -> bool {
        self.costs.iter().all(|cost| *cost > DEAR)
    }

    /// Notes what a look found, and whether that was as much as it wanted.
    /// With less, the next one begins at the beginning, unless that is dear.
    pub(crate) fn reach(&mut self, jobs: &[Arc<Claimed>], is_full: bool) {
        let took = self.look.began.map(|began| began.elapsed());
        self.reach_after(took, jobs, is_full);
    }

    /// Notes that a look was given up because it took too long. One from the
    /// beginning is not repeated at once: what is behind the cursors would
    /// wait for ever.
    pub(crate) fn give_up(&mut self) {
        if let Some(took) = self.look.began.map(|began| began.elapsed()) {
            self.give_up_after(took);
        }
    }

    fn give_up_after(&mut self, took: Duration) {
        self.costs.rotate_left(1);
        self.costs[2] = took;
        self.again_at = Some(clock::instant() + self.pause_after(took));
    }

    /// When a look from the beginning that took so long may be followed by
    /// another.
    fn pause_after(&self, took: Duration) -> Duration {
        let longest = if self.is_proven() {
            Duration::MAX
        } else {
            PROBATION
        };
        (took * 10).clamp(INTERVAL, longest)
    }

    /// `took`: for how long it looked, if from the beginning.
    fn reach_after(&mut self, took: Option<Duration>, jobs: &[Arc<Claimed>], is_full: bool) {
        if let Some(took) = took {
            let of_jobs = A_JOB * u32::try_from(jobs.len()).unwrap_or(u32::MAX);
            self.costs.rotate_left(1);
            self.costs[2] = took.saturating_sub(of_jobs);
        }
        if !is_full && !self.is_dear() {
            return self.forget();
        }
        if !self.look.by_marks && !self.is_dear() {
            return;
        }
        if let Some(took) = took {
            self.again_at = Some(clock::instant() + self.pause_after(took));
            // Where nothing was found, nothing is before the old cursors.
            if !jobs.is_empty() {
                self.reached.clear();
            }
        }
        let of_all = self.look.of_all;
        // One look into the map for jobs of one queue that come in a row.
        for same in jobs.chunk_by(|one, next| of_all || one.queue_name == next.queue_name) {
            let name = if of_all { "" } else { &same[0].queue_name };
            if let Some(furthest) = same.iter().map(|job| place(job)).max() {
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

    /// The next look begins at the beginning.
    pub(crate) fn forget(&mut self) {
        *self = ScanCursors {
            costs: self.costs,
            ..ScanCursors::default()
        };
    }
}

fn place(job: &Claimed) -> Cursor {
    Cursor {
        priority: job.priority,
        job_id: job.job_id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(25);

    /// A look that took so long and found nothing.
    fn look(cursors: &mut ScanCursors, by_marks: bool, took: Duration) -> Vec<Cursor> {
        cursors.begin(by_marks);
        let from = cursors.from(&ClaimQueues::All);
        let took = cursors.look.began.map(|_| took);
        cursors.reach_after(took, &[], false);
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
            assert_eq!(look(&mut cursors, true, Duration::ZERO), []);
            assert_eq!(cursors.patience(), None);
        }
    }

    #[test]
    fn they_stay_where_a_look_from_the_beginning_is_dear() {
        let mut cursors = ScanCursors::default();
        for _ in 0..4 {
            assert_eq!(look(&mut cursors, false, LONG), []);
        }
        with_a_cursor(&mut cursors);
        let from = look(&mut cursors, false, LONG);
        assert_eq!(from.len(), 1);
        assert_eq!(from[0].job_id, 7);
        // What comes before the cursor is looked for, and not at once.
        assert!(!cursors.passed_some());
        let patience = cursors.patience().unwrap();
        assert!(patience <= 10 * LONG, "{patience:?}");
    }

    #[test]
    fn one_very_dear_look_is_enough() {
        let mut cursors = ScanCursors::default();
        assert_eq!(look(&mut cursors, false, 60 * LONG), []);
        with_a_cursor(&mut cursors);
        assert_eq!(look(&mut cursors, false, Duration::ZERO).len(), 1);
        // It may have stood still: what it passed does not wait ten times that.
        let patience = cursors.patience().unwrap();
        assert!(patience <= PROBATION, "{patience:?}");
    }

    #[test]
    fn they_stay_where_nothing_stands_before_them() {
        let mut cursors = ScanCursors::default();
        look(&mut cursors, false, 6 * LONG);
        with_a_cursor(&mut cursors);
        cursors.again_at = None;
        assert_eq!(look(&mut cursors, false, 6 * LONG), [], "it is time");
        assert_eq!(look(&mut cursors, false, Duration::ZERO)[0].job_id, 7);
    }

    #[test]
    fn a_look_that_was_given_up_is_not_repeated_at_once() {
        let mut cursors = ScanCursors::default();
        for _ in 0..3 {
            with_a_cursor(&mut cursors);
            cursors.again_at = None;
            cursors.begin(false);
            assert_eq!(cursors.from(&ClaimQueues::All), [], "it is time");
            cursors.give_up_after(1200 * LONG);
            assert_eq!(look(&mut cursors, false, Duration::ZERO)[0].job_id, 7);
        }
        assert!(cursors.patience().unwrap() > PROBATION);
    }

    #[test]
    fn one_look_that_had_to_wait_proves_nothing() {
        let mut cursors = ScanCursors::default();
        for took in [LONG, Duration::ZERO, LONG, LONG, Duration::ZERO, LONG] {
            with_a_cursor(&mut cursors);
            assert_eq!(look(&mut cursors, false, took), []);
        }
    }
}
