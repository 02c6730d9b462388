//! Batches, by the reference and by a database: an open one has open jobs, and when it has ended, the jobs that follow
//! run once if they fit, and are gone if not.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Id;
use crate::db::conn::statement::Statement;
use crate::db::internal_tests::db::kept_texts;
use crate::db::internal_tests::model::edges::{Awaited, EDGE_LINES, Edge, Link, RUNS_ON};
use crate::db::internal_tests::model::reference::Answer;
use crate::db::internal_tests::model::state::{Job, Model, Place};
use crate::db::internal_tests::model::step::{New, Step, When, Which};
use crate::db::internal_tests::model::subject::{Ids, number};
use crate::db::internal_tests::model::transitions::{Taken, new_row};
use crate::db::internal_tests::model::waits::WAIT_LINES;
use crate::db::model::claim::FinishedRow;
use crate::db::model::decision::{FinishedJob, KeySlots};
use crate::db::model::extras::{On, Otherwise};
use crate::db::model::new_row::NewRow;
use crate::db::table::claimed::EndedClaims;
use crate::db::table::flows::batches::{self, Addition, NewBatchRow};
use crate::db::transition::enqueue::{self, flows};
use crate::db::transition::{clear, finish};
use crate::job::policy::Delivery;
use diesel::QueryResult;
use std::collections::BTreeSet;
use std::time::Duration;

/// A batch of the reference.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchState {
    /// Jobs that failed, or were cancelled.
    pub failures: BTreeSet<usize>,
    /// Those of them that no retry takes away.
    pub finals: BTreeSet<usize>,
    pub is_over: bool,
    /// Its row was deleted.
    pub is_gone: bool,
}

/// The batch of a job, which it has left or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InBatch {
    pub batch: usize,
    pub has_left: bool,
}

/// Returns the policy of a job that follows a batch, for an outcome on which it does not run.
fn otherwise(on: On, retries: bool) -> Otherwise {
    match retries && on == On::Success {
        true => Otherwise::Wait,
        false => Otherwise::Drop,
    }
}

/// The job that stands for a batch in another.
fn nested() -> New {
    New {
        queue: 3,
        class: 3,
        priority: 0,
        when: When::Now,
        delivery: Delivery::AtLeastOnce,
        key: None,
        limit: None,
        name: None,
        max_crashes: None,
    }
}

/// Returns the job without a key and a unique id, as it is enqueued in a batch.
fn unnamed(new: &New) -> New {
    New {
        key: None,
        name: None,
        ..new.clone()
    }
}

/// Returns a job that follows a batch: it is enqueued without a time, and has no limit here.
fn following(new: &New) -> New {
    New {
        limit: None,
        when: When::Now,
        ..unnamed(new)
    }
}

impl Model {
    fn members(&self, batch: usize) -> impl Iterator<Item = usize> {
        let has_left = false;
        let is_open = move |job: &Job| job.in_batch == Some(InBatch { batch, has_left });
        let jobs = self.jobs.iter().enumerate();
        jobs.filter(move |(_, job)| is_open(job))
            .map(|(number, _)| number)
    }

    pub fn picked_batch(&self, number: u8) -> Option<usize> {
        let count = self.batches.len();
        (count > 0).then(|| usize::from(number) % count)
    }

    pub fn enqueue_batch(
        &mut self,
        members: &[New],
        follows: &[(New, u8)],
        retries: bool,
        inner: Option<&[New]>,
    ) -> Answer {
        let outer = self.new_batch();
        let mut answer = Vec::new();
        for (new, on) in follows {
            let on = RUNS_ON[usize::from(on % 3)];
            let job = self.follow_batch(outer, &following(new), on, otherwise(on, retries));
            answer.push((job, true));
        }
        answer.extend(self.add(outer, members));
        if let Some(members) = inner {
            let inner = self.new_batch();
            answer.extend(self.add(inner, members));
            let job = self.follow_batch(inner, &nested(), On::Finish, Otherwise::Nest);
            (self.jobs[job].is_nested, self.jobs[job].in_batch) = (
                true,
                Some(InBatch {
                    batch: outer,
                    has_left: false,
                }),
            );
            answer.push((job, true));
        }
        Answer::Jobs(answer)
    }

    fn new_batch(&mut self) -> usize {
        self.batches.push(BatchState::default());
        let batch = self.batches.len() - 1;
        self.asked.batches.insert(batch);
        batch
    }

    fn follow_batch(&mut self, batch: usize, new: &New, on: On, otherwise: Otherwise) -> usize {
        let (child, _) = self.enqueue(new);
        self.jobs[child].place = Place::Waits;
        self.edges.push(Edge {
            child,
            parent: Awaited::Batch(batch),
            on,
            otherwise,
            outcome: None,
            link: Link::Plain,
        });
        child
    }

    fn add(&mut self, batch: usize, members: &[New]) -> Vec<(usize, bool)> {
        let add = |new: &New| {
            let (job, is_new) = self.enqueue(&unnamed(new));
            let has_left = false;
            self.jobs[job].in_batch = Some(InBatch { batch, has_left });
            (job, is_new)
        };
        members.iter().map(add).collect()
    }

    pub fn add_to_batch(&mut self, batch: u8, members: &[New]) -> Answer {
        match self.picked_batch(batch) {
            Some(batch) if !self.batches[batch].is_over => {
                self.asked.batches.insert(batch);
                Answer::Jobs(self.add(batch, members))
            }
            _ => Answer::Is(false),
        }
    }

    /// After each step: what has ended has left its batch.
    pub fn leave_batches(&mut self) {
        for (number, job) in self.jobs.iter_mut().enumerate() {
            let Some(InBatch { batch, has_left }) = job.in_batch else {
                continue;
            };
            if has_left {
                let was_there = !matches!(job.noticed, Some(Place::Finished | Place::Gone));
                let of = &mut self.batches[batch];
                if job.place == Place::Gone && was_there && of.failures.contains(&number) {
                    of.finals.insert(number);
                    let mut edges = self.edges.iter();
                    let waits = |edge: &Edge| {
                        (edge.parent, edge.otherwise) == (Awaited::Batch(batch), Otherwise::Wait)
                    };
                    if edges.any(waits) {
                        self.asked.batches.insert(batch);
                    }
                }
                continue;
            }
            let has_failed = matches!(job.place, Place::Failed(_));
            if has_failed || matches!(job.place, Place::Finished | Place::Gone) {
                self.asked.batches.insert(batch);
                let has_left = true;
                job.in_batch = Some(InBatch { batch, has_left });
                if has_failed || job.is_cancelled {
                    self.batches[batch].failures.insert(number);
                }
                if !has_failed && job.is_cancelled {
                    self.batches[batch].finals.insert(number);
                }
            }
        }
    }

    /// A failed job is retried. Its batch opens again if a job waits for that.
    pub fn rejoin(&mut self, number: usize) {
        let Some(InBatch { batch, .. }) = self.jobs[number].in_batch else {
            return;
        };
        let awaits_retries = self.is_awaited(batch);
        let of = &mut self.batches[batch];
        if !of.failures.contains(&number) {
            return;
        }
        if of.is_over && !awaits_retries {
            of.finals.insert(number);
            return;
        }
        of.failures.remove(&number);
        of.finals.remove(&number);
        of.is_over = false;
        let has_left = false;
        self.jobs[number].in_batch = Some(InBatch { batch, has_left });
    }

    /// Returns whether a job waits until failed jobs were retried, and all have succeeded.
    fn is_awaited(&self, batch: usize) -> bool {
        self.edges.iter().any(|edge| {
            (edge.parent, edge.on, edge.otherwise)
                == (Awaited::Batch(batch), On::Success, Otherwise::Wait)
                && !matches!(self.jobs[edge.child].place, Place::Finished | Place::Gone)
        })
    }

    /// Returns whether a job waits for that in vain.
    pub fn is_lost(&self, batch: usize) -> bool {
        self.is_awaited(batch) && !self.batches[batch].finals.is_empty()
    }

    /// Ends those of the batches that have no jobs, and notes that for what follows them.
    pub fn complete(&mut self, asked: &BTreeSet<usize>) {
        for &batch in asked {
            if self.batches[batch].is_gone || self.members(batch).next().is_some() {
                continue;
            }
            self.batches[batch].is_over = true;
            let has_succeeded = self.batches[batch].failures.is_empty();
            self.note_outcome(Awaited::Batch(batch), has_succeeded);
        }
    }

    /// Ends a job that stands for a batch which is over.
    pub fn end_nested(&mut self, number: usize) {
        let mut edges = self.edges.iter().filter(|edge| edge.child == number);
        let has_failed = edges.any(|edge| edge.outcome == Some(false));
        let job = &mut self.jobs[number];
        job.place = Place::Finished;
        if let Some(InBatch {
            batch,
            has_left: false,
        }) = job.in_batch
            && has_failed
        {
            self.batches[batch].failures.insert(number);
            self.batches[batch].finals.insert(number);
        }
    }

    pub fn clear_batches(&mut self) -> Answer {
        let mut count = 0;
        for batch in 0..self.batches.len() {
            let is_member = |job: &Job| {
                job.place != Place::Gone && job.in_batch.is_some_and(|of| of.batch == batch)
            };
            let waits = |edge: &Edge| {
                let place = self.jobs[edge.child].place;
                edge.parent == Awaited::Batch(batch)
                    && !matches!(place, Place::Gone | Place::Finished)
            };
            let is_used = self.jobs.iter().any(is_member) || self.edges.iter().any(waits);
            let of = &self.batches[batch];
            if of.is_over && !of.is_gone && !is_used {
                self.batches[batch].is_gone = true;
                count += 1;
            }
        }
        Answer::Count(count)
    }

    /// Returns the expected line of each batch in a database: open jobs, failures, and whether it is over.
    fn batch_lines(&self, ids: &Ids) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, batch) in self.batches.iter().enumerate() {
            let (open, failures) = (self.members(number).count(), batch.failures.len());
            let finals = batch.finals.len();
            let state = if batch.is_over { "over" } else { "open" };
            let outcome = if batch.is_over && failures > 0 {
                " failed"
            } else {
                ""
            };
            if !batch.is_gone {
                lines.push(format!(
                    "batch {} {open} {failures} {finals} {state}{outcome}",
                    ids.batches[number]
                ));
            }
        }
        lines
    }

    /// Compares batches, edges, waits, events and steps with those of a database.
    pub fn check_flows(&self, conn: &mut Conn<'_>, ids: &Ids) -> Result<(), String> {
        let mut expected = self.batch_lines(ids);
        expected.extend(self.edge_lines(ids));
        expected.extend(self.wait_lines(ids));
        expected.sort_unstable();
        let text = format!("{BATCH_LINES} UNION ALL {EDGE_LINES} UNION ALL {WAIT_LINES}");
        let mut found = kept_texts(conn, &text);
        found.sort_unstable();
        if found == expected {
            return Ok(());
        }
        let not_in = |of: &[String], others: &[String]| -> Vec<String> {
            of.iter()
                .filter(|line| !others.contains(line))
                .cloned()
                .collect()
        };
        Err(format!(
            "there should be {:?}, and there is {:?}",
            not_in(&expected, &found),
            not_in(&found, &expected)
        ))
    }

    /// Returns whether the job of a claim is in a batch, and whether it has steps.
    pub fn extras(&self, claim: usize) -> (bool, bool) {
        let job = &self.jobs[self.claims[claim].job];
        (job.in_batch.is_some(), !job.steps.is_empty())
    }
}

const BATCH_LINES: &str = "SELECT 'batch ' || b.id || ' ' || (SELECT count(*) FROM solid_queue_batch_executions e WHERE e.batch_id = b.id) \
     || ' ' || (SELECT count(*) FROM windlass_batch_failures f WHERE f.batch_id = b.id) \
     || ' ' || (SELECT count(*) FROM windlass_batch_failures f WHERE f.batch_id = b.id AND f.is_final) \
     || CASE WHEN b.finished_at IS NULL THEN ' open' ELSE ' over' END \
     || CASE WHEN b.failed_at IS NULL THEN '' ELSE ' failed' END AS t FROM solid_queue_batches b";

impl Taken<'_> {
    pub fn enqueue_batch(
        &mut self,
        members: &[New],
        follows: &[(New, u8)],
        retries: bool,
        inner: Option<&[New]>,
    ) -> QueryResult<Answer> {
        let uuid = format!("windlass-model-{}", self.ids.batches.len());
        let (batches, jobs) = self.conn.transaction(|conn| {
            let outer = new_batch(conn, &uuid)?;
            let mut jobs = Vec::new();
            for (new, on) in follows {
                let row = new_row(&following(new));
                let on = RUNS_ON[usize::from(on % 3)];
                jobs.extend(flows::follow(
                    conn,
                    outer,
                    &[row],
                    on,
                    otherwise(on, retries),
                )?);
            }
            let members = insert(conn, outer, members)?;
            flows::fill(conn, outer, &members)?;
            jobs.extend(members);
            let mut batches = vec![outer];
            if let Some(members) = inner {
                let inner = new_batch(conn, &format!("{uuid}-inner"))?;
                let members = insert(conn, inner, members)?;
                flows::fill(conn, inner, &members)?;
                flows::nest(conn, outer, inner)?;
                jobs.extend(members);
                jobs.push(newest_job(conn)?);
                flows::end_if_empty(conn, inner)?;
                batches.push(inner);
            }
            flows::end_if_empty(conn, outer)?;
            QueryResult::Ok((batches, jobs))
        })?;
        for batch in batches {
            number(&mut self.ids.batches, batch);
        }
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
        let cleared = clear::clear_ended_batches(&mut self.conn, Duration::ZERO, 0, 1_000)?;
        Ok(Answer::Count(cleared.cleared))
    }

    /// Returns whether one of the picked jobs is in a batch or has steps.
    pub fn has_extras(&self, picks: &[Which]) -> bool {
        let mut claims = self.before.picked(picks).into_iter();
        claims.any(|claim| self.before.extras(claim) != (false, false))
    }

    fn new_jobs(&mut self, jobs: &[i64]) -> Answer {
        let known = &mut self.ids.jobs;
        Answer::Jobs(jobs.iter().map(|job| (number(known, *job), true)).collect())
    }

    /// Finishes jobs of which some are in a batch or have steps.
    pub fn finish_with_extras(
        &mut self,
        process: i64,
        picks: &[Which],
        finished: FinishedRow,
        slots: KeySlots<'_>,
    ) -> QueryResult<EndedClaims> {
        let job = |claim: usize| {
            let (has_batch, has_steps) = self.before.extras(claim);
            FinishedJob {
                claim_id: self.ids.claims[claim],
                result: None,
                named: None,
                has_steps,
                has_batch,
            }
        };
        let jobs = self.before.picked(picks).into_iter().map(job).collect();
        finish::finish_and_keep_free(&mut self.conn, process, jobs, finished, slots)
    }
}

fn new_batch(conn: &mut Conn<'_>, uuid: &str) -> QueryResult<i64> {
    let new = NewBatchRow {
        name: "model",
        metadata: None,
        uuid,
    };
    batches::create_batch(conn, &new)
}

fn newest_job(conn: &mut Conn<'_>) -> QueryResult<i64> {
    let text = "SELECT max(id) AS id FROM solid_queue_jobs";
    let newest: Id = Statement::new(text).uncached().get_result(conn)?;
    Ok(newest.id)
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

/// Returns the names of the changes to batches. The test checks that all of them happen.
pub fn kinds(step: &Step, before: &Model, after: &Model) -> Vec<String> {
    let mut kinds = Vec::new();
    let mut note = |happened: bool, what: &str| {
        if happened {
            kinds.push(what.to_owned());
        }
    };
    let pairs = || before.jobs.iter().zip(&after.jobs);
    let batches = || before.batches.iter().zip(&after.batches);
    let follows = |job: &usize| {
        let mut edges = before.edges.iter().filter(|edge| edge.child == *job);
        edges.any(|edge| edge.otherwise == Otherwise::Drop && !before.jobs[*job].is_nested)
    };
    let become_of = |place: Place| {
        let mut jobs = (0..before.jobs.len()).filter(follows);
        jobs.any(|job| (before.jobs[job].place, after.jobs[job].place) == (Place::Waits, place))
    };
    match step {
        Step::Promote => {
            let mut ended = batches().filter(|(old, new)| !old.is_over && new.is_over);
            note(ended.next().is_some(), "Promote ends a batch");
            note(become_of(Place::Ready), "Promote starts what follows");
            note(become_of(Place::Gone), "Promote drops what follows");
            let ended = |(old, new): &(&Job, &Job)| {
                old.is_nested && (old.place, new.place) == (Place::Waits, Place::Finished)
            };
            note(
                pairs().any(|pair| ended(&pair)),
                "Promote ends a batch in a batch",
            );
            let mut failures = batches().map(|(old, new)| new.failures.difference(&old.failures));
            let has_failed = failures.any(|mut new| new.any(|job| after.jobs[*job].is_nested));
            note(has_failed, "Promote fails with a batch in a batch");
            let mut edges = before.edges.iter().zip(&after.edges);
            let gives_up = edges.any(|(old, new)| {
                matches!(old.parent, Awaited::Batch(_))
                    && (old.otherwise, new.otherwise) == (Otherwise::Wait, Otherwise::Discard)
            });
            note(gives_up, "Promote gives up the retries of a batch");
        }
        Step::Move { .. } => {
            let has_left = |job: &Job| job.in_batch.is_some_and(|of| of.has_left);
            let joined = pairs().any(|(old, new)| has_left(old) && !has_left(new));
            note(joined, "Move takes a job back into its batch");
            note(become_of(Place::Finished), "Move cancels what follows");
            let opened = batches().any(|(old, new)| old.is_over && !new.is_over);
            note(opened, "Move opens a batch again");
        }
        _ => {}
    }
    kinds
}
