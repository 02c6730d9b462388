//! From where a busy worker looks for ready executions: not from the
//! beginning each time, past all that was taken since the last vacuum.

use crate::clock;
use crate::db::ready::{Claimed, Mark, Queues};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How far each queue was taken. What comes before that (a more important
/// job, one that was given back, one whose enqueue took long to commit) is
/// found by the next look from the beginning.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// By the name of the queue; for all together, by none.
    reached: HashMap<String, Mark>,
    /// When a look is to begin at the beginning again.
    again_at: Option<Instant>,
    look: Look,
}

/// The look under way, or the last one.
#[derive(Debug, Default, Clone, Copy)]
struct Look {
    /// Whether marks are used and made at all.
    by_marks: bool,
    /// When it began, if at the beginning.
    began: Option<Instant>,
    of_all: bool,
}

/// The longest time between two looks from the beginning, unless these take
/// long themselves: then ten times as long as one.
const INTERVAL: Duration = Duration::from_millis(50);

impl Marks {
    /// A look begins, which may pass what came before the marks.
    pub(crate) fn begin(&mut self, by_marks: bool) {
        let now = clock::instant();
        let is_due = self.again_at.is_none_or(|again_at| again_at <= now);
        if is_due {
            self.reached.clear();
        }
        self.look = Look {
            by_marks,
            began: (is_due || !by_marks).then_some(now),
            of_all: false,
        };
    }

    /// Where a claim begins, in the order of the queues.
    pub(crate) fn from(&mut self, queues: &Queues) -> Vec<Mark> {
        self.look.of_all = matches!(queues, Queues::All);
        if self.look.began.is_some() {
            return Vec::new();
        }
        let mark = |name: &str| self.reached.get(name).copied().unwrap_or(Mark::BEGINNING);
        match queues {
            Queues::All => vec![mark("")],
            Queues::Named(names) => names.iter().map(|name| mark(name)).collect(),
        }
    }

    /// Whether the look has not seen everything.
    pub(crate) fn passed_some(&self) -> bool {
        self.look.began.is_none()
    }

    /// Notes what a look found, and whether that was as much as it wanted.
    /// With less, the next one begins at the beginning.
    pub(crate) fn reach(&mut self, jobs: &[Arc<Claimed>], is_full: bool) {
        if !is_full {
            return self.forget();
        }
        if !self.look.by_marks {
            return;
        }
        if let Some(began) = self.look.began {
            let pause = (began.elapsed() * 10).max(INTERVAL);
            self.again_at = Some(clock::instant() + pause);
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

    fn note(&mut self, name: &str, mark: Mark) {
        match self.reached.get_mut(name) {
            Some(reached) => *reached = mark.max(*reached),
            None => drop(self.reached.insert(name.to_owned(), mark)),
        }
    }

    /// The next look begins at the beginning.
    pub(crate) fn forget(&mut self) {
        *self = Marks::default();
    }
}

fn place(job: &Claimed) -> Mark {
    Mark {
        priority: job.priority,
        job_id: job.job_id,
    }
}
