//! Writes down how jobs ended, in batches that form while the last one is
//! under way, and keeps what it cannot write until it can.

use super::claims::Claims;
use super::endings::{Ended, Pending, fence, grouped, kind, pending, put_aside};
use super::lifeline::Lifeline;
use super::link::Link;
use super::stop::Stop;
use crate::clock;
use crate::db::attempts::{self, End, Ending};
use crate::db::claimed::{self, Finished};
use crate::db::jobs;
use crate::db::ready::Claimed;
use crate::event::{Event, Subscriber};
use crate::job::JobId;
use crate::mutant;
use crate::perform::Outcome;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use diesel::QueryResult;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Endings of one statement.
const BATCH: usize = 500;

/// How long a class that this worker does not know is left to others.
const UNKNOWN_CLASS_DELAY: Duration = Duration::from_secs(30);

/// While the process stops, the longest pause before a database that is away is
/// tried again.
const HASTE: Duration = Duration::from_millis(200);

/// The finisher of a worker.
pub(crate) struct Finisher {
    ended: Receiver<Ended>,
    claims: Arc<Claims>,
    link: Link,
    subscriber: Subscriber,
    /// The process stops, and has little time left for another attempt.
    stop: Stop,
    /// Gives up what cannot be written: the process ends.
    give_up: Stop,
    deferred: Vec<Pending>,
}

impl Finisher {
    pub(crate) fn new(lifeline: &Lifeline, claims: &Arc<Claims>, ended: Receiver<Ended>) -> Self {
        Finisher {
            ended,
            claims: Arc::clone(claims),
            link: Link::new(lifeline),
            subscriber: lifeline.subscriber.clone(),
            stop: lifeline.stop.clone(),
            give_up: lifeline.give_up_writing.clone(),
            deferred: Vec::new(),
        }
    }

    /// Runs until every job thread has ended and everything is written.
    pub(crate) fn run(mut self) {
        while !self.give_up.is_stopped() {
            let due = self.deferred.iter().map(|pending| pending.again_at).min();
            let first = match due {
                None => self
                    .ended
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => self.ended.recv_deadline(due),
            };
            let mut batch = self.take_due();
            match first {
                Ok(first) => {
                    let more = self.ended.try_iter().take(BATCH - 1);
                    batch.extend(std::iter::once(first).chain(more).map(pending));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let Some(due) = due else { return };
                    if batch.is_empty() {
                        let pause = due.saturating_duration_since(clock::instant());
                        self.give_up.wait(pause);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            for group in grouped(batch) {
                self.write(group);
            }
        }
    }

    fn take_due(&mut self) -> Vec<Pending> {
        let now = clock::instant();
        let all = std::mem::take(&mut self.deferred);
        let (due, later) = all.into_iter().partition(|pending| pending.again_at <= now);
        self.deferred = later;
        due
    }

    /// Writes endings of one kind. While the database is away they wait
    /// together; when it answers and yet refuses them, they are halved until
    /// the one that it refuses stands alone and is put aside: a bad row must
    /// not hold up another.
    fn write(&mut self, mut group: Vec<Pending>) {
        while let Err(delay) = self.try_write(&group) {
            group.iter_mut().for_each(|pending| pending.tries += 1);
            if self.link.is_well() {
                if group.len() > 1 {
                    let rest = group.split_off(group.len() / 2);
                    self.write(group);
                    self.write(rest);
                } else {
                    self.deferred.extend(group.into_iter().map(put_aside));
                }
                return;
            }
            let most = if self.stop.is_stopped() { HASTE } else { delay };
            if self.give_up.wait(delay.min(most)) {
                return;
            }
        }
    }

    fn try_write(&mut self, group: &[Pending]) -> Result<(), Duration> {
        let Some(first) = group.first() else {
            return Ok(());
        };
        match &first.ended.outcome {
            Outcome::Finished(_) => self.finish(group)?,
            Outcome::Ended(_) => self.end(group)?,
            Outcome::UnknownClass => self.leave(first)?,
        }
        // A slot is free. Whoever comes by would see to it, but we are here.
        if first.ended.job.is_limited {
            self.link.promote();
        }
        Ok(())
    }

    fn finish(&mut self, group: &[Pending]) -> Result<(), Duration> {
        let Some(kind) = group.first().map(kind) else {
            return Ok(());
        };
        let (process_id, how) = (kind.process_id, (kind.finished, kind.is_limited));
        let claims: Vec<i64> = group.iter().map(Pending::claim).collect();
        let pairs: Vec<(i64, i64)> = group.iter().map(Pending::pair).collect();
        let repeated = group
            .iter()
            .any(|pending| pending.tries > 0 || pending.ended.live.ends_itself());
        let accepted = self.link.write("finish jobs", |conn| {
            if mutant::is("finish_without_fence") {
                claimed::finish_unfenced(conn, &pairs)?;
                return Ok(claims.clone());
            }
            let mut accepted = if kind.leaves_traces {
                let traces = group.iter().filter_map(|pending| pending.ended.traces());
                claimed::finish_and_keep(conn, process_id, traces.collect(), how)?
            } else {
                claimed::finish(conn, process_id, &claims, how)?
            };
            if repeated {
                accepted.extend(already_ended(conn, &pairs, &accepted)?);
            }
            if repeated && kind.finished == Finished::Delete {
                accepted.extend(jobs::claims_without_job(conn, &pairs)?);
            }
            Ok(accepted)
        })?;
        self.claims.remove(&claims);
        let accepted: HashSet<i64> = accepted.into_iter().collect();
        for Pending { ended, .. } in group {
            if accepted.contains(&ended.job.claim_id) {
                self.report_finished(ended);
            } else {
                self.fenced(&ended.job);
            }
        }
        Ok(())
    }

    fn end(&mut self, group: &[Pending]) -> Result<(), Duration> {
        let Some(kind) = group.first().map(kind) else {
            return Ok(());
        };
        let ends: Vec<End<'_>> = group.iter().filter_map(Pending::end).collect();
        let settled = self.link.write("end jobs", |conn| {
            let done = attempts::end_all(conn, kind.process_id, &ends, kind.finished)?;
            let mut done: HashMap<i64, Ending> = done.into_iter().collect();
            let settle = |pending: &Pending| {
                Ok(match (done.remove(&pending.claim()), pending.end()) {
                    (Some(ending), _) => Settled::Ended(ending),
                    _ if finished_itself(conn, pending)? => Settled::Finished,
                    (_, Some((_, ending, _))) if was_accepted(conn, pending)? => {
                        Settled::Ended(ending.clone())
                    }
                    _ => Settled::Fenced,
                })
            };
            group.iter().map(settle).collect::<QueryResult<Vec<_>>>()
        })?;
        // Before they are removed: a stop looks at both.
        for (Pending { ended, .. }, settled) in group.iter().zip(&settled) {
            if ended.live.is_cut_short() && settled.is_cut_short() {
                self.claims.note_cut_short(ended.job.job_id);
            }
        }
        let claims: Vec<i64> = group.iter().map(Pending::claim).collect();
        self.claims.remove(&claims);
        let mut released: BTreeMap<String, usize> = BTreeMap::new();
        for (Pending { ended, .. }, settled) in group.iter().zip(settled) {
            match settled {
                Settled::Ended(Ending::Release(why)) => *released.entry(why).or_default() += 1,
                Settled::Ended(ending) => self.report(ended, &ending),
                Settled::Finished => self.report_finished(ended),
                Settled::Fenced => self.fenced(&ended.job),
            }
        }
        for (why, count) in &released {
            self.subscriber
                .emit(&Event::Released { count: *count, why });
        }
        Ok(())
    }

    /// A class that is not known here is left to others.
    fn leave(&mut self, pending: &Pending) -> Result<(), Duration> {
        let fence = fence(&pending.ended);
        let delay = Some(clock::jittered(UNKNOWN_CLASS_DELAY));
        let accepted = self.link.write("release a job", |conn| {
            let released = claimed::release(conn, fence.process_id, &[fence.claim_id], delay)?;
            Ok(!released.is_empty() || was_accepted(conn, pending)?)
        })?;
        self.claims.remove(&[fence.claim_id]);
        if accepted {
            self.subscriber.emit(&Event::Released {
                count: 1,
                why: "its class is not known here",
            });
        } else {
            self.fenced(&pending.ended.job);
        }
        Ok(())
    }

    fn report_finished(&self, ended: &Ended) {
        self.subscriber.emit(&Event::Finished {
            job: JobId(ended.job.job_id),
            class: &ended.job.class_name,
            ran: ended.ran,
        });
    }

    fn report(&self, ended: &Ended, ending: &Ending) {
        let (job, class) = (JobId(ended.job.job_id), &*ended.job.class_name);
        let ran = ended.ran;
        self.subscriber.emit(&match ending {
            Ending::Fail(failure) => Event::Failed {
                job,
                class,
                ran,
                kind: &failure.kind,
                message: &failure.message,
            },
            Ending::Retry(failure, delay) => Event::Retried {
                job,
                class,
                ran,
                kind: &failure.kind,
                message: &failure.message,
                delay: *delay,
            },
            Ending::Discard(failure) => Event::Discarded {
                job,
                class,
                kind: &failure.kind,
                message: &failure.message,
            },
            Ending::Cancel(_) => Event::Cancelled { job, class },
            Ending::Snooze(delay) => Event::Snoozed {
                job,
                class,
                delay: *delay,
            },
            // Many at once, and not of one job.
            Ending::Release(why) => Event::Released { count: 1, why },
        });
    }

    /// Not an error: the job was recovered and belongs to somebody else.
    fn fenced(&self, job: &Claimed) {
        self.subscriber.emit(&Event::Fenced {
            job: JobId(job.job_id),
            claim: job.claim_id,
        });
    }
}

/// How an ending came out that was no success.
enum Settled {
    Ended(Ending),
    /// The job had finished in a transaction of its own before.
    Finished,
    Fenced,
}

impl Settled {
    /// Whether a run that was interrupted has ended so, and in no other way.
    fn is_cut_short(&self) -> bool {
        matches!(self, Settled::Ended(Ending::Release(_) | Ending::Fail(_)))
    }
}

/// Whether an earlier attempt got through, unheard.
fn was_accepted(conn: &mut crate::db::Conn<'_>, pending: &Pending) -> QueryResult<bool> {
    if pending.tries == 0 {
        return Ok(false);
    }
    match pending.ended.finished {
        Finished::Keep => Ok(!already_ended(conn, &[pending.pair()], &[])?.is_empty()),
        Finished::Delete => jobs::ended_by_owner(conn, pending.pair()),
    }
}

/// Whether the job has ended its claim itself, and its transaction was
/// committed: the database knows, and the job's own word does not count then.
fn finished_itself(conn: &mut crate::db::Conn<'_>, pending: &Pending) -> QueryResult<bool> {
    Ok(pending.ended.live.ends_itself() && jobs::ended_by_owner(conn, pending.pair())?)
}

/// Of the claims that were not accepted, those that were ended by ourselves
/// before, in a transaction whose COMMIT got no answer.
fn already_ended(
    conn: &mut crate::db::Conn<'_>,
    pairs: &[(i64, i64)],
    accepted: &[i64],
) -> QueryResult<Vec<i64>> {
    let open: Vec<(i64, i64)> = pairs
        .iter()
        .filter(|(claim, _)| !accepted.contains(claim))
        .copied()
        .collect();
    if open.is_empty() {
        return Ok(Vec::new());
    }
    jobs::ended_claims(conn, &open)
}
