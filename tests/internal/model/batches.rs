//! Batches, by the reference and by a database: an open one has open jobs, and when it has ended, the jobs that follow
//! run once if they fit, and are gone if not.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::texts;
use crate::db::internal_tests::model::reference::Answer;
use crate::db::internal_tests::model::state::{Job, Model, Place};
use crate::db::internal_tests::model::step::{New, Step, When, Which};
use crate::db::internal_tests::model::subject::{Ids, number};
use crate::db::internal_tests::model::transitions::{Taken, new_row};
use crate::db::model::claim::FinishedRow;
use crate::db::model::finished::{FinishedJob, KeySlots};
use crate::db::model::follows::{On, Otherwise};
use crate::db::model::new_row::NewRow;
use crate::db::table::claimed::EndedClaims;
use crate::db::table::flows::batches::{self, Addition, NewBatchRow};
use crate::db::transition::flows::enqueue as flows;
use crate::db::transition::{clear, enqueue, finish};
use diesel::QueryResult;
use std::collections::BTreeSet;
use std::time::Duration;

/// A batch of the reference.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchState {
    /// Jobs that failed, or were cancelled.
    pub failures: BTreeSet<usize>,
    pub is_over: bool,
    /// Its row was deleted.
    pub is_gone: bool,
}

/// What a job has to do with a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum InBatch {
    /// Of the batch with this number, which it has left or not.
    Member { batch: usize, has_left: bool },
    /// It follows a batch.
    Follows { batch: usize, runs_on: u8 },
}

const RUNS_ON: [On; 3] = [On::Success, On::Failure, On::Finish];

/// What belongs to a batch has no name of its own.
fn unnamed(new: &New) -> New {
    New {
        key: None,
        name: None,
        ..new.clone()
    }
}

/// What follows is enqueued without a time, and has no limit here.
fn following(new: &New) -> New {
    New {
        limit: None,
        when: When::Now,
        ..unnamed(new)
    }
}

impl Model {
    fn members(&self, batch: usize) -> impl Iterator<Item = usize> {
        let is_open = move |job: &Job| matches!(job.in_batch, Some(InBatch::Member { batch: of, has_left: false }) if of == batch);
        let jobs = self.jobs.iter().enumerate();
        jobs.filter(move |(_, job)| is_open(job))
            .map(|(number, _)| number)
    }

    fn picked_batch(&self, number: u8) -> Option<usize> {
        let count = self.batches.len();
        (count > 0).then(|| usize::from(number) % count)
    }

    pub fn enqueue_batch(&mut self, members: &[New], follows: &[(New, u8)]) -> Answer {
        self.batches.push(BatchState::default());
        let batch = self.batches.len() - 1;
        self.requested.insert(batch);
        let mut answer = Vec::new();
        for (new, runs_on) in follows {
            let (job, _) = self.enqueue(&following(new));
            let runs_on = runs_on % 3;
            self.jobs[job].in_batch = Some(InBatch::Follows { batch, runs_on });
            self.jobs[job].place = Place::Waits;
            answer.push((job, true));
        }
        answer.extend(self.join(batch, members));
        Answer::Jobs(answer)
    }

    fn join(&mut self, batch: usize, members: &[New]) -> Vec<(usize, bool)> {
        let join = |new: &New| {
            let (job, is_new) = self.enqueue(&unnamed(new));
            let has_left = false;
            self.jobs[job].in_batch = Some(InBatch::Member { batch, has_left });
            (job, is_new)
        };
        members.iter().map(join).collect()
    }

    pub fn add_to_batch(&mut self, batch: u8, members: &[New]) -> Answer {
        match self.picked_batch(batch) {
            Some(batch) if !self.batches[batch].is_over => {
                self.requested.insert(batch);
                Answer::Jobs(self.join(batch, members))
            }
            _ => Answer::Is(false),
        }
    }

    /// After each step: what has ended has left its batch.
    pub fn leave_batches(&mut self) {
        for (number, job) in self.jobs.iter_mut().enumerate() {
            let Some(InBatch::Member {
                batch,
                has_left: false,
            }) = job.in_batch
            else {
                continue;
            };
            let has_failed = matches!(job.place, Place::Failed(_));
            if has_failed || matches!(job.place, Place::Finished | Place::Gone) {
                self.requested.insert(batch);
                let has_left = true;
                job.in_batch = Some(InBatch::Member { batch, has_left });
                if has_failed || job.is_cancelled {
                    self.batches[batch].failures.insert(number);
                }
            }
        }
    }

    /// A failed job is retried.
    pub fn rejoin(&mut self, number: usize) {
        let Some(InBatch::Member { batch, .. }) = self.jobs[number].in_batch else {
            return;
        };
        let of = &mut self.batches[batch];
        if !of.is_over && of.failures.remove(&number) {
            let has_left = false;
            self.jobs[number].in_batch = Some(InBatch::Member { batch, has_left });
        }
    }

    /// Ends those of the batches that have no jobs, and lets what follows those that ended in the promotion before run, or deletes it.
    pub fn promote_batches(&mut self, requested: &BTreeSet<usize>) {
        let due = std::mem::take(&mut self.due);
        for &batch in requested {
            if self.batches[batch].is_over || self.members(batch).next().is_some() {
                continue;
            }
            self.batches[batch].is_over = true;
            let follows = |job: &Job| matches!(job.in_batch, Some(InBatch::Follows { batch: of, .. }) if of == batch);
            let jobs = self.jobs.iter().enumerate();
            let children = jobs
                .filter(|(_, job)| follows(job))
                .map(|(number, _)| number);
            self.due.extend(children.collect::<Vec<_>>());
        }
        for number in due {
            let Some(InBatch::Follows { batch, runs_on }) = self.jobs[number].in_batch else {
                continue;
            };
            if self.jobs[number].place != Place::Waits {
                continue;
            }
            let has_failed = !self.batches[batch].failures.is_empty();
            let fits = match RUNS_ON[usize::from(runs_on)] {
                On::Success => !has_failed,
                On::Failure => has_failed,
                On::Finish => true,
            };
            self.jobs[number].place = if fits { Place::Ready } else { Place::Gone };
        }
    }

    pub fn clear_batches(&mut self) -> Answer {
        let mut count = 0;
        for batch in 0..self.batches.len() {
            let is_left = |job: &Job| match job.in_batch {
                Some(InBatch::Member { batch: of, .. }) => of == batch && job.place != Place::Gone,
                Some(InBatch::Follows { batch: of, .. }) => {
                    of == batch && !matches!(job.place, Place::Gone | Place::Finished)
                }
                None => false,
            };
            let of = &self.batches[batch];
            if of.is_over && !of.is_gone && !self.jobs.iter().any(is_left) {
                self.batches[batch].is_gone = true;
                count += 1;
            }
        }
        Answer::Count(count)
    }

    /// What a database says of each batch: its open jobs, its failures, and whether it is over.
    fn batch_lines(&self, ids: &Ids) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, batch) in self.batches.iter().enumerate() {
            let (open, failures) = (self.members(number).count(), batch.failures.len());
            let state = if batch.is_over { "over" } else { "open" };
            let outcome = if batch.is_over && failures > 0 {
                " failed"
            } else {
                ""
            };
            if !batch.is_gone {
                lines.push(format!(
                    "{} {open} {failures} {state}{outcome}",
                    ids.batches[number]
                ));
            }
        }
        lines
    }

    pub fn check_batches(&self, conn: &mut Conn<'_>, ids: &Ids) -> Result<(), String> {
        if self.batches.is_empty() {
            return Ok(());
        }
        let text = "SELECT b.id || ' ' || (SELECT count(*) FROM solid_queue_batch_executions e WHERE e.batch_id = b.id) \
             || ' ' || (SELECT count(*) FROM windlass_batch_failures f WHERE f.batch_id = b.id) \
             || CASE WHEN b.finished_at IS NULL THEN ' open' ELSE ' over' END \
             || CASE WHEN b.failed_at IS NULL THEN '' ELSE ' failed' END AS t FROM solid_queue_batches b ORDER BY b.id";
        let (found, expected) = (texts(conn, text), self.batch_lines(ids));
        if found == expected {
            return Ok(());
        }
        Err(format!("batches should be {expected:?}, and are {found:?}"))
    }

    /// Whether one of these claims is of a job in a batch.
    pub fn has_batch(&self, claims: &[usize]) -> bool {
        let mut jobs = claims
            .iter()
            .map(|claim| &self.jobs[self.claims[*claim].job]);
        jobs.any(|job| matches!(job.in_batch, Some(InBatch::Member { .. })))
    }
}

impl Taken<'_> {
    pub fn enqueue_batch(&mut self, members: &[New], follows: &[(New, u8)]) -> QueryResult<Answer> {
        let uuid = format!("windlass-model-{}", self.ids.batches.len());
        let (batch, jobs) = self.conn.transaction(|conn| {
            let new = NewBatchRow {
                name: "model",
                metadata: None,
                uuid: &uuid,
            };
            let batch = batches::insert(conn, &new)?;
            let mut jobs = Vec::new();
            for (new, runs_on) in follows {
                let row = new_row(&following(new));
                let runs_on = RUNS_ON[usize::from(runs_on % 3)];
                jobs.extend(flows::follow(
                    conn,
                    batch,
                    &[row],
                    runs_on,
                    Otherwise::Drop,
                )?);
            }
            let members = insert(conn, batch, members)?;
            flows::fill(conn, batch, &members)?;
            flows::end_if_empty(conn, batch)?;
            jobs.extend(members);
            QueryResult::Ok((batch, jobs))
        })?;
        number(&mut self.ids.batches, batch);
        Ok(self.new_jobs(&jobs))
    }

    pub fn add_to_batch(&mut self, batch: u8, members: &[New]) -> QueryResult<Answer> {
        let Some(batch) = self.before.picked_batch(batch) else {
            return Ok(Answer::Is(false));
        };
        let batch = self.ids.batches[batch];
        let added = self.conn.transaction(|conn| {
            if batches::accepts(conn, batch)? != Addition::Accepted {
                return Ok(None);
            }
            let jobs = insert(conn, batch, members)?;
            flows::add(conn, batch, &jobs)?;
            QueryResult::Ok(Some(jobs))
        })?;
        Ok(added.map_or(Answer::Is(false), |jobs| self.new_jobs(&jobs)))
    }

    pub fn clear_batches(&mut self) -> QueryResult<Answer> {
        let cleared = clear::batches::over(&mut self.conn, Duration::ZERO, 0, 1_000)?;
        Ok(Answer::Count(cleared.cleared))
    }

    pub fn has_batch(&self, picks: &[Which]) -> bool {
        self.before.has_batch(&self.before.picked(picks))
    }

    fn new_jobs(&mut self, jobs: &[i64]) -> Answer {
        let known = &mut self.ids.jobs;
        Answer::Jobs(jobs.iter().map(|job| (number(known, *job), true)).collect())
    }

    /// Finishes jobs of which some are in a batch.
    pub fn finish_in_batch(
        &mut self,
        process: i64,
        claims: &[i64],
        finished: FinishedRow,
        slots: KeySlots<'_>,
    ) -> QueryResult<EndedClaims> {
        let job = |claim: &i64| FinishedJob {
            claim_id: *claim,
            result: None,
            named: None,
            has_steps: false,
            has_batch: true,
        };
        let jobs = claims.iter().map(job).collect();
        finish::finish_and_keep_free(&mut self.conn, process, jobs, finished, slots)
    }
}

fn insert(conn: &mut Conn<'_>, batch: i64, members: &[New]) -> QueryResult<Vec<i64>> {
    let row = |new: &New| NewRow {
        batch_id: Some(batch),
        ..new_row(&unnamed(new))
    };
    let rows: Vec<NewRow> = members.iter().map(row).collect();
    let jobs = enqueue::insert_all(conn, &rows)?;
    Ok(jobs.iter().map(|job| job.id).collect())
}

/// What happened to batches: to see that all of it happens.
pub fn kinds(step: &Step, before: &Model, after: &Model) -> Vec<String> {
    let mut kinds = Vec::new();
    let mut note = |happened: bool, what: &str| {
        if happened {
            kinds.push(what.to_owned());
        }
    };
    let pairs = || before.jobs.iter().zip(&after.jobs);
    let follows = |place| pairs().any(|(old, new)| old.place == Place::Waits && new.place == place);
    match step {
        Step::Promote => {
            let ended = before.batches.iter().zip(&after.batches);
            let mut ended = ended.filter(|(old, new)| !old.is_over && new.is_over);
            note(ended.next().is_some(), "Promote ends a batch");
            note(follows(Place::Ready), "Promote starts what follows");
            note(follows(Place::Gone), "Promote drops what follows");
        }
        Step::Move { .. } => {
            let has_left =
                |job: &Job| matches!(job.in_batch, Some(InBatch::Member { has_left: true, .. }));
            let joined = pairs().any(|(old, new)| has_left(old) && !has_left(new));
            note(joined, "Move takes a job back into its batch");
            let cancelled =
                pairs().any(|(old, new)| old.place == Place::Waits && new.place == Place::Finished);
            note(cancelled, "Move cancels what follows");
        }
        _ => {}
    }
    kinds
}
