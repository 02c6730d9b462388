//! Ends of claims, on a real database.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::internal_tests::checks::JobRow;
use crate::db::internal_tests::db::execute;
use crate::db::internal_tests::model::reference::{Answer, MAX_ATTEMPTS, RETRY_AFTER};
use crate::db::internal_tests::model::state::forgotten;
use crate::db::internal_tests::model::step::{By, End, LastRetry, Next, Sight, Which};
use crate::db::internal_tests::model::subject::number;
use crate::db::internal_tests::model::transitions::{NOBODY, Taken, claim_queues, day};
use crate::db::model::claim::{ClaimOf, FinishedRow, NextJobs};
use crate::db::model::decision::{Death, KeySlots};
use crate::db::model::outcome::{ClaimEnd, Ending, JobFailure};
use crate::db::table::{claimed, jobs};
use crate::db::transition::{end, faults, finish, prune};
use crate::job::error::JobError;
use crate::job::policy::Policy;
use crate::job::policy::backoff::Backoff;
use crate::mutant;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Integer, Nullable, Text};
use std::time::Duration;

impl Taken<'_> {
    pub fn finish(
        &mut self,
        by: By,
        picks: &[Which],
        keep: bool,
        next: Option<&Next>,
    ) -> QueryResult<Answer> {
        let (process, claims) = (self.owner(by, picks), self.claims(picks));
        let finished = if keep {
            FinishedRow::Keep
        } else {
            FinishedRow::Delete
        };
        if let Some(next) = next
            && !mutant::is("finish_without_fence")
        {
            let wanted = NextJobs {
                queues: claim_queues(next.queues.as_deref()),
                classes: self.open_classes(next.classes)?,
            };
            let slots = KeySlots::PassOn(&wanted, next.equal);
            let done = if self.has_extras(picks) {
                self.finish_with_extras(process, picks, finished, slots)?
            } else {
                finish::finish_free(&mut self.conn, process, &claims, finished, slots)?
            };
            let ended = self.claim_numbers(done.accepted);
            return Ok(Answer::EndedAndHeld(ended, self.numbered(&done.next.jobs)));
        }
        let ended = if mutant::is("finish_without_fence") {
            let jobs = claims.iter().filter_map(|claim| {
                let of_claim =
                    |row: &&JobRow| [row.claim_id, row.last_claim_id].contains(&Some(*claim));
                Some(ClaimOf {
                    claim_id: *claim,
                    job_id: self.rows.iter().find(of_claim)?.id,
                })
            });
            faults::finish_unfenced(&mut self.conn, &jobs.collect::<Vec<_>>())?;
            claims
        } else if self.has_extras(picks) {
            let done = self.finish_with_extras(process, picks, finished, KeySlots::Free)?;
            done.accepted
        } else {
            finish::finish(&mut self.conn, process, &claims, finished, KeySlots::Free)?
        };
        Ok(Answer::Ended(self.claim_numbers(ended)))
    }

    pub fn end(
        &mut self,
        by: By,
        pick: Which,
        end: Option<End>,
        keep: bool,
        last: LastRetry,
    ) -> QueryResult<Answer> {
        let process = self.owner(by, &[pick]);
        let ending = match end {
            Some(end) => ending(end),
            None => self.judged(pick)?,
        };
        let claim = ClaimEnd {
            claim_id: self.claims(&[pick]).first().copied().unwrap_or(NOBODY),
            ending: &ending,
            ran: Duration::ZERO,
            last_retry: match last {
                LastRetry::None => None,
                LastRetry::Passed => day(2001),
                LastRetry::Far => day(2999),
            },
        };
        let finished = if keep {
            FinishedRow::Keep
        } else {
            FinishedRow::Delete
        };
        let mut done = end::end_all(&mut self.conn, process, &[claim], finished)?;
        Ok(Answer::EndedAs(done.pop().map(|done| match done.ending {
            Ending::Fail(_) => End::Fail,
            Ending::Retry(_, delay) => End::Retry(seconds(delay)),
            Ending::Discard(_) | Ending::Expire(_) => End::Discard,
            Ending::Cancel(_) => End::Cancel,
            Ending::Snooze(delay) | Ending::RateLimited(delay) => End::Snooze(seconds(delay)),
            Ending::Park(_) | Ending::GiveBack { .. } => unreachable!("no such end was asked for"),
            Ending::Release(..) => End::Release,
        })))
    }

    /// Returns the ending that the stored policy of a job gives an error.
    fn judged(&mut self, pick: Which) -> QueryResult<Ending> {
        let job = self
            .before
            .claim(pick)
            .map_or(NOBODY, |claim| self.ids.jobs[self.before.claims[claim].job]);
        let text = "SELECT policy, at_most_once, attempts FROM solid_queue_jobs WHERE id = $1";
        let row: Option<StoredColumns> = Statement::new(text)
            .uncached()
            .bind(job)
            .get_result(&mut self.conn)
            .optional()?;
        let backoff = Backoff::Fixed(Duration::from_secs(RETRY_AFTER.into()));
        let of_type = Policy::new().max_attempts(MAX_ATTEMPTS).backoff(backoff);
        Ok(row.map_or(ending(End::Fail), |row| {
            let stored = Policy::of_columns(row.policy.as_deref(), None, row.at_most_once);
            let attempt = u32::try_from(row.attempts).unwrap() + 1;
            let mut error = JobError::from("as told");
            error.kind = "test".to_owned();
            stored.or(&of_type).judge(attempt, &error, None)
        }))
    }

    pub fn decide(&mut self, pick: Which, end: End) -> Answer {
        if let Some(claim) = self.claims(&[pick]).first() {
            let verdict = serde_json::to_string(&ending(end)).unwrap();
            let text = format!(
                "UPDATE solid_queue_claimed_executions SET verdict = '{verdict}' WHERE id = {claim}"
            );
            execute(&mut self.conn, &text);
        }
        Answer::Nothing
    }

    pub fn release(&mut self, by: By, picks: &[Which], delay: Option<u16>) -> QueryResult<Answer> {
        let (process, claims) = (self.owner(by, picks), self.claims(picks));
        let delay = delay.map(|delay| Duration::from_secs(delay.into()));
        let ended = end::release(&mut self.conn, process, &claims, delay)?;
        if mutant::is("release_leaves_the_claim") {
            for claim in &ended {
                leave(&mut self.conn, process, *claim);
            }
        }
        Ok(Answer::Ended(self.claim_numbers(ended)))
    }

    pub fn prune(&mut self, process: Which, sight: Sight, is_crash: bool) -> QueryResult<Answer> {
        let number = self.before.process(process);
        let beats = number.map_or(0, |number| self.before.processes[number].heartbeat_seq);
        let seen = match sight {
            Sight::Certain => None,
            Sight::Fresh => Some(beats),
            Sight::Stale => Some(beats - 1),
        };
        let how = "was killed by signal 9".to_owned();
        let id = self.process(process);
        let death = Death { is_crash, how };
        let recovered = match seen {
            Some(_) if mutant::is("prune_from_stale_snapshot") => {
                Some(faults::prune_stale(&mut self.conn, id, &death)?)
            }
            _ => prune::prune(&mut self.conn, id, seen, &death)?,
        };
        Ok(Answer::Recovered(recovered.map(|all| {
            // To the reference, both have ended without having failed.
            let discarded = all.discarded.iter().map(|job| job.0);
            let ended = all.cancelled.iter().copied().chain(discarded).collect();
            [all.released, all.delayed, all.failed, ended].map(|jobs| self.job_numbers(jobs))
        })))
    }

    pub fn reconcile(&mut self, process: Which, memory: u8) -> QueryResult<Answer> {
        let process = self.process(process);
        let ids = &mut self.ids;
        let mut held: Vec<(usize, usize)> = claimed::held_by(&mut self.conn, process)?
            .into_iter()
            .map(|held| {
                let claim = number(&mut ids.claims, held.claim_id);
                (claim, number(&mut ids.jobs, held.job_id))
            })
            .collect();
        held.sort_unstable();
        let lost: Vec<i64> = forgotten(&held, memory)
            .map(|claim| ids.claims[claim])
            .collect();
        let ended = end::release(&mut self.conn, process, &lost, None)?;
        Ok(Answer::Reconciled(held, self.claim_numbers(ended)))
    }

    pub fn ended(&mut self, picks: &[Which]) -> QueryResult<Answer> {
        let claims = self.before.picked(picks).into_iter();
        let pairs: Vec<ClaimOf> = claims
            .map(|claim| ClaimOf {
                claim_id: self.ids.claims[claim],
                job_id: self.ids.jobs[self.before.claims[claim].job],
            })
            .collect();
        let ended = jobs::ended_claims(&mut self.conn, &pairs)?;
        Ok(Answer::Ended(self.claim_numbers(ended)))
    }
}

#[derive(QueryableByName)]
struct StoredColumns {
    #[diesel(sql_type = Nullable<Text>)]
    policy: Option<String>,
    #[diesel(sql_type = Bool)]
    at_most_once: bool,
    #[diesel(sql_type = Integer)]
    attempts: i32,
}

/// A fault: the claim stands where it stood before it was released.
fn leave(conn: &mut Conn<'_>, process: i64, claim: i64) {
    let text = format!(
        "DELETE FROM audit WHERE id = {claim}; \
         INSERT INTO solid_queue_claimed_executions (id, job_id, process_id, created_at) \
         SELECT {claim}, id, {process}, created_at FROM solid_queue_jobs WHERE last_claim_id = {claim}"
    );
    execute(conn, &text);
}

fn ending(end: End) -> Ending {
    let failure = || JobFailure::new("test", "as told");
    match end {
        End::Fail => Ending::Fail(failure()),
        End::Retry(delay) => Ending::Retry(failure(), Duration::from_secs(delay.into())),
        End::Discard => Ending::Discard(failure()),
        End::Cancel => Ending::Cancel(failure()),
        End::Snooze(delay) => Ending::Snooze(Duration::from_secs(delay.into())),
        End::Release => Ending::Release("as told".to_owned(), None),
    }
}

fn seconds(delay: Duration) -> u16 {
    u16::try_from(delay.as_secs()).unwrap()
}
