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
    reached: HashMap<String, Mark>,
    /// When the next look begins at the beginning.
    again_at: Option<Instant>,
    /// When the look under way began, if it began at the beginning.
    began: Option<Instant>,
}

/// The longest time between two looks from the beginning, unless these take
/// long themselves: then ten times as long as one.
const INTERVAL: Duration = Duration::from_millis(50);

impl Marks {
    /// Where the next claim begins, in the order of the queues.
    pub(crate) fn from(&mut self, queues: &Queues) -> Vec<Mark> {
        let now = clock::instant();
        let is_due = self.again_at.is_none_or(|again_at| again_at <= now);
        self.began = is_due.then_some(now);
        if is_due {
            self.reached.clear();
            return Vec::new();
        }
        let reached = |name: &str| self.reached.get(name).copied();
        match queues {
            Queues::All => vec![reached("").unwrap_or(Mark::BEGINNING)],
            Queues::Named(names) => names
                .iter()
                .map(|name| reached(name).unwrap_or(Mark::BEGINNING))
                .collect(),
        }
    }

    /// Notes what a claim found that took as many as it wanted.
    pub(crate) fn reach(&mut self, queues: &Queues, jobs: &[Arc<Claimed>]) {
        if let Some(began) = self.began.take() {
            let pause = (began.elapsed() * 10).max(INTERVAL);
            self.again_at = Some(clock::instant() + pause);
        }
        for job in jobs {
            let name = match queues {
                Queues::All => "",
                Queues::Named(_) => &job.queue_name,
            };
            let mark = Mark {
                priority: job.priority,
                job_id: job.job_id,
            };
            match self.reached.get_mut(name) {
                Some(reached) => *reached = mark.max(*reached),
                None => drop(self.reached.insert(name.to_owned(), mark)),
            }
        }
    }

    /// The next look begins at the beginning.
    pub(crate) fn forget(&mut self) {
        *self = Marks::default();
    }
}
