//! Jobs that wait for jobs and batches, by the reference and by a database: what has ended is noted at each edge by the
//! next promotion, and the one after it decides about the job that waits.

use crate::db::internal_tests::model::reference::Answer;
use crate::db::internal_tests::model::state::{Job, Model, Place};
use crate::db::internal_tests::model::step::{Move, New, Pick, Step};
use crate::db::internal_tests::model::subject::Ids;
use crate::db::internal_tests::model::transitions::{Taken, new_row};
use crate::db::model::extras::{Follows, On, Otherwise, Parent};
use crate::db::model::new_row::NewRow;
use crate::db::transition::enqueue;
use diesel::QueryResult;
use diesel::result::Error::NotFound;
use std::collections::BTreeSet;

/// A job or a batch of the reference that a job waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaited {
    Job(usize),
    Batch(usize),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Edge {
    pub child: usize,
    pub parent: Awaited,
    pub on: On,
    pub otherwise: Otherwise,
    /// True if the parent has succeeded; `None` until its end was noted.
    pub outcome: Option<bool>,
    pub link: Link,
}

/// Why a job waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Plain,
    /// It undoes this step of the other one.
    Undoes(u8),
    /// It undoes the step before.
    After,
}

/// At what the next promotion looks.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub batches: BTreeSet<usize>,
    /// Jobs that may have ended.
    pub jobs: BTreeSet<usize>,
    /// Jobs of which a parent has ended.
    pub children: BTreeSet<usize>,
    /// Jobs that wait for an event.
    pub waits: BTreeSet<usize>,
    pub events: BTreeSet<u8>,
}

pub const RUNS_ON: [On; 3] = [On::Success, On::Failure, On::Finish];

/// Returns the job without a unique id, which a job that waits for others cannot have.
fn without_name(new: &New) -> New {
    New {
        name: None,
        ..new.clone()
    }
}

/// The decision about a waiting job, by the edges that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Runs,
    Waits,
    Discarded,
    Dropped,
}

impl Job {
    /// Returns whether it has succeeded; `None` if it has not ended.
    pub fn fate(&self) -> Option<bool> {
        match self.place {
            Place::Failed(_) => Some(false),
            Place::Finished | Place::Gone => Some(!self.is_cancelled && !self.is_discarded),
            _ => None,
        }
    }

    /// Returns whether its end is stored, in its row or in a result.
    fn is_stored(&self) -> bool {
        self.place != Place::Gone || self.has_result
    }
}

impl Model {
    pub fn awaited(&self, picks: &[Pick]) -> Vec<Awaited> {
        let open = |job: &usize| self.jobs[*job].fate().is_none();
        let at = |number: u8, all: Vec<usize>| {
            (!all.is_empty()).then(|| all[usize::from(number) % all.len()])
        };
        let jobs = || 0..self.jobs.len();
        let awaited = picks.iter().filter_map(|pick| match pick {
            Pick::Open(number) => at(*number, jobs().filter(open).collect()).map(Awaited::Job),
            Pick::Any(number) => at(*number, jobs().collect()).map(Awaited::Job),
            Pick::Batch(number) => self.picked_batch(*number).map(Awaited::Batch),
        });
        awaited.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns whether new edges can name this parent.
    fn is_known(&self, parent: Awaited) -> bool {
        match parent {
            Awaited::Job(job) => self.jobs[job].is_stored(),
            Awaited::Batch(batch) => !self.batches[batch].is_gone,
        }
    }

    fn is_open_parent(&self, parent: Awaited) -> bool {
        match parent {
            Awaited::Job(job) => self.jobs[job].fate().is_none(),
            Awaited::Batch(batch) => !self.batches[batch].is_over,
        }
    }

    pub fn ask(&mut self, parent: Awaited) {
        match parent {
            Awaited::Job(job) => {
                self.asked.jobs.insert(job);
                // Its end is noticed from now on.
                self.jobs[job].has_dependents |= self.jobs[job].place != Place::Gone;
            }
            Awaited::Batch(batch) => {
                self.asked.batches.insert(batch);
            }
        }
    }

    pub fn enqueue_after(&mut self, new: &New, picks: &[Pick], on: u8, retries: bool) -> Answer {
        let parents = self.awaited(picks);
        let count = self.jobs.len();
        let (child, is_new) = self.enqueue(&without_name(new));
        if is_new && !parents.iter().all(|parent| self.is_known(*parent)) {
            self.jobs.truncate(count);
            return Answer::Is(false);
        }
        if is_new && !parents.is_empty() {
            self.jobs[child].place = Place::Waits;
            for parent in parents {
                self.ask(parent);
                self.edges.push(Edge {
                    child,
                    parent,
                    on: RUNS_ON[usize::from(on % 3)],
                    otherwise: otherwise(retries),
                    outcome: None,
                    link: Link::Plain,
                });
            }
        }
        Answer::Jobs(vec![(child, is_new)])
    }

    /// A job that runs waits for others too. Answers whether all of these are known.
    pub fn connect(&mut self, child: usize, parents: &[Awaited]) -> bool {
        if !parents.iter().all(|parent| self.is_known(*parent)) {
            return false;
        }
        for &parent in parents {
            self.ask(parent);
            let is_open = self.is_open_parent(parent);
            let mut edges = self.edges.iter_mut();
            match edges.find(|edge| edge.child == child && edge.parent == parent) {
                Some(edge) => {
                    (edge.on, edge.otherwise) = (On::Finish, Otherwise::Join);
                    // It was retried, and is waited for again.
                    edge.outcome = edge.outcome.filter(|_| !is_open);
                }
                None => self.edges.push(Edge {
                    child,
                    parent,
                    on: On::Finish,
                    otherwise: Otherwise::Join,
                    outcome: None,
                    link: Link::Plain,
                }),
            }
        }
        true
    }

    /// After each change: the ends of jobs that others wait for are noticed.
    pub fn notice_ends(&mut self) {
        for (number, job) in self.jobs.iter_mut().enumerate() {
            if matches!(job.place, Place::Finished | Place::Gone) {
                job.steps.clear();
            }
            let end = job.fate().map(|_| job.place);
            let is_known = job.noticed.is_some_and(|noticed| {
                Some(noticed) == end || (noticed, job.place) == (Place::Finished, Place::Gone)
            });
            if end.is_some() && !is_known && job.has_dependents {
                self.asked.jobs.insert(number);
            }
            job.noticed = end;
        }
    }

    /// Returns whether a job waits for a retry of this failed job, or of one of its batch.
    pub fn is_retry_awaited(&self, job: usize) -> bool {
        let batch = self.jobs[job].in_batch.map(|of| Awaited::Batch(of.batch));
        self.edges.iter().any(|edge| {
            (edge.otherwise, edge.outcome) == (Otherwise::Wait, Some(false))
                && (edge.parent == Awaited::Job(job) || Some(edge.parent) == batch)
        })
    }

    /// A failed job is retried: what waits for its success waits on.
    pub fn forget_failure(&mut self, job: usize) {
        let is_of = |edge: &&mut Edge| {
            edge.parent == Awaited::Job(job)
                && (edge.on, edge.otherwise, edge.outcome)
                    == (On::Success, Otherwise::Wait, Some(false))
        };
        for edge in self.edges.iter_mut().filter(is_of) {
            edge.outcome = None;
        }
    }

    /// Notes how a job or a batch has ended. What no retry brings back is not waited for any more.
    pub fn note_outcome(&mut self, parent: Awaited, has_succeeded: bool) {
        let (is_there, is_final) = match parent {
            Awaited::Batch(batch) => (true, self.is_lost(batch)),
            Awaited::Job(job) => {
                let place = self.jobs[job].place;
                (place != Place::Gone, !matches!(place, Place::Failed(_)))
            }
        };
        for edge in self.edges.iter_mut().filter(|edge| edge.parent == parent) {
            let is_new = match edge.outcome {
                None => true,
                Some(noted) => !noted && has_succeeded && is_there,
            };
            if is_new {
                edge.outcome = Some(has_succeeded);
            }
            let gives_up = is_final
                && (edge.on, edge.otherwise, edge.outcome)
                    == (On::Success, Otherwise::Wait, Some(false));
            if gives_up {
                edge.otherwise = Otherwise::Discard;
                if edge.link == Link::After {
                    edge.on = On::Finish;
                }
            }
            if is_new || gives_up {
                self.asked.children.insert(edge.child);
            }
        }
    }

    pub fn note_ends(&mut self, jobs: &BTreeSet<usize>) {
        for &job in jobs {
            if let Some(has_succeeded) = self.jobs[job].fate() {
                self.note_outcome(Awaited::Job(job), has_succeeded);
            }
        }
    }

    fn verdict(&self, child: usize) -> Verdict {
        let all = || self.edges.iter().filter(|edge| edge.child == child);
        let joins = all().any(|edge| edge.otherwise == Otherwise::Join);
        let edges: Vec<&Edge> = all()
            .filter(|edge| !joins || edge.otherwise == Otherwise::Join)
            .collect();
        // Those of the same kind are looked at together, and the worst decides.
        let verdicts = edges.iter().map(|one| {
            let is_like = |edge: &&&Edge| (edge.on, edge.otherwise) == (one.on, one.otherwise);
            let outcomes = edges.iter().filter(is_like).map(|edge| edge.outcome);
            let outcomes: BTreeSet<Option<bool>> = outcomes.collect();
            let has_failed = outcomes.contains(&Some(false));
            let unwanted = match one.otherwise {
                Otherwise::Wait if has_failed => Verdict::Waits,
                Otherwise::Drop | Otherwise::Undo => Verdict::Dropped,
                _ => Verdict::Discarded,
            };
            match one.on {
                On::Success if has_failed => unwanted,
                _ if outcomes.contains(&None) => Verdict::Waits,
                On::Failure if !has_failed => unwanted,
                _ => Verdict::Runs,
            }
        });
        verdicts.max().unwrap_or(Verdict::Runs)
    }

    /// Decides about those of the jobs that wait for others. Gives those that are discarded.
    pub fn admit(&mut self, children: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut discarded = BTreeSet::new();
        let waiting = children
            .iter()
            .filter(|child| self.jobs[**child].place == Place::Waits);
        let verdicts = waiting.map(|child| (*child, self.verdict(*child)));
        for (child, verdict) in verdicts.collect::<Vec<_>>() {
            let job = &mut self.jobs[child];
            match verdict {
                Verdict::Waits => {}
                Verdict::Runs if job.is_nested => self.end_nested(child),
                Verdict::Runs => {
                    job.place = job.first_place();
                    self.enter(child);
                    self.forget_steps(child);
                }
                Verdict::Discarded => {
                    job.place = Place::Finished;
                    job.is_discarded = true;
                    job.has_result |= job.new.name.is_some();
                    job.attempts_kept += 1;
                    discarded.insert(child);
                }
                Verdict::Dropped => {
                    job.place = Place::Gone;
                    job.is_discarded = true;
                    job.has_result |= job.has_dependents;
                }
            }
        }
        discarded
    }

    /// Returns the expected line of each edge in a database.
    pub fn edge_lines(&self, ids: &Ids) -> Vec<String> {
        let line = |edge: &Edge| {
            let parent = match edge.parent {
                Awaited::Job(job) => format!("job {}", ids.jobs[job]),
                Awaited::Batch(batch) => format!("batch {}", ids.batches[batch]),
            };
            let outcome = match edge.outcome {
                None => "",
                Some(true) => " succeeded",
                Some(false) => " failed",
            };
            format!(
                "edge of {} to {parent} {} {}{outcome}",
                ids.jobs[edge.child],
                edge.on.column(),
                edge.otherwise.column(),
            )
        };
        self.edges.iter().map(line).collect()
    }
}

fn otherwise(retries: bool) -> Otherwise {
    match retries {
        true => Otherwise::Wait,
        false => Otherwise::Discard,
    }
}

/// The same lines, by a database.
pub const EDGE_LINES: &str = "SELECT 'edge of ' || child_job_id || ' to ' \
     || coalesce('job ' || parent_job_id, 'batch ' || parent_batch_id) || ' ' || runs_on || ' ' || otherwise \
     || coalesce(' ' || outcome, '') AS t FROM windlass_edges";

impl Taken<'_> {
    pub fn parents(&self, awaited: &[Awaited]) -> Vec<(Parent, Option<String>)> {
        let parent = |parent: &Awaited| match parent {
            Awaited::Job(job) => Parent::Job(self.ids.jobs[*job]),
            Awaited::Batch(batch) => Parent::Batch(self.ids.batches[*batch]),
        };
        awaited.iter().map(|one| (parent(one), None)).collect()
    }

    pub fn enqueue_after(
        &mut self,
        new: &New,
        picks: &[Pick],
        on: u8,
        retries: bool,
    ) -> QueryResult<Answer> {
        let follows = Follows {
            parents: self.parents(&self.before.awaited(picks)),
            on: RUNS_ON[usize::from(on % 3)],
            otherwise: otherwise(retries),
        };
        let row = NewRow {
            follows: Some(Box::new(follows)),
            ..new_row(&without_name(new))
        };
        match enqueue::insert_job(&mut self.conn, &row) {
            Ok(inserted) => Ok(self.jobs(&[inserted])),
            Err(NotFound) => Ok(Answer::Is(false)),
            Err(error) => Err(error),
        }
    }
}

/// Returns the names of the changes to jobs that wait for others. The test checks that all of them happen.
pub fn kinds(step: &Step, before: &Model, after: &Model) -> Vec<String> {
    let mut kinds = Vec::new();
    if let Step::EnqueueAfter { picks, .. } = step {
        let mut parents = before.awaited(picks).into_iter();
        if after.jobs.len() > before.jobs.len() && parents.any(|one| !before.is_open_parent(one)) {
            kinds.push("EnqueueAfter an end".to_owned());
        }
    }
    for (number, (old, new)) in before.jobs.iter().zip(&after.jobs).enumerate() {
        let edges = || before.edges.iter().filter(move |edge| edge.child == number);
        let noted = |edge: &&Edge| matches!(edge.parent, Awaited::Job(_));
        let Some(edge) = edges().find(noted) else {
            continue;
        };
        if old.place != Place::Waits || new.place == Place::Waits || !matches!(step, Step::Promote)
        {
            continue;
        }
        let has_failed = edges().any(|edge| edge.outcome == Some(false));
        let on = format!("{:?}", edge.on).to_lowercase();
        let what = match (new.place, edge.otherwise) {
            (_, Otherwise::Join) => "Admit what has joined".to_owned(),
            (Place::Finished, Otherwise::Wait) if has_failed => "Admit gives up".to_owned(),
            (Place::Finished, _) if has_failed => "Admit discards after a failure".to_owned(),
            (Place::Finished, _) => "Admit discards without a failure".to_owned(),
            (_, Otherwise::Wait) if edge.on == On::Success => "Admit with retries".to_owned(),
            (Place::Blocked { .. }, _) => "Admit to a limit".to_owned(),
            (Place::Scheduled(_), _) => "Admit until its time".to_owned(),
            _ => format!("Admit on {on}"),
        };
        kinds.push(what);
    }
    if let Step::Move {
        what: Move::Retry { .. },
        ..
    } = step
    {
        let mut edges = before.edges.iter().zip(&after.edges);
        if edges.any(|(old, new)| old.outcome.is_some() && new.outcome.is_none()) {
            kinds.push("Move retries what is waited for".to_owned());
        }
    }
    kinds
}
