//! Applies the decisions about jobs whose runs did not finish, table by table, each table once for
//! all of them.
//!
//! The caller has ended the claims in the same transaction, so no other transaction changes the
//! rows of these jobs.

use crate::db::conn::connection::Conn;
use crate::db::model::claim::FinishedRow;
use crate::db::model::decision::{Destination, JobDecision};
use crate::db::model::history::contribution::Contribution;
use crate::db::model::history::tally::CountedEnd;
use crate::db::model::new_row::NewRow;
use crate::db::model::outcome::{JobFailure, NewResult, ParkUntil, ParkedStep, ResultOutcome};
use crate::db::table::attempts::{self, NewAttempt};
use crate::db::table::failed::{self, FailedJob};
use crate::db::table::flows::parents;
use crate::db::table::jobs::{self, EndedJob, JobUpdate};
use crate::db::table::scheduled::{self, DelayedJob};
use crate::db::table::{expiries, rates, ready, results, steps};
use crate::db::transition::{clear, enqueue, flows, runnable, unique};
use diesel::QueryResult;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Applies the decisions. A job that does not exist any more is skipped.
///
/// The caller counts what ended, if it is a worker that ends its own claims.
pub(crate) fn settle(conn: &mut Conn<'_>, decisions: &[JobDecision]) -> QueryResult<()> {
    apply(conn, decisions).map(drop)
}

/// Does the same, and returns what the history has to count.
pub(crate) fn settle_and_count(
    conn: &mut Conn<'_>,
    decisions: &[JobDecision],
) -> QueryResult<Contribution> {
    let jobs = apply(conn, decisions)?;
    let mut contribution = Contribution::default();
    for decision in decisions {
        if let (Some((outcome, _)), Some(job)) = (&decision.attempt, jobs.get(&decision.run.job_id))
        {
            let tally = contribution.tally(&job.queue_name, &job.class_name);
            if let Some(end) = CountedEnd::of_attempt(*outcome) {
                tally.add(end);
            }
        }
    }
    Ok(contribution)
}

/// Closes the rates of jobs to which the other side has said no.
fn close_rates(conn: &mut Conn<'_>, decisions: &[JobDecision]) -> QueryResult<()> {
    // In the order of all that close some, so that no two wait for each other.
    let mut closed = BTreeMap::new();
    for decision in decisions {
        if let Some(after) = decision.closes_rate
            && let Some(rate) = rates::of_job(conn, decision.run.job_id)?.into_iter().next()
        {
            let longest = closed.entry(rate.key).or_insert((rate.pace, after));
            longest.1 = longest.1.max(after);
        }
    }
    for (key, (pace, after)) in closed {
        rates::close(conn, &key, pace, after)?;
    }
    Ok(())
}

fn apply(conn: &mut Conn<'_>, decisions: &[JobDecision]) -> QueryResult<BTreeMap<i64, EndedJob>> {
    if decisions.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ids: Vec<i64> = decisions.iter().map(|one| one.run.job_id).collect();
    let jobs = jobs::ended(conn, &ids)?;
    let jobs: BTreeMap<i64, EndedJob> = jobs.into_iter().map(|job| (job.id, job)).collect();
    let mut decided: Vec<DecidedJob<'_>> = decisions
        .iter()
        .filter_map(|decision| {
            let job = jobs.get(&decision.run.job_id)?;
            Some(DecidedJob { job, decision })
        })
        .collect();
    decided.sort_by_key(|one| one.job.id);
    close_rates(conn, decisions)?;
    let waiting = WaitingAgain::of(&decided);
    scheduled::insert_each(conn, &waiting.later)?;
    // Before the failures, whose trigger locks the rows of their jobs only.
    jobs::update_ended(conn, &updates(&decided))?;
    failed::insert_failed(conn, &failures(&decided))?;
    // After the counts, as they determine whether a ready job is started with caution.
    waiting.enter(conn)?;
    keep_expiries(conn, &decided)?;
    let parked: Vec<&JobDecision> = decided.iter().map(|one| one.decision).collect();
    flows::wake::park(conn, &parked)?;
    attempts::record_attempts(conn, &new_attempts(&decided))?;
    end_jobs(conn, &decided)?;
    follow_up(conn, &decided)?;
    Ok(jobs)
}

/// Deletes the expiries of jobs that have ended, or have certainly started. Those of others that wait
/// again stay in force if they are still there: a worker that starts a job deletes its expiry before.
fn keep_expiries(conn: &mut Conn<'_>, decided: &[DecidedJob<'_>]) -> QueryResult<()> {
    let (mut released, mut obsolete) = (Vec::new(), Vec::new());
    for DecidedJob { job, decision } in decided.iter().filter(|one| one.job.may_expire()) {
        let waits = matches!(decision.destination, Destination::Wait(_));
        if !waits || decision.uses_attempt || decision.is_crash {
            obsolete.push(job.id);
        } else if decision.run.by_owner {
            released.push(job.id);
        }
    }
    expiries::note_released(conn, &released)?;
    expiries::remove(conn, &obsolete)
}

/// A job, and the decision about it.
#[derive(Debug, Clone, Copy)]
struct DecidedJob<'s> {
    job: &'s EndedJob,
    decision: &'s JobDecision,
}

/// Returns whether the job's row is deleted.
fn is_deleted(decision: &JobDecision) -> bool {
    matches!(decision.destination, Destination::Ended(..))
        && decision.run.finished == FinishedRow::Delete
}

fn updates(decided: &[DecidedJob<'_>]) -> Vec<JobUpdate> {
    let staying = decided.iter().filter(|one| !is_deleted(one.decision));
    staying
        .map(|DecidedJob { job, decision }| JobUpdate {
            id: job.id,
            uses_attempt: decision.uses_attempt,
            is_crash: decision.is_crash,
            last_claim: decision.last_claim(),
            is_finished: matches!(decision.destination, Destination::Ended(..)),
        })
        .filter(JobUpdate::is_any)
        .collect()
}

/// Jobs that wait again.
#[derive(Debug, Default)]
struct WaitingAgain {
    now: Vec<i64>,
    later: Vec<DelayedJob>,
    without_slot: Vec<i64>,
    /// Those among the first that may have crashed their process.
    suspects: Vec<i64>,
}

impl WaitingAgain {
    fn of(decided: &[DecidedJob<'_>]) -> Self {
        let mut waiting = WaitingAgain::default();
        for DecidedJob { job, decision } in decided {
            match &decision.destination {
                Destination::Wait(Some(delay)) if !delay.is_zero() => {
                    waiting.later.push(DelayedJob {
                        job_id: job.id,
                        delay: *delay,
                        keeps_slot: decision.has_slot,
                    });
                }
                Destination::Wait(_)
                    if decision.has_slot && !job.has_semaphore && !job.has_rate =>
                {
                    waiting.now.push(job.id);
                    waiting
                        .suspects
                        .extend(decision.is_suspect.then_some(job.id));
                }
                Destination::Wait(_) => waiting.without_slot.push(job.id),
                // Another job may have its slot meanwhile, also of an ordered key.
                Destination::Park(ParkedStep {
                    until: ParkUntil::Pause(delay),
                    ..
                }) => waiting.later.push(DelayedJob {
                    job_id: job.id,
                    delay: *delay,
                    keeps_slot: false,
                }),
                Destination::Park(_) | Destination::Failed(_) | Destination::Ended(..) => {}
            }
        }
        waiting
    }

    /// Makes the jobs ready that have no delay.
    fn enter(&self, conn: &mut Conn<'_>) -> QueryResult<()> {
        if !self.now.is_empty() {
            ready::insert_ready(conn, &self.now)?;
        }
        if !self.suspects.is_empty() {
            ready::mark_cautious(conn, &self.suspects)?;
        }
        if !self.without_slot.is_empty() {
            runnable::make_runnable(conn, &self.without_slot)?;
        }
        Ok(())
    }
}

/// Returns the failure of a job that has failed permanently.
fn failure_of(decision: &JobDecision) -> Option<&JobFailure> {
    match &decision.destination {
        Destination::Failed(failure) => Some(failure),
        Destination::Wait(_) | Destination::Park(_) | Destination::Ended(..) => None,
    }
}

fn failures<'s>(decided: &[DecidedJob<'s>]) -> Vec<FailedJob<'s>> {
    let failed = decided.iter();
    failed
        .filter_map(|DecidedJob { job, decision }| {
            Some(FailedJob {
                job_id: job.id,
                class_name: &job.class_name,
                failure: failure_of(decision)?,
            })
        })
        .collect()
}

fn new_attempts<'s>(decided: &[DecidedJob<'s>]) -> Vec<NewAttempt<'s>> {
    let staying = decided.iter().filter(|one| !is_deleted(one.decision));
    staying
        .filter_map(|DecidedJob { job, decision }| {
            let (outcome, failure) = decision.attempt.as_ref()?;
            Some(NewAttempt::new(job, &decision.run, *outcome, failure))
        })
        .collect()
}

/// For jobs that do not run again: stores their results, deletes the rows that are not kept, and
/// makes the jobs that waited for them runnable.
fn end_jobs(conn: &mut Conn<'_>, decided: &[DecidedJob<'_>]) -> QueryResult<()> {
    let mut ended = Vec::new();
    for DecidedJob { job, decision } in decided {
        let (outcome, failure) = match &decision.destination {
            Destination::Wait(_) | Destination::Park(_) => continue,
            Destination::Failed(failure) => (ResultOutcome::Failed, failure),
            Destination::Ended(outcome, failure) => (*outcome, failure),
        };
        ended.push((*job, *decision, outcome, failure.in_words()));
    }
    if ended.is_empty() {
        return Ok(());
    }
    let new: Vec<NewResult<'_>> = ended
        .iter()
        .filter_map(|(job, decision, outcome, error)| {
            let row = if is_deleted(decision) {
                FinishedRow::Delete
            } else {
                FinishedRow::Keep
            };
            job.result(*outcome, error, decision.uncounted_runs(), row)
        })
        .collect();
    results::store_results(conn, &new)?;
    let ids: Vec<i64> = ended.iter().map(|(job, ..)| job.id).collect();
    results::wake(conn, &ids)?;
    leave_batches(conn, &ended)?;
    let of = |wanted: fn(&JobDecision) -> bool| -> Vec<i64> {
        let jobs = ended.iter().filter(|(_, decision, ..)| wanted(decision));
        jobs.map(|(job, ..)| job.id).collect()
    };
    let deleted = of(is_deleted);
    if !deleted.is_empty() {
        parents::note_dropped(conn, &deleted)?;
    }
    clear::delete::delete(conn, &deleted)?;
    let is_kept = |decision: &JobDecision| !is_deleted(decision) && failure_of(decision).is_none();
    steps::remove(conn, &of(is_kept))?;
    let named = ended.iter().filter(|(job, ..)| job.unique_id.is_some());
    let named: Vec<i64> = named.map(|(job, ..)| job.id).collect();
    if named.is_empty() {
        return Ok(());
    }
    unique::unblock(conn, &named)
}

/// Takes ended jobs out of their batches, before their rows may be deleted.
fn leave_batches(
    conn: &mut Conn<'_>,
    ended: &[(&EndedJob, &JobDecision, ResultOutcome, String)],
) -> QueryResult<()> {
    let members = ended.iter().filter(|(job, ..)| job.batch_id.is_some());
    let (mut jobs, mut unsuccessful) = (Vec::new(), Vec::new());
    for (job, _, outcome, _) in members {
        jobs.push(job.id);
        unsuccessful.extend(outcome.is_unsuccessful().then_some(job.id));
    }
    flows::leave::leave(conn, &jobs, &unsuccessful)
}

/// Enqueues the jobs that the policies of failed jobs name.
fn follow_up(conn: &mut Conn<'_>, decided: &[DecidedJob<'_>]) -> QueryResult<()> {
    let hooks: Vec<_> = decided
        .iter()
        .filter_map(|DecidedJob { job, decision }| {
            Some((*job, failure_of(decision)?, job.on_failure()?))
        })
        .collect();
    if hooks.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = hooks.iter().map(|(job, ..)| job.id).collect();
    let arguments = jobs::arguments_of(conn, &ids)?;
    let rows: Vec<NewRow> = hooks
        .into_iter()
        .map(|(job, failure, hook)| {
            let arguments = arguments.get(&job.id).map_or("null", String::as_str);
            let arguments = json!({
                "job_id": job.id,
                "class_name": job.class_name,
                "queue_name": job.queue_name,
                "arguments": serde_json::from_str(arguments).unwrap_or(Value::Null),
                "attempts": job.attempts.saturating_add(1),
                "kind": failure.kind,
                "message": failure.message,
            });
            NewRow {
                traceparent: job.traceparent().map(|trace| trace.to_string()),
                ..NewRow::new(hook.class, arguments.to_string(), hook.queue, hook.priority)
            }
        })
        .collect();
    enqueue::insert_all(conn, &rows).map(drop)
}
