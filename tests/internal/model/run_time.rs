//! Settings and changes of operators while the processes run, by the reference and by a database:
//! paused classes, limits, arguments and tags.

use crate::db::internal_tests::model::limits::{self, SLOTS};
use crate::db::internal_tests::model::reference::Answer;
use crate::db::internal_tests::model::state::{Job, Model, Place};
use crate::db::internal_tests::model::step::{CLASSES, End, Move, Step};
use crate::db::internal_tests::model::transitions::{Taken, class_names};
use crate::db::model::extras::TagChange;
use crate::db::table::run_time;
use crate::db::table::run_time::limits::{LimitPart, NewRunTimeLimit};
use crate::db::transition::operate::edit::{self, EditOutcome, NewArguments};
use crate::db::transition::pause;
use crate::job::policy::Delivery;
use diesel::QueryResult;
use std::collections::BTreeSet;

/// The name of a key, or of the group.
pub fn key_name(key: Option<u8>) -> String {
    key.map_or("group/*".to_owned(), |key| format!("group/{key}"))
}

/// Arguments by their number, as JSON.
fn arguments(number: u8) -> String {
    match number {
        0 => "{}".to_owned(),
        number => format!("{{\"number\":{number}}}"),
    }
}

impl Job {
    pub fn arguments(&self) -> String {
        arguments(self.arguments)
    }
}

impl Model {
    /// Returns the number of slots that a key has now.
    pub fn slots(&self, key: usize) -> usize {
        self.set_slots(key).unwrap_or(SLOTS[key])
    }

    fn set_slots(&self, key: usize) -> Option<usize> {
        let of_key = self.limits.get(&Some(key as u8));
        let set = of_key.or(self.limits.get(&None)).copied().map(usize::from);
        // An ordered key has one slot at most.
        set.map(|slots| {
            if key == usize::from(limits::ORDERED) {
                slots.min(1)
            } else {
                slots
            }
        })
    }

    fn of_key(&self, key: usize) -> impl Iterator<Item = &Job> {
        let is_of = move |job: &&Job| job.new.limit.map(usize::from) == Some(key);
        self.jobs.iter().filter(is_of)
    }

    fn held_slots(&self, key: usize) -> usize {
        self.of_key(key).filter(|job| limits::is_held(job)).count()
    }

    /// Returns whether a worker that has the classes of `classes` claims this one.
    pub fn is_open(&self, classes: u8, class: u8) -> bool {
        classes & (1 << class) != 0 && !self.paused_classes.contains(&class)
    }

    /// Returns whether a complaint is right and harmless: a limit that was set is cleared while
    /// more jobs run than the limit of the jobs allows.
    pub fn may_violate(&self, violation: &str) -> bool {
        (0..SLOTS.len()).any(|key| {
            let (held, slots, name) = (
                self.held_slots(key),
                self.slots(key),
                key_name(Some(key as u8)),
            );
            let complaint = format!(
                "{held} jobs hold a slot of the concurrency key `{name}`, whose limit is {slots}"
            );
            held > slots && violation == complaint
        })
    }

    pub fn semaphores(&self) -> Vec<(String, i64, bool, i64, i64)> {
        let keys = (0..SLOTS.len()).map(|key| {
            let held = self.held_slots(key) as i64;
            let is_blocked = |job: &&Job| matches!(job.place, Place::Blocked { .. });
            let blocked = self.of_key(key).filter(is_blocked).count() as i64;
            let is_set = self.set_slots(key).is_some();
            (
                key_name(Some(key as u8)),
                self.slots(key) as i64,
                is_set,
                held,
                blocked,
            )
        });
        keys.filter(|(.., held, blocked)| held + blocked > 0)
            .collect()
    }

    pub fn edit(&mut self, job: u8, arguments: u8) -> EditOutcome {
        let Some(number) = self.picked_jobs(&[job]).first().copied() else {
            return EditOutcome::Missing;
        };
        let job = &mut self.jobs[number];
        match job.place {
            Place::Gone => EditOutcome::Missing,
            Place::Finished => EditOutcome::Ended,
            Place::Claimed(_) => EditOutcome::Claimed,
            // It stays where it is, with its slot if it has one.
            Place::Ready
            | Place::Blocked { .. }
            | Place::Waits
            | Place::Awaits { .. }
            | Place::Scheduled(_)
            | Place::Failed(_) => {
                job.arguments = arguments;
                job.version += 1;
                EditOutcome::Done
            }
        }
    }

    pub fn tag(&mut self, picks: &[u8], add: bool) -> Answer {
        let mut changed = self.picked_jobs(picks);
        changed.retain(|number| {
            let job = &self.jobs[*number];
            job.place != Place::Gone && job.has_tag != add
        });
        for number in &changed {
            self.jobs[*number].has_tag = add;
        }
        Answer::Moved(changed, BTreeSet::new())
    }
}

impl Taken<'_> {
    /// The classes that a worker claims which has those of `classes`.
    pub fn open_classes(&mut self, classes: u8) -> QueryResult<Vec<String>> {
        let paused = run_time::paused(&mut self.conn)?;
        let mut names = class_names(classes);
        names.retain(|name| !paused.contains(name));
        Ok(names)
    }

    pub fn pause_class(&mut self, class: u8) -> QueryResult<Answer> {
        let class = CLASSES[usize::from(class)];
        run_time::insert_class_pause(&mut self.conn, class, None, None).map(Answer::Is)
    }

    pub fn resume_class(&mut self, class: u8) -> QueryResult<Answer> {
        pause::resume_class(&mut self.conn, CLASSES[usize::from(class)]).map(Answer::Is)
    }

    pub fn set_limit(&mut self, key: Option<u8>, slots: u8) -> QueryResult<Answer> {
        let key = key_name(key);
        let new = NewRunTimeLimit {
            slots: Some(slots.into()),
            rate: None,
        };
        pause::set(&mut self.conn, &key, new, None, None)?;
        pause::request_group(&mut self.conn, &key)?;
        Ok(Answer::Nothing)
    }

    pub fn clear_limit(&mut self, key: Option<u8>) -> QueryResult<Answer> {
        let key = key_name(key);
        let cleared = pause::clear(&mut self.conn, &key, LimitPart::All)?;
        pause::request_group(&mut self.conn, &key)?;
        Ok(Answer::Is(cleared))
    }

    pub fn edit(&mut self, job: u8, number: u8) -> QueryResult<Answer> {
        let Some(job) = self.before.picked_jobs(&[job]).first().copied() else {
            return Ok(Answer::Edited(EditOutcome::Missing));
        };
        let edited = edit::edit(&mut self.conn, self.ids.jobs[job], |_| {
            QueryResult::Ok(NewArguments {
                text: arguments(number),
                version: None,
            })
        });
        edited.map(Answer::Edited)
    }

    pub fn tag(&mut self, picks: &[u8], add: bool) -> QueryResult<Answer> {
        let numbers = self.before.picked_jobs(picks).into_iter();
        let jobs: Vec<i64> = numbers.map(|number| self.ids.jobs[number]).collect();
        let change = if add {
            TagChange::Add("tag")
        } else {
            TagChange::Remove("tag")
        };
        let changed = edit::tag(&mut self.conn, &jobs, change)?;
        Ok(Answer::Moved(self.job_numbers(changed), BTreeSet::new()))
    }
}

/// Returns the names of the effects of settings and edits, and of changes to jobs of the third
/// delivery. The test checks that all of them happen.
pub fn kinds(step: &Step, answer: &Answer, before: &Model, after: &Model) -> Vec<String> {
    let mut kinds = Vec::new();
    let is_ready = |job: &Job, classes: &BTreeSet<u8>| {
        job.place == Place::Ready && classes.contains(&job.new.class)
    };
    match (step, answer) {
        (Step::Claim { .. }, Answer::Held(held)) if !held.is_empty() => {
            let mut jobs = before.jobs.iter();
            if jobs.any(|job| is_ready(job, &before.paused_classes)) {
                kinds.push("Claim beside a paused class");
            }
        }
        (Step::Promote, Answer::Moved(ready, discarded)) => {
            kinds.extend(of_set_limits(after, ready, discarded));
        }
        (Step::Edit { job, .. }, Answer::Edited(EditOutcome::Done)) => {
            let mut jobs = before
                .picked_jobs(&[*job])
                .into_iter()
                .map(|job| &before.jobs[job]);
            if jobs.any(|job| job.new.limit.is_some() && limits::is_held(job)) {
                kinds.push("Edit with a slot");
            }
        }
        (
            Step::End {
                end: End::Retry(_), ..
            },
            Answer::EndedAs(Some(End::Fail)),
        ) => {
            kinds.push("End too late");
        }
        (Step::Move { .. }, Answer::Moved(_, others)) => {
            let mut others = others.iter().map(|job| &before.jobs[*job]);
            let is_left = |job: &Job| {
                job.new.delivery == Delivery::AfterKnownOutcome
                    && job.place == Place::Failed("outcome_unknown")
                    && before.holder(job.new.name).is_none()
            };
            if others.any(is_left) {
                kinds.push("AfterKnownOutcome left alone");
            }
        }
        _ => {}
    }
    for (old, new) in before.jobs.iter().zip(&after.jobs) {
        if old.place == new.place || new.new.delivery != Delivery::AfterKnownOutcome {
            continue;
        }
        match (old.place, new.place) {
            (Place::Claimed(_), Place::Failed("outcome_unknown")) => {
                kinds.push("AfterKnownOutcome unknown");
            }
            (Place::Claimed(_), _) if matches!(step, Step::EndByError { .. }) => {
                kinds.extend(waits(new).then_some("AfterKnownOutcome tried again"));
            }
            (Place::Failed("test"), _) if waits(new) => {
                let by_hand = matches!(
                    step,
                    Step::Move {
                        what: Move::Retry {
                            even_at_most_once: false
                        },
                        ..
                    }
                );
                kinds.extend(by_hand.then_some("AfterKnownOutcome retried by hand"));
            }
            _ => {}
        }
    }
    kinds.into_iter().map(str::to_owned).collect()
}

fn waits(job: &Job) -> bool {
    matches!(
        job.place,
        Place::Ready | Place::Scheduled(_) | Place::Blocked { .. }
    )
}

/// Returns the effects of a set limit on a promotion.
fn of_set_limits(
    after: &Model,
    ready: &BTreeSet<usize>,
    discarded: &BTreeSet<usize>,
) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    for (key, declared) in SLOTS.iter().enumerate() {
        let Some(slots) = after.set_slots(key) else {
            continue;
        };
        let of_key = |job: &usize| after.jobs[*job].new.limit.map(usize::from) == Some(key);
        let held = after.held_slots(key);
        let is_blocked = |job: &Job| matches!(job.place, Place::Blocked { .. });
        if ready.iter().any(of_key) && held > *declared {
            kinds.push("Promote by a set limit");
        }
        if held < *declared && after.of_key(key).any(is_blocked) {
            kinds.push("Promote held back by a set limit");
        }
        if slots == 0 && discarded.iter().any(of_key) {
            kinds.push("Promote discarded by a limit of zero");
        }
    }
    kinds
}
