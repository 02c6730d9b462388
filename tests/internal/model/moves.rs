//! Operations on jobs from outside, by the reference and by a database.

use crate::db::conn::dialect::{id_list, micros};
use crate::db::conn::statement::Statement;
use crate::db::internal_tests::model::edges::Awaited;
use crate::db::internal_tests::model::reference::{Answer, waiting};
use crate::db::internal_tests::model::state::{Model, Place};
use crate::db::internal_tests::model::step::Move;
use crate::db::internal_tests::model::transitions::Taken;
use crate::db::table::expiries;
use crate::db::transition::clear::{self, ClearLimits};
use crate::db::transition::dispatch;
use crate::db::transition::operate::{self, AtMostOnce, CancelledJobs, RunTime};
use crate::job::policy::Delivery;
use diesel::QueryResult;
use std::collections::BTreeSet;
use std::time::Duration;

impl Model {
    pub fn move_jobs(&mut self, picks: &[u8], what: Move) -> Answer {
        let (mut moved, mut others) = (BTreeSet::new(), BTreeSet::new());
        for number in self.picked_to_move(picks, what) {
            match self.move_job(number, what) {
                Some(true) => moved.insert(number),
                Some(false) => others.insert(number),
                None => false,
            };
        }
        Answer::Moved(moved, others)
    }

    /// Returns the jobs to move. A retry mostly picks failed jobs, as few have failed, and prefers awaited ones.
    fn picked_to_move(&self, picks: &[u8], what: Move) -> BTreeSet<usize> {
        let failed: Vec<usize> = (0..self.jobs.len())
            .filter(|job| matches!(self.jobs[*job].place, Place::Failed(_)))
            .collect();
        let is_awaited = |job: &&usize| self.is_retry_awaited(**job);
        let awaited: Vec<usize> = failed.iter().filter(is_awaited).copied().collect();
        let is_any = !matches!(what, Move::Retry { .. }) || failed.is_empty();
        let (any, among): (Vec<u8>, Vec<u8>) = picks.iter().partition(|pick| is_any || **pick < 64);
        let mut picked = self.picked_jobs(&any);
        for pick in among {
            let of = match pick >= 160 && !awaited.is_empty() {
                true => &awaited,
                false => &failed,
            };
            picked.insert(of[usize::from(pick) % of.len()]);
        }
        picked
    }

    /// Moves a job. Returns whether it was moved, or `None` if the answer does not name it.
    fn move_job(&mut self, number: usize, what: Move) -> Option<bool> {
        let is_held = self.holder(self.jobs[number].new.name).is_some();
        let job = &mut self.jobs[number];
        let has_time = matches!(job.place, Place::Ready | Place::Scheduled(_));
        let is_blocked = matches!(
            job.place,
            Place::Blocked { .. } | Place::Waits | Place::Awaits { .. }
        );
        let waits = has_time || is_blocked;
        let failed = matches!(job.place, Place::Failed(_));
        let has_started = job.attempts > 0 || job.crash_count > 0 || job.last_claim.is_some();
        match (what, job.place) {
            (Move::Cancel, Place::Claimed(claim)) => {
                job.version += 1;
                self.claims[claim].cancelled = true;
                Some(false)
            }
            (Move::Cancel, _) if waits => {
                job.place = Place::Finished;
                job.is_cancelled = true;
                job.has_result |= job.new.name.is_some();
                job.attempts_kept += 1;
                Some(true)
            }
            (Move::Expire, _) if waits && !has_started => {
                job.place = Place::Finished;
                job.is_discarded = true;
                job.has_result |= job.new.name.is_some();
                job.attempts_kept += 1;
                Some(true)
            }
            (Move::Discard, _) if waits || failed => {
                job.place = Place::Gone;
                job.is_discarded = true;
                job.has_result = job.has_dependents;
                Some(true)
            }
            (Move::Retry { even_at_most_once }, Place::Failed(why)) => {
                let is_risky = match job.new.delivery {
                    Delivery::AtLeastOnce => false,
                    Delivery::AtMostOnce => true,
                    Delivery::AfterKnownOutcome => why == "outcome_unknown",
                };
                if is_risky && !even_at_most_once || is_held {
                    return Some(false);
                }
                job.place = Place::Ready;
                // Its attempts and crashes count for its new place, and are cleared afterwards.
                self.enter(number);
                let job = &mut self.jobs[number];
                (job.attempts, job.crash_count) = (0, 0);
                job.has_result = false;
                self.rejoin(number);
                self.forget_failure(number);
                self.resume(number);
                Some(true)
            }
            (Move::Reschedule(seconds), _) if has_time => {
                job.place = waiting(seconds);
                job.keeps_place = false;
                job.version += 1;
                self.enter(number);
                Some(true)
            }
            (Move::ChangePriority(priority), _) if waits => {
                job.new.priority = priority;
                Some(true)
            }
            _ => None,
        }
    }

    pub fn clear(&mut self, failed: bool) -> Answer {
        let mut count = 0;
        let unnoted = self.edges.iter().filter(|edge| edge.outcome.is_none());
        let unnoted: BTreeSet<Awaited> = unnoted.map(|edge| edge.parent).collect();
        for (number, job) in self.jobs.iter_mut().enumerate() {
            let goes = match job.place {
                Place::Failed(_) => failed,
                Place::Finished => !failed && !unnoted.contains(&Awaited::Job(number)),
                _ => false,
            };
            if goes {
                if failed {
                    job.is_discarded = true;
                    job.has_result |= job.has_dependents;
                }
                job.place = Place::Gone;
                count += 1;
            }
        }
        Answer::Count(count)
    }
}

impl Taken<'_> {
    pub fn move_jobs(&mut self, picks: &[u8], what: Move) -> QueryResult<Answer> {
        let numbers = self.before.picked_to_move(picks, what).into_iter();
        let jobs: Vec<i64> = numbers.map(|number| self.ids.jobs[number]).collect();
        let conn = &mut self.conn;
        let (moved, others) = match what {
            Move::Cancel => {
                let CancelledJobs { ended, asked, .. } = operate::cancel(conn, &jobs)?;
                (ended, asked)
            }
            Move::Expire => {
                let text = "INSERT INTO windlass_expiries (job_id, expires_at) \
                     SELECT id, '2020-01-01 00:00:00.000000' FROM solid_queue_jobs WHERE id IN {in $1}";
                Statement::new(text).bind(id_list(&jobs)).execute(conn)?;
                let expired = dispatch::expire(conn, 1_000)?.discarded;
                // Those of claimed jobs.
                expiries::remove(conn, &jobs)?;
                (expired.iter().map(|job| job.id).collect(), Vec::new())
            }
            Move::Discard => (operate::discard(conn, &jobs)?, Vec::new()),
            Move::Retry { even_at_most_once } => {
                let mut done =
                    operate::retry(conn, &jobs, AtMostOnce::retry_if(even_at_most_once))?;
                done.risky.append(&mut done.replaced);
                (done.ready, done.risky)
            }
            Move::Reschedule(seconds) => {
                let delay = micros(Duration::from_secs(seconds.into()));
                (
                    operate::reschedule(conn, &jobs, RunTime::In(delay))?,
                    Vec::new(),
                )
            }
            Move::ChangePriority(priority) => {
                (operate::change_priority(conn, &jobs, priority)?, Vec::new())
            }
        };
        Ok(Answer::Moved(
            self.job_numbers(moved),
            self.job_numbers(others),
        ))
    }

    pub fn clear(&mut self, failed: bool) -> QueryResult<Answer> {
        const ALL: usize = 1_000;
        let count = if failed {
            clear::failed(&mut self.conn, Duration::ZERO, 0, ALL)?.cleared
        } else {
            let old = ClearLimits {
                age: Duration::ZERO,
                up_to: 0,
                of_ruby: true,
            };
            clear::finished(&mut self.conn, old, 0, ALL)?.cleared
        };
        Ok(Answer::Count(count))
    }
}
