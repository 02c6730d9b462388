//! Writes down how jobs ended, in batches that form while the last one is
//! under way, and keeps what it cannot write until it can. A claim that another
//! transaction has locked is passed over and tried again alone.

use crate::db::model::claim::{Claimed, Finished};
use crate::db::model::outcome::{End, Ending};
use crate::db::table::jobs;
use crate::db::transition::{finish, release};
use crate::db::{Conn, Refusal, briefly};
use crate::event::events::Event;
use crate::event::subscriber::Subscriber;
use crate::job::id::JobId;
use crate::job::perform::Outcome;
use crate::process::base::context::Lifeline;
use crate::process::base::session::Link;
use crate::process::base::stop::Stop;
use crate::process::worker::completion::{self, Ended, Pending, fence, grouped};
use crate::process::worker::in_flight::Claims;
use crate::{clock, mutant};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use diesel::QueryResult;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// Until when no lock is waited for longer than a moment: others hold some.
    brief_until: Option<Instant>,
}

/// For how long after a lock that was not to be had.
const BRIEF: Duration = Duration::from_secs(10);

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
            brief_until: None,
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
                    batch.extend(std::iter::once(first).chain(more).map(completion::pending));
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
        loop {
            let delay = match self.try_write(&group) {
                Ok(busy) if busy.is_empty() => return,
                Ok(busy) => return self.pass_over(group, &busy),
                Err(delay) => delay,
            };
            let refusal = self.link.refusal();
            group.iter_mut().for_each(|pending| pending.tries += 1);
            if refusal == Some(Refusal::Busy) {
                self.brief_until = Some(clock::deadline(BRIEF));
            }
            // A full disk refuses all alike at first, but what is small may fit.
            let is_lasting = group.first().is_some_and(|pending| pending.tries > 3);
            if (!self.link.is_in_trouble() || is_lasting) && self.link.is_well() {
                if group.len() > 1 {
                    let rest = group.split_off(group.len() / 2);
                    self.write(group);
                    self.write(rest);
                } else {
                    for pending in group {
                        self.put_aside(pending, refusal);
                    }
                }
                return;
            }
            let most = if self.stop.is_stopped() { HASTE } else { delay };
            if self.give_up.wait(delay.min(most)) {
                return;
            }
        }
    }

    /// The claims that another transaction has locked are tried again later.
    fn pass_over(&mut self, group: Vec<Pending>, busy: &[i64]) {
        let count = busy.len();
        self.link.complain(
            "end some claims",
            &format!("{count} of them are locked by other transactions"),
        );
        let busy = group
            .into_iter()
            .filter(|pending| busy.contains(&pending.claim()));
        self.deferred.extend(busy.map(completion::put_aside));
    }

    /// Tried again later too, and without its text if that is what is refused:
    /// if all is accepted but for the text. What others hold or what is full
    /// at present costs no text.
    fn put_aside(&mut self, mut pending: Pending, refusal: Option<Refusal>) {
        if refusal == Some(Refusal::Content) && pending.was_refused() {
            let mut without = pending.ended.outcome.clone();
            completion::drop_text(&mut without);
            let ended = &pending.ended;
            let mut refuses = |outcome: &Outcome| {
                self.link
                    .would_refuse(|conn| completion::write(conn, ended, outcome))
            };
            let is_the_text =
                refuses(&without).is_none() && refuses(&ended.outcome) == Some(Refusal::Content);
            if is_the_text {
                pending.ended.outcome = without;
            }
        }
        self.deferred.push(completion::put_aside(pending));
    }

    /// Whether no lock is to be waited for long.
    fn is_brief(&self, group: &[Pending]) -> bool {
        let met = self.brief_until.is_some_and(|at| clock::instant() < at);
        met || group.iter().any(|pending| pending.tries > 0)
    }

    /// Returns the claims that another transaction has locked.
    fn try_write(&mut self, group: &[Pending]) -> Result<Vec<i64>, Duration> {
        let Some(first) = group.first() else {
            return Ok(Vec::new());
        };
        let busy = match &first.ended.outcome {
            Outcome::Finished(_) => self.finish(group)?,
            Outcome::Ended(_) => self.end(group)?,
            Outcome::UnknownClass => {
                self.leave(first)?;
                Vec::new()
            }
        };
        // A slot is free. Whoever comes by would see to it, but we are here.
        if first.ended.job.is_limited {
            self.link.promote();
        }
        Ok(busy)
    }

    fn finish(&mut self, group: &[Pending]) -> Result<Vec<i64>, Duration> {
        let Some(kind) = group.first().map(completion::kind) else {
            return Ok(Vec::new());
        };
        let is_brief = self.is_brief(group);
        let (process_id, how) = (kind.process_id, (kind.finished, kind.is_limited));
        let claims: Vec<i64> = group.iter().map(Pending::claim).collect();
        let pairs: Vec<(i64, i64)> = group.iter().map(Pending::pair).collect();
        let repeated = group
            .iter()
            .any(|pending| pending.tries > 0 || pending.ended.live.ends_itself());
        let work = |conn: &mut Conn<'_>| {
            if mutant::is("finish_without_fence") {
                finish::finish_unfenced(conn, &pairs)?;
                return Ok((claims.clone(), Vec::new()));
            }
            let written = if kind.leaves_traces {
                let traces = group.iter().filter_map(|pending| pending.ended.traces());
                finish::finish_and_keep_free(conn, process_id, traces.collect(), how)?
            } else {
                finish::finish_free(conn, process_id, &claims, how)?
            };
            let mut accepted = written.accepted;
            if repeated {
                accepted.extend(already_ended(conn, &pairs, &accepted)?);
            }
            if repeated && kind.finished == Finished::Delete {
                accepted.extend(jobs::claims_without_job(conn, &pairs)?);
            }
            Ok((accepted, written.busy))
        };
        let (accepted, busy) = self
            .link
            .write("finish jobs", |conn| briefly(conn, is_brief, work))?;
        let accepted: HashSet<i64> = accepted.into_iter().collect();
        self.settle(group, &busy);
        for Pending { ended, .. } in group {
            let claim = ended.job.claim_id;
            if accepted.contains(&claim) {
                self.report_finished(ended);
            } else if !busy.contains(&claim) {
                self.fenced(&ended.job);
            }
        }
        Ok(busy)
    }

    /// Holds those claims no longer that are not to be tried again.
    fn settle(&self, group: &[Pending], busy: &[i64]) {
        let claims = group.iter().map(Pending::claim);
        let settled: Vec<i64> = claims.filter(|claim| !busy.contains(claim)).collect();
        self.claims.remove(&settled);
    }

    fn end(&mut self, group: &[Pending]) -> Result<Vec<i64>, Duration> {
        let Some(kind) = group.first().map(completion::kind) else {
            return Ok(Vec::new());
        };
        let is_brief = self.is_brief(group);
        let ends: Vec<End<'_>> = group.iter().filter_map(Pending::end).collect();
        let work = |conn: &mut Conn<'_>| {
            let (done, busy) = finish::end_free(conn, kind.process_id, &ends, kind.finished)?;
            let mut done: HashMap<i64, Ending> = done.into_iter().collect();
            let settle = |pending: &Pending| {
                Ok(match (done.remove(&pending.claim()), pending.end()) {
                    (Some(ending), _) => Settled::Ended(ending),
                    _ if busy.contains(&pending.claim()) => Settled::Busy,
                    _ if finished_itself(conn, pending)? => Settled::Finished,
                    (_, Some((_, ending, _))) if was_accepted(conn, pending)? => {
                        Settled::Ended(ending.clone())
                    }
                    _ => Settled::Fenced,
                })
            };
            let settled = group.iter().map(settle).collect::<QueryResult<Vec<_>>>()?;
            Ok((settled, busy))
        };
        let (settled, busy) = self
            .link
            .write("end jobs", |conn| briefly(conn, is_brief, work))?;
        // Before they are removed: a stop looks at both.
        for (Pending { ended, .. }, settled) in group.iter().zip(&settled) {
            if ended.live.is_cut_short() && settled.is_cut_short() {
                self.claims.note_cut_short(ended.job.job_id);
            }
        }
        self.settle(group, &busy);
        let mut released: BTreeMap<String, usize> = BTreeMap::new();
        for (Pending { ended, .. }, settled) in group.iter().zip(settled) {
            match settled {
                Settled::Ended(Ending::Release(why)) => *released.entry(why).or_default() += 1,
                Settled::Ended(ending) => self.report(ended, &ending),
                Settled::Finished => self.report_finished(ended),
                Settled::Fenced => self.fenced(&ended.job),
                Settled::Busy => {}
            }
        }
        for (why, count) in &released {
            self.subscriber
                .emit(&Event::Released { count: *count, why });
        }
        Ok(busy)
    }

    /// A class that is not known here is left to others.
    fn leave(&mut self, pending: &Pending) -> Result<(), Duration> {
        let fence = fence(&pending.ended);
        let delay = Some(clock::jittered(UNKNOWN_CLASS_DELAY));
        let is_brief = self.is_brief(std::slice::from_ref(pending));
        let work = |conn: &mut Conn<'_>| {
            let released = release::release(conn, fence.process_id, &[fence.claim_id], delay)?;
            Ok(!released.is_empty() || was_accepted(conn, pending)?)
        };
        let accepted = self
            .link
            .write("release a job", |conn| briefly(conn, is_brief, work))?;
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
    /// Another transaction has locked the claim.
    Busy,
}

impl Settled {
    /// Whether a run that was interrupted has ended so, and in no other way.
    fn is_cut_short(&self) -> bool {
        matches!(self, Settled::Ended(Ending::Release(_) | Ending::Fail(_)))
    }
}

/// Whether an earlier attempt got through, unheard.
fn was_accepted(conn: &mut Conn<'_>, pending: &Pending) -> QueryResult<bool> {
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
fn finished_itself(conn: &mut Conn<'_>, pending: &Pending) -> QueryResult<bool> {
    Ok(pending.ended.live.ends_itself() && jobs::ended_by_owner(conn, pending.pair())?)
}

/// Of the claims that were not accepted, those that were ended by ourselves
/// before, in a transaction whose COMMIT got no answer.
fn already_ended(
    conn: &mut Conn<'_>,
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
