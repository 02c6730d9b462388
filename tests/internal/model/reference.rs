//! The answers and changes of every transition, in plain memory.

use crate::db::internal_tests::model::limits;
use crate::db::internal_tests::model::look::Seen;
use crate::db::internal_tests::model::state::{Claim, Due, Job, Model, Place, Process, forgotten};
use crate::db::internal_tests::model::step::{By, End, LastRetry, New, Next, Sight, Step, Which};
use crate::db::transition::operate::edit::EditOutcome;
use crate::job::policy::Delivery;
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Nothing,
    Process(usize),
    Is(bool),
    /// Claims that the process is asked to end; nothing when it was pruned.
    Beat(Option<BTreeSet<usize>>),
    Count(usize),
    /// The job of each enqueue, and whether it is new.
    Jobs(Vec<(usize, bool)>),
    Unregistered,
    /// Claims and their jobs, the most important first.
    Held(Vec<(usize, usize)>),
    Ended(BTreeSet<usize>),
    /// Claims that have ended, and those in their place.
    EndedAndHeld(BTreeSet<usize>, Vec<(usize, usize)>),
    /// The end of a claim; `None` if it was fenced.
    EndedAs(Option<End>),
    /// Jobs released, delayed, failed and cancelled.
    Recovered(Option<[BTreeSet<usize>; 4]>),
    /// Jobs moved, and jobs of which more must be said.
    Moved(BTreeSet<usize>, BTreeSet<usize>),
    Reconciled(Vec<(usize, usize)>, BTreeSet<usize>),
    Edited(EditOutcome),
    Seen(Box<Seen>),
}

impl Model {
    pub fn apply(&mut self, step: &Step) -> Answer {
        let answer = self.take_step(step);
        self.notice();
        answer
    }

    /// Takes ended jobs out of their batches, and asks that those that wait for them are notified.
    fn notice(&mut self) {
        self.leave_batches();
        self.notice_ends();
    }

    /// Gives free slots to blocked jobs, and handles what was asked before.
    fn promote_all(&mut self) -> Answer {
        let asked = std::mem::take(&mut self.asked);
        let answer = self.promote();
        // The jobs that it discards are noticed at once only if that was asked for before.
        self.notice();
        self.complete(&asked.batches);
        self.note_ends(&asked.jobs);
        let unwanted = self.admit(&asked.children);
        self.wake(&asked.waits, &asked.events);
        match answer {
            Answer::Moved(ready, mut discarded) => {
                discarded.extend(unwanted);
                Answer::Moved(ready, discarded)
            }
            other => other,
        }
    }

    fn take_step(&mut self, step: &Step) -> Answer {
        match step {
            Step::Register => self.register(),
            Step::Heartbeat {
                process,
                right_name,
            } => self.beat(*process, *right_name),
            Step::Drain { process } => self.drain(*process),
            Step::Deregister { process } => Answer::Is(self.deregister(*process)),
            Step::Enqueue(new) => Answer::Jobs(vec![self.enqueue(new)]),
            Step::EnqueueAll { jobs, roll_back } if !roll_back => {
                Answer::Jobs(jobs.iter().map(|new| self.enqueue(new)).collect())
            }
            Step::Listen { .. } | Step::EnqueueAll { .. } => Answer::Nothing,
            Step::MakeDue { job, rank } => self.make_due(*job, *rank),
            Step::Dispatch { batch } => self.dispatch(*batch),
            Step::Promote => self.promote_all(),
            Step::EnqueueBatch {
                members,
                follows,
                retries,
                inner,
            } => self.enqueue_batch(members, follows, *retries, inner.as_deref()),
            Step::EnqueueAfter {
                new,
                picks,
                on,
                retries,
            } => self.enqueue_after(new, picks, *on, *retries),
            Step::Park { by, claim, until } => self.park(*by, *claim, *until),
            Step::Join {
                by,
                claim,
                picks,
                parks,
            } => self.join(*by, *claim, picks, *parks),
            Step::Undo { by, claim, step } => self.undo(*by, *claim, *step),
            Step::Replace { job, new } => self.replace(*job, new),
            Step::Emit { event, payload } => self.emit(*event, *payload),
            Step::MakeLate { job } => self.make_late(*job),
            Step::TimeOut => self.time_out(),
            Step::ClearEvents => self.clear_events(),
            Step::AddToBatch { batch, members } => self.add_to_batch(*batch, members),
            Step::ClearBatches => self.clear_batches(),
            Step::Claim {
                process,
                queues,
                classes,
                limit,
            } => self.take(*process, queues.as_deref(), *classes, *limit),
            Step::Finish {
                by,
                claims,
                keep,
                next,
            } => self.finish(*by, claims, *keep, next.as_ref()),
            Step::End {
                by,
                claim,
                end,
                keep,
                last,
            } => self.end_one(*by, *claim, Some(*end), *keep, *last),
            Step::EndByError {
                by,
                claim,
                keep,
                last,
            } => self.end_one(*by, *claim, None, *keep, *last),
            Step::Decide { claim, end } => {
                if let Some(claim) = self.claim(*claim).filter(|claim| self.is_held(*claim)) {
                    self.claims[claim].verdict = Some(*end);
                }
                Answer::Nothing
            }
            Step::Move { jobs, what } => self.move_jobs(jobs, *what),
            Step::Clear { failed } => self.clear(*failed),
            Step::Release { by, claims, delay } => {
                let ended = self.end(*by, claims);
                self.release(&ended, delay.unwrap_or(0));
                Answer::Ended(ended)
            }
            Step::Prune {
                process,
                sight,
                crash,
            } => {
                let found = self.alive(*process).filter(|_| *sight != Sight::Stale);
                Answer::Recovered(found.map(|process| self.prune(process, *crash)))
            }
            Step::Pause { queue } => {
                self.paused.insert(*queue);
                Answer::Nothing
            }
            Step::Unpause { queue } => {
                self.paused.remove(queue);
                Answer::Nothing
            }
            Step::PauseClass { class } => Answer::Is(self.paused_classes.insert(*class)),
            Step::ResumeClass { class } => Answer::Is(self.paused_classes.remove(class)),
            Step::SetLimit { key, slots } => {
                self.limits.insert(*key, *slots);
                Answer::Nothing
            }
            Step::ClearLimit { key } => Answer::Is(self.limits.remove(key).is_some()),
            Step::Edit { job, arguments } => Answer::Edited(self.edit(*job, *arguments)),
            Step::Tag { jobs, add } => self.tag(jobs, *add),
            Step::Reconcile { process, memory } => self.reconcile(*process, *memory),
            Step::Ended { claims } => Answer::Ended(self.ended_by_owner(claims)),
            Step::Look => Answer::Seen(Box::new(self.look())),
        }
    }

    /// After the step was compared: what was scheduled is not due by itself.
    pub fn put_off(&mut self) -> bool {
        let mut parked = false;
        for job in &mut self.jobs {
            if let Place::Scheduled(due @ Due::In(_)) = &mut job.place {
                *due = Due::Far;
                parked = true;
            }
        }
        parked
    }

    fn register(&mut self) -> Answer {
        self.processes.push(Process {
            registered: true,
            heartbeat_seq: 0,
            draining: false,
        });
        Answer::Process(self.processes.len() - 1)
    }

    fn beat(&mut self, process: Which, right_name: bool) -> Answer {
        let Some(process) = self.alive(process).filter(|_| right_name) else {
            return Answer::Beat(None);
        };
        self.processes[process].heartbeat_seq += 1;
        let mut claims = self.held_by(process);
        claims.retain(|(claim, _)| self.claims[*claim].cancelled);
        Answer::Beat(Some(claims.into_iter().map(|(claim, _)| claim).collect()))
    }

    fn drain(&mut self, process: Which) -> Answer {
        if let Some(process) = self.alive(process) {
            self.processes[process].draining = true;
        }
        Answer::Nothing
    }

    fn deregister(&mut self, process: Which) -> bool {
        let idle = self.alive(process);
        let Some(process) = idle.filter(|process| self.held_by(*process).is_empty()) else {
            return false;
        };
        self.processes[process].registered = false;
        true
    }

    pub fn enqueue(&mut self, new: &New) -> (usize, bool) {
        let has_key =
            |job: &Job| new.key.is_some() && job.new.key == new.key && job.place != Place::Gone;
        if let Some(job) = self.jobs.iter().position(has_key) {
            return (job, false);
        }
        if let Some(job) = self.holder(new.name) {
            return (job, false);
        }
        self.jobs.push(Job::new(new));
        let number = self.jobs.len() - 1;
        self.enter(number);
        (number, true)
    }

    /// Returns the job that holds a unique id: one that waits or runs.
    pub fn holder(&self, name: Option<u8>) -> Option<usize> {
        let holds = |job: &Job| {
            name.is_some()
                && job.new.name == name
                && matches!(
                    job.place,
                    Place::Ready
                        | Place::Blocked { .. }
                        | Place::Scheduled(_)
                        | Place::Claimed(_)
                        | Place::Waits
                        | Place::Awaits { .. }
                )
        };
        self.jobs.iter().position(holds)
    }

    fn make_due(&mut self, job: u8, rank: u8) -> Answer {
        if let Some(job) = self.scheduled(job) {
            self.jobs[job].place = Place::Scheduled(Due::Already(rank));
        }
        Answer::Nothing
    }

    fn dispatch(&mut self, batch: usize) -> Answer {
        let jobs = self.jobs.iter().enumerate();
        let mut due: Vec<_> = jobs
            .filter_map(|(number, job)| match job.place {
                Place::Scheduled(Due::Already(rank)) => Some((rank, job.new.priority, number)),
                _ => None,
            })
            .collect();
        due.sort_unstable();
        due.truncate(batch);
        for (_, _, job) in &due {
            self.jobs[*job].place = Place::Ready;
            self.enter(*job);
        }
        Answer::Count(due.len())
    }

    /// A job that came to be ready, and holds no slot yet.
    pub fn enter(&mut self, number: usize) {
        let job = &mut self.jobs[number];
        if job.place == Place::Ready {
            job.place = limits::enter(job);
        }
    }

    fn take(&mut self, process: Which, queues: Option<&[u8]>, classes: u8, limit: usize) -> Answer {
        let alive = self.alive(process);
        let Some(process) = alive.filter(|process| !self.processes[*process].draining) else {
            return Answer::Unregistered;
        };
        let place = |queue: u8| match queues {
            None => Some(0),
            Some(queues) => queues.iter().position(|name| *name == queue),
        };
        let jobs = self.jobs.iter().enumerate();
        let mut ready: Vec<_> = jobs
            .filter(|(_, job)| job.place == Place::Ready && self.is_open(classes, job.new.class))
            .filter(|(_, job)| !self.paused.contains(&job.new.queue))
            .filter_map(|(number, job)| Some((place(job.new.queue)?, job.new.priority, number)))
            .collect();
        ready.sort_unstable();
        ready.truncate(limit);
        let mut held = Vec::new();
        for (_, _, job) in ready {
            held.push((self.claims.len(), job));
            self.jobs[job].place = Place::Claimed(self.claims.len());
            self.claims.push(Claim {
                job,
                process,
                cancelled: false,
                is_next: false,
                verdict: None,
            });
        }
        Answer::Held(held)
    }

    /// The fence: those of the claims that are current and held by `by`.
    pub fn end(&self, by: By, claims: &[Which]) -> BTreeSet<usize> {
        let owner = self.owner(by, claims);
        self.picked(claims)
            .into_iter()
            .filter(|claim| self.is_held(*claim) && Some(self.claims[*claim].process) == owner)
            .collect()
    }

    fn finish(&mut self, by: By, claims: &[Which], keep: bool, next: Option<&Next>) -> Answer {
        let owner = self.owner(by, claims);
        let ended = self.end(by, claims);
        for claim in &ended {
            let job = self.job_of(*claim);
            job.place = if keep { Place::Finished } else { Place::Gone };
            (job.crash_count, job.last_claim) = (0, Some(*claim));
        }
        match (next, owner) {
            (None, _) => Answer::Ended(ended),
            (Some(_), None) => Answer::EndedAndHeld(ended, Vec::new()),
            (Some(next), Some(process)) => {
                let held = self.take_next(process, &ended, next);
                Answer::EndedAndHeld(ended, held)
            }
        }
    }

    /// Ends a claim, or has the policy of its job decide how.
    fn end_one(
        &mut self,
        by: By,
        claim: Which,
        end: Option<End>,
        keep: bool,
        last: LastRetry,
    ) -> Answer {
        let Some(claim) = self.end(by, &[claim]).first().copied() else {
            return Answer::EndedAs(None);
        };
        let job = self.job_of(claim);
        let is_tried_again =
            job.new.delivery != Delivery::AtMostOnce && job.attempts + 1 < MAX_ATTEMPTS as i32;
        let end = match end {
            _ if self.claims[claim].cancelled => End::Cancel,
            Some(End::Retry(_)) if last == LastRetry::Passed => End::Fail,
            Some(end) => end,
            None if is_tried_again && last != LastRetry::Passed => End::Retry(RETRY_AFTER),
            None => End::Fail,
        };
        self.follow(claim, end, true, keep);
        Answer::EndedAs(Some(end))
    }

    /// Applies the end of a claim to its job.
    pub fn follow(&mut self, claim: usize, end: End, by_owner: bool, keep: bool) {
        let job = self.job_of(claim);
        job.place = match end {
            End::Fail => Place::Failed("test"),
            End::Retry(delay) | End::Snooze(delay) => waiting(delay),
            End::Release => waiting(0),
            End::Discard | End::Cancel if keep => Place::Finished,
            End::Discard | End::Cancel => Place::Gone,
        };
        job.is_cancelled = end == End::Cancel;
        job.is_discarded = end == End::Discard;
        let is_over = matches!(end, End::Fail | End::Discard | End::Cancel);
        job.has_result |= is_over && (job.new.name.is_some() || job.place == Place::Gone);
        job.keeps_place = true;
        if by_owner {
            job.last_claim = Some(claim);
        }
        if !matches!(end, End::Snooze(_) | End::Release) {
            job.attempts += 1;
        }
        job.attempts_kept += i64::from(!matches!(end, End::Snooze(_)));
    }

    fn release(&mut self, claims: &BTreeSet<usize>, delay: u16) {
        for claim in claims {
            if self.claims[*claim].cancelled {
                self.follow(*claim, End::Cancel, true, true);
                // It never ran.
                self.job_of(*claim).attempts -= 1;
            } else {
                self.follow(*claim, End::Snooze(delay), true, true);
            }
        }
    }

    fn prune(&mut self, process: usize, crash: bool) -> [BTreeSet<usize>; 4] {
        let mut recovered: [BTreeSet<usize>; 4] = Default::default();
        for (claim, job) in self.held_by(process) {
            let cancel = self.claims[claim].cancelled.then_some(End::Cancel);
            let outcome = match cancel.or(self.claims[claim].verdict) {
                None => self.interrupt(job, crash, !self.claims[claim].is_next),
                Some(end) => {
                    self.follow(claim, end, false, true);
                    match end {
                        End::Release => 0,
                        End::Retry(_) | End::Snooze(_) => 1,
                        End::Fail => 2,
                        End::Discard | End::Cancel => 3,
                    }
                }
            };
            recovered[outcome].insert(job);
        }
        self.processes[process].registered = false;
        recovered
    }

    /// One that was claimed ahead may not have run.
    fn interrupt(&mut self, job: usize, crash: bool, ran: bool) -> usize {
        let job = &mut self.jobs[job];
        let crash = crash && ran;
        job.crash_count += i32::from(crash);
        let is_once = job.new.delivery != Delivery::AtLeastOnce;
        let (place, outcome) = if is_once {
            (Place::Failed("outcome_unknown"), 2)
        } else if job.crash_count > job.new.max_crashes.unwrap_or(3) {
            (Place::Failed("crashed"), 2)
        } else if crash && job.crash_count >= 2 {
            let delay = (5 << job.crash_count.min(8)).min(600);
            (Place::Scheduled(Due::In(delay)), 1)
        } else {
            (Place::Ready, 0)
        };
        job.place = place;
        job.keeps_place = true;
        job.has_result |= outcome == 2 && job.new.name.is_some();
        job.attempts += i32::from(is_once && !crash);
        job.attempts_kept += i64::from(ran || outcome == 2);
        outcome
    }

    fn reconcile(&mut self, process: Which, memory: u8) -> Answer {
        let process = self.process(process);
        let held = process.map_or_else(Vec::new, |process| self.held_by(process));
        let lost: BTreeSet<usize> = forgotten(&held, memory).collect();
        self.release(&lost, 0);
        Answer::Reconciled(held, lost)
    }

    fn ended_by_owner(&self, claims: &[Which]) -> BTreeSet<usize> {
        let mut ended = self.picked(claims);
        ended.retain(|claim| {
            let job = &self.jobs[self.claims[*claim].job];
            job.last_claim == Some(*claim) && job.place != Place::Gone
        });
        ended.into_iter().collect()
    }
}

/// The most attempts of a job that returns errors.
pub const MAX_ATTEMPTS: u32 = 3;

/// Seconds between them.
pub const RETRY_AFTER: u16 = 2_000;

/// Returns the place of a job that may run after so many seconds.
pub fn waiting(seconds: u16) -> Place {
    match seconds {
        0 => Place::Ready,
        _ => Place::Scheduled(Due::In(u32::from(seconds))),
    }
}
