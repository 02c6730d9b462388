//! Steps that are undone, by the reference and by a database, over several retries of a job and its replacement by another.

use crate::db::internal_tests::model::edges::{Awaited, Edge, Link};
use crate::db::internal_tests::model::reference::Answer;
use crate::db::internal_tests::model::state::{Model, Place, by_time};
use crate::db::internal_tests::model::step::{By, Move, New, Step, Which, plain};
use crate::db::internal_tests::model::transitions::{Taken, new_row};
use crate::db::model::extras::{Follows, On, Otherwise, Parent};
use crate::db::model::new_row::{Inserted, NewRow, OnConflict};
use crate::db::table::steps::{self, StepState};
use crate::db::transition::enqueue::{self, connect};
use diesel::QueryResult;
use std::collections::BTreeSet;

fn step_name(step: u8) -> String {
    format!("saga {step}")
}

impl Model {
    /// A run does a step, with the job that undoes it, unless an earlier run has done it.
    pub fn undo(&mut self, by: By, pick: Which, step: u8) -> Answer {
        let Some(claim) = self.end(by, &[pick]).first().copied() else {
            return Answer::EndedAs(None);
        };
        let number = self.claims[claim].job;
        let done = (step_name(step), "1".to_owned());
        if self.jobs[number].steps.contains_key(&done.0) {
            return Answer::Is(false);
        }
        self.jobs[number].steps.extend([done]);
        let before = self
            .undos(number)
            .filter(|edge| edge.outcome.is_none())
            .last();
        let before = before.map(|edge| edge.child);
        let (undo, _) = self.enqueue(&plain());
        self.jobs[undo].place = Place::Waits;
        self.ask(Awaited::Job(number));
        self.edges.push(Edge {
            child: undo,
            parent: Awaited::Job(number),
            on: On::Failure,
            otherwise: Otherwise::Undo,
            outcome: None,
            link: Link::Undoes(step),
        });
        if let Some(before) = before {
            self.jobs[undo].has_dependents = true;
            self.edges.push(Edge {
                child: before,
                parent: Awaited::Job(undo),
                on: On::Success,
                otherwise: Otherwise::Wait,
                outcome: None,
                link: Link::After,
            });
        }
        Answer::Is(true)
    }

    /// The edges of jobs that undo steps of a job, or have done so.
    fn undos(&self, number: usize) -> impl Iterator<Item = &Edge> {
        let is_undo = |edge: &&Edge| matches!(edge.link, Link::Undoes(_)) && edge.on == On::Failure;
        let edges = self.edges.iter().filter(is_undo);
        edges.filter(move |edge| edge.parent == Awaited::Job(number))
    }

    /// A failed job is retried: what has not been undone is not to be undone before the next failure.
    pub fn resume(&mut self, number: usize) {
        let waits = |child: &usize| self.jobs[*child].place == Place::Waits;
        let undos = self.undos(number).map(|edge| edge.child);
        let waiting: BTreeSet<usize> = undos.filter(waits).collect();
        self.edges.retain(|edge| match edge.parent {
            Awaited::Job(parent) if edge.link == Link::After => {
                !waiting.contains(&edge.child) || waiting.contains(&parent)
            }
            _ => true,
        });
        for edge in &mut self.edges {
            if matches!(edge.link, Link::Undoes(_)) && waiting.contains(&edge.child) {
                edge.outcome = None;
            }
        }
    }

    /// A job starts that waited: the steps that it undoes are to be done again.
    pub fn forget_steps(&mut self, child: usize) {
        let edges = self.edges.iter().filter(|edge| edge.child == child);
        let steps = edges.filter_map(|edge| match (edge.link, edge.parent) {
            (Link::Undoes(step), Awaited::Job(job)) if edge.on == On::Failure => Some((job, step)),
            _ => None,
        });
        for (job, step) in steps.collect::<Vec<_>>() {
            self.jobs[job].steps.remove(&step_name(step));
        }
    }

    /// A job that waits and has a unique id, and what takes its place.
    fn replaced(&self, pick: u8, new: &New) -> Option<(usize, New)> {
        let waits = |job: &usize| {
            let job = &self.jobs[*job];
            let waits = matches!(
                job.place,
                Place::Ready
                    | Place::Blocked { .. }
                    | Place::Scheduled(_)
                    | Place::Waits
                    | Place::Awaits { .. }
            );
            waits && job.new.name.is_some()
        };
        let all: Vec<usize> = (0..self.jobs.len()).filter(waits).collect();
        // Rather one that has something to undo.
        let sagas = all.iter().filter(|job| self.undos(**job).next().is_some());
        let sagas: Vec<usize> = sagas.copied().collect();
        let among = if sagas.is_empty() { all } else { sagas };
        let number = *among.get(usize::from(pick) % among.len().max(1))?;
        let name = self.jobs[number].new.name;
        let key = None;
        Some((
            number,
            New {
                name,
                key,
                ..new.clone()
            },
        ))
    }

    pub fn replace(&mut self, pick: u8, new: &New) -> Answer {
        let Some((number, new)) = self.replaced(pick, new) else {
            return Answer::Nothing;
        };
        let undos = self.undos(number).map(|edge| edge.child);
        let undos: BTreeSet<usize> = undos.collect();
        for edge in &mut self.edges {
            if undos.contains(&edge.child) && edge.parent == Awaited::Job(number) {
                (edge.on, edge.outcome) = (On::Finish, Some(false));
            }
        }
        self.asked.children.extend(undos);
        self.edges
            .retain(|edge| edge.child != number || edge.otherwise != Otherwise::Join);
        let job = &mut self.jobs[number];
        let key = job.new.key;
        job.new = New { key, ..new };
        (job.attempts, job.crash_count, job.arguments) = (0, 0, 0);
        job.has_tag = false;
        job.steps.clear();
        job.keeps_place = false;
        job.version += 1;
        job.place = by_time(&job.new);
        self.enter(number);
        Answer::Jobs(vec![(number, false)])
    }
}

impl Taken<'_> {
    pub fn undo(&mut self, by: By, pick: Which, step: u8) -> QueryResult<Answer> {
        let (fence, name) = (self.fence(by, pick), step_name(step));
        let claim = self
            .before
            .claim(pick)
            .map(|claim| self.before.claims[claim].job);
        let job = claim.map_or(0, |job| self.ids.jobs[job]);
        let follows = Follows {
            parents: vec![(Parent::Job(job), Some(name.clone()))],
            on: On::Failure,
            otherwise: Otherwise::Undo,
        };
        let row = NewRow {
            follows: Some(Box::new(follows)),
            ..new_row(&plain())
        };
        let done: Result<Inserted, StepState> = self.conn.transaction(|conn| {
            let found = steps::begin(conn, fence, &name)?;
            if found != StepState::New {
                return QueryResult::Ok(Err(found));
            }
            let inserted = enqueue::insert_job(conn, &row)?;
            connect::reverse(conn, job, inserted.id)?;
            steps::record(conn, job, &name, "1")?;
            Ok(Ok(inserted))
        })?;
        Ok(match done {
            Ok(inserted) => {
                self.jobs(&[inserted]);
                Answer::Is(true)
            }
            Err(StepState::Lost) => Answer::EndedAs(None),
            Err(_) => Answer::Is(false),
        })
    }

    pub fn replace(&mut self, pick: u8, new: &New) -> QueryResult<Answer> {
        let Some((_, new)) = self.before.replaced(pick, new) else {
            return Ok(Answer::Nothing);
        };
        let row = NewRow {
            on_conflict: OnConflict::Replace,
            ..new_row(&new)
        };
        let inserted = enqueue::insert_job(&mut self.conn, &row)?;
        Ok(self.jobs(&[inserted]))
    }
}

/// Returns the names of the changes to undone steps. The test checks that all of them happen.
pub fn kinds(step: &Step, before: &Model, after: &Model) -> Vec<String> {
    let undoes = |edge: &&Edge| matches!(edge.link, Link::Undoes(_));
    let mut kinds = BTreeSet::new();
    for edge in before.edges.iter().filter(undoes) {
        let places = [before, after].map(|model| model.jobs[edge.child].place);
        let starts = places[0] == Place::Waits && places[1] == Place::Ready;
        let drops = places[0] == Place::Waits && places[1] == Place::Gone;
        let what = match (step, edge.on) {
            (Step::Promote, On::Failure) if starts => "Promote undoes a step",
            (Step::Promote, On::Finish) if starts => "Promote undoes a step of a replaced job",
            (Step::Promote, _) if drops => "Promote drops an undo",
            (Step::Replace { .. }, On::Failure) if before.edges != after.edges => {
                "Replace starts undos"
            }
            (
                Step::Move {
                    what: Move::Retry { .. },
                    ..
                },
                On::Failure,
            ) if places[0] == Place::Waits && before.edges != after.edges => {
                "Move keeps undos waiting"
            }
            _ => continue,
        };
        kinds.insert(what.to_owned());
    }
    kinds.into_iter().collect()
}
