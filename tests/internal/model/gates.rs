//! Jobs with rates, and jobs of tenants that take turns, by the reference. A database is free to choose which of them go on:
//! the reference takes its choice if that keeps all promises, and finds jobs that wait in vain.

use crate::db::internal_tests::model::limits::{self, DISCARDS, ORDERED, SLOTS};
use crate::db::internal_tests::model::reference::Answer;
use crate::db::internal_tests::model::shares::{RivalLead, Rivals};
use crate::db::internal_tests::model::state::{Job, Model, Place};
use crate::db::internal_tests::model::step::Step;
use crate::db::internal_tests::model::transitions::Taken;
use crate::db::table::{rates, semaphores, wanted_keys};
use crate::db::transition::promote;
use diesel::QueryResult;
use std::collections::{BTreeMap, BTreeSet};

/// A queue and a tenant.
pub type QueueShare = (u8, u8);

/// The tenant, the rates and the concurrency key that jobs have in common.
type LineKey = (Option<QueueShare>, Vec<u8>, Option<u8>);

/// Jobs that a promotion makes ready, and those that it discards.
pub type Moves = (BTreeSet<usize>, BTreeSet<usize>);

impl Job {
    /// Returns whether it waits in a line, until a promotion lets it through.
    pub fn is_gated(&self) -> bool {
        self.is_shared || !self.new.rates.is_empty()
    }

    fn line(&self) -> LineKey {
        let limit = self.new.limit;
        if limit == Some(ORDERED) {
            return (None, Vec::new(), limit);
        }
        let share = self.new.tenant.filter(|_| self.is_shared);
        let share = share.map(|tenant| (self.new.queue, tenant));
        let keys = self.new.rates.iter().map(|(key, _)| *key);
        (share, keys.collect(), limit)
    }
}

impl Model {
    fn is_blocked(&self, job: usize) -> bool {
        matches!(self.jobs[job].place, Place::Blocked { .. })
    }

    fn waits_in_line(&self, job: usize) -> bool {
        self.jobs[job].is_gated() && self.is_blocked(job)
    }

    /// Returns whose turn it is when a job goes on, if it has to wait for that.
    pub fn share(&self, job: usize) -> Option<QueueShare> {
        let job = &self.jobs[job];
        let is_part = job.is_shared || job.is_gated() && job.new.limit == Some(ORDERED);
        let share = (job.new.queue, job.new.tenant?);
        (is_part && self.shared.contains(&share.0)).then_some(share)
    }

    /// The blocked jobs of each line, in their order.
    pub fn lines(&self) -> BTreeMap<LineKey, Vec<usize>> {
        let mut lines: BTreeMap<LineKey, Vec<usize>> = BTreeMap::new();
        for job in (0..self.jobs.len()).filter(|job| self.waits_in_line(*job)) {
            lines.entry(self.jobs[job].line()).or_default().push(job);
        }
        for line in lines.values_mut() {
            line.sort_by_key(|job| (limits::rank(&self.jobs[*job]), *job));
        }
        lines
    }

    /// The blocked jobs of a key, in their order: those without a line, or all if it is an ordered one.
    fn waiting_for(&self, key: u8) -> Vec<usize> {
        let waits = |job: &usize| {
            let is_alone = !self.jobs[*job].is_gated() || key == ORDERED;
            self.jobs[*job].new.limit == Some(key) && self.is_blocked(*job) && is_alone
        };
        let mut waiting: Vec<usize> = (0..self.jobs.len()).filter(waits).collect();
        waiting.sort_by_key(|job| (limits::rank(&self.jobs[*job]), *job));
        waiting
    }

    /// Returns whether jobs in lines wait for this key: then the database chooses among all of its jobs.
    pub fn is_mixed(&self, key: usize) -> bool {
        let of_key = |job: &usize| self.jobs[*job].new.limit.map(usize::from) == Some(key);
        (0..self.jobs.len()).any(|job| of_key(&job) && self.waits_in_line(job))
    }

    /// Takes the choice of a database. Returns which of its moves are not determined otherwise, or the promise that they break.
    pub fn pass_gates(&mut self, done: &Answer, old: &BTreeSet<usize>) -> Result<Moves, String> {
        let lines = self.lines();
        let of_keys = (0..SLOTS.len()).filter(|key| self.is_mixed(*key));
        let mixed: BTreeSet<u8> = of_keys.map(|key| key as u8).collect();
        let orders = lines.into_values();
        let orders = orders.chain(mixed.iter().map(|key| self.waiting_for(*key)));
        let orders: Vec<Vec<usize>> = orders.collect();
        let empty = BTreeSet::new();
        let (ready, gone) = match done {
            Answer::Moved(ready, gone) => (ready, gone),
            _ => (&empty, &empty),
        };
        let is_free = |job: &&usize| {
            let is_free = self.jobs.get(**job).is_some_and(|job| {
                job.is_gated() || job.new.limit.is_some_and(|key| mixed.contains(&key))
            });
            is_free && self.is_blocked(**job)
        };
        let ready: BTreeSet<usize> = ready.iter().filter(is_free).copied().collect();
        let gone: BTreeSet<usize> = gone.iter().filter(is_free).copied().collect();
        for order in &orders {
            let mut moved = order
                .iter()
                .map(|job| ready.contains(job) || gone.contains(job));
            if moved.by_ref().any(|moved| !moved) && moved.any(|moved| moved) {
                return Err(format!("{order:?} go on in this order"));
            }
        }
        for job in &ready {
            self.promise(*job)?;
            self.jobs[*job].place = Place::Ready;
        }
        self.check_slots(&ready, &gone)?;
        gone.iter().for_each(|job| self.discard_late(*job));
        self.check_turns(&ready, old)?;
        Ok((ready, gone))
    }

    fn check_slots(&self, ready: &BTreeSet<usize>, gone: &BTreeSet<usize>) -> Result<(), String> {
        for job in ready.iter().chain(gone) {
            let Some(key) = self.jobs[*job].new.limit.map(usize::from) else {
                continue;
            };
            let (held, slots) = (self.held_slots(key), self.slots(key));
            if ready.contains(job) && held > slots {
                return Err(format!(
                    "{held} jobs of {slots} hold a slot, with job {job}"
                ));
            }
            let job = &self.jobs[*job];
            let is_late = match job.place {
                _ if job.is_gated() => key == usize::from(DISCARDS) && !limits::has_begun(job),
                place => place == Place::Blocked { waits: false },
            };
            if gone.iter().any(|one| std::ptr::eq(&self.jobs[*one], job))
                && (!is_late || held < slots)
            {
                return Err(format!(
                    "{job:?} waits, and {held} of {slots} slots are taken"
                ));
            }
        }
        Ok(())
    }

    /// Promotions have come to an end. Returns a job that waits though all of its gates are open.
    pub fn standstill(&self) -> Option<String> {
        let lines = self.lines().into_values();
        let firsts: Vec<usize> = lines.filter_map(|line| line.first().copied()).collect();
        let alone = (0..SLOTS.len()).filter_map(|key| self.waiting_for(key as u8).first().copied());
        let all: BTreeSet<usize> = firsts.iter().copied().chain(alone).collect();
        let mut stuck = all.into_iter().filter(|job| {
            let is_open = |(key, cost): &(u8, u8)| {
                self.has_tokens(*key, *cost) && !self.is_held_up(*job, *key, &firsts)
            };
            self.has_slot(*job)
                && self.jobs[*job].new.rates.iter().all(is_open)
                && self
                    .share(*job)
                    .is_none_or(|(queue, _)| !self.has_ready(queue))
        });
        let stuck = stuck.next()?;
        let rates = &self.rates;
        Some(format!(
            "job {stuck} waits for nothing, of {firsts:?}: {rates:?}"
        ))
    }

    /// Returns whether there is a slot for a job, if it needs one, and no other comes first.
    fn has_slot(&self, job: usize) -> bool {
        let Some(key) = self.jobs[job].new.limit else {
            return true;
        };
        let is_next = key != ORDERED || self.waiting_for(key).first() == Some(&job);
        is_next && self.held_slots(key.into()) < self.slots(key.into())
    }

    /// Returns whether a job before this one waits for more tokens of a key than there are. Of an ordered key, any may.
    fn is_held_up(&self, job: usize, key: u8, firsts: &[usize]) -> bool {
        let place = |job: usize| (limits::rank(&self.jobs[job]), job);
        let ordered = self.waiting_for(ORDERED);
        let mut before = firsts
            .iter()
            .chain(&ordered)
            .filter(|first| place(**first) < place(job));
        before.any(|first| {
            let mut rates = self.jobs[*first].new.rates.iter();
            rates.any(|(of, cost)| *of == key && !self.has_tokens(*of, *cost))
        })
    }

    fn has_ready(&self, queue: u8) -> bool {
        let mut jobs = self.jobs.iter();
        jobs.any(|job| job.new.queue == queue && job.place == Place::Ready)
    }

    /// Promotes as often as a database did, and looks for jobs that wait in vain.
    pub fn promote_on(&mut self, done: &Answer) -> Answer {
        let Answer::Rounds(rounds) = done else {
            return Answer::Rounds(Vec::new());
        };
        let mut answers = Vec::new();
        for round in rounds {
            match self.promote_all(round) {
                Answer::Never(why) => return Answer::Never(why),
                answer => answers.push(answer),
            }
            self.notice();
        }
        self.standstill()
            .map_or(Answer::Rounds(answers), Answer::Never)
    }
}

/// The most promotions until nothing moves.
const MOST_ROUNDS: usize = 100;

impl Taken<'_> {
    /// With every key that is wanted: at most three, each named by few steps.
    pub fn promote(&mut self) -> QueryResult<Answer> {
        self.promote_once().map(|(answer, _)| answer)
    }

    fn promote_once(&mut self) -> QueryResult<(Answer, bool)> {
        const MOST: usize = 10_000;
        if self.before.has_uncounted() {
            rates::count_soon(&mut self.conn)?;
        }
        let done = promote::promote(&mut self.conn, MOST)?;
        let is_progress = done.is_progress(MOST);
        let discarded = done.discarded.iter().map(|job| job.id).collect();
        let (ready, discarded) = (self.job_numbers(done.ready), self.job_numbers(discarded));
        Ok((Answer::Moved(ready, discarded), is_progress))
    }

    pub fn promote_on(&mut self) -> QueryResult<Answer> {
        let mut rounds = Vec::new();
        while rounds.len() < MOST_ROUNDS {
            let (round, is_progress) = self.promote_once()?;
            rounds.push(round);
            let is_requested = semaphores::is_requested(&mut self.conn, wanted_keys::BEGINNING)?;
            if !is_progress && !is_requested {
                return Ok(Answer::Rounds(rounds));
            }
        }
        Ok(Answer::Never("promotions come to no end".to_owned()))
    }
}

/// Returns the names of what promotions do at gates. The test checks that all of them happen.
pub fn kinds(step: &Step, before: &Model, after: &Model) -> Vec<String> {
    let mut kinds = Vec::new();
    if !matches!(step, Step::Promote | Step::PromoteOn) {
        return kinds;
    }
    let has_moved = |(rivals, lead): (&Rivals, &RivalLead)| {
        before.leads.get(rivals).is_some_and(|old| old != lead)
    };
    if after.leads.iter().any(has_moved) {
        kinds.push("Promote in turns".to_owned());
    }
    for (number, (old, new)) in before.jobs.iter().zip(&after.jobs).enumerate() {
        let share = before.share(number).is_some();
        let gates = (share, old.new.rates.len(), old.new.limit.is_some());
        let what = match (old.place, new.place) {
            _ if !old.is_gated() && new.is_gated() => "takes a place in line",
            (Place::Blocked { .. }, Place::Ready) => match gates {
                (false, 1, false) => "by a rate",
                (false, 2, false) => "by two rates",
                (false, 1.., true) => "by a rate and a slot",
                (true, 0, false) => "by a turn",
                (true, 1.., false) => "by a turn and a rate",
                (true, 0, true) => "by a turn and a slot",
                (true, _, true) => "by all gates",
                (false, 0, _) if old.is_gated() => "after the end of turns",
                _ => continue,
            },
            (Place::Blocked { .. }, Place::Finished) if old.is_gated() => "discards in line",
            (Place::Blocked { .. }, Place::Blocked { .. }) => match gates {
                (false, 1.., _) => "held back by a rate",
                (true, ..) => "held back by turns",
                _ => continue,
            },
            _ => continue,
        };
        kinds.push(format!("Promote {what}"));
        let waited = |(key, _): &(u8, u8)| {
            let rate = before.rates.get(key);
            rate.is_some_and(|rate| rate.counted_at < after.now)
        };
        if new.place == Place::Ready && old.new.rates.iter().any(waited) {
            kinds.push("Promote after time has passed".to_owned());
        }
    }
    kinds
}
