//! The state of the reference, and the meaning of a step's picks in it.
//!
//! Jobs, processes and claims are numbered in the order in which they came
//! to be; what a database calls them is not known here.

use crate::db::internal_tests::model::batches::{BatchState, InBatch};
use crate::db::internal_tests::model::edges::{Asked, Edge};
use crate::db::internal_tests::model::step::{By, End, New, When, Which};
use std::collections::{BTreeMap, BTreeSet};

/// The place of a job: its execution, or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Ready,
    Blocked {
        /// Otherwise it ends where it finds no slot.
        waits: bool,
    },
    /// Until jobs or batches have ended.
    Waits,
    /// At a step, for an event or until its time is over.
    Awaits {
        event: u8,
        is_late: bool,
    },
    Claimed(usize),
    Scheduled(Due),
    Failed(&'static str),
    Finished,
    /// Its row was deleted.
    Gone,
}

/// The time at which a scheduled job is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// So many seconds after it was scheduled, just now.
    In(u32),
    /// Not within the test.
    Far,
    /// Already, in the order of these numbers.
    Already(u8),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub new: New,
    pub place: Place,
    pub attempts: i32,
    pub crash_count: i32,
    pub last_claim: Option<usize>,
    /// The number of attempts that are stored.
    pub attempts_kept: i64,
    /// True if it waits for its next run, and not for its first or since it was moved.
    pub keeps_place: bool,
    /// Zero until they are edited.
    pub arguments: u8,
    pub has_tag: bool,
    pub in_batch: Option<InBatch>,
    /// True if it has ended by a cancel.
    pub is_cancelled: bool,
    /// True if it has ended in another way without having finished, or if its row was deleted then.
    pub is_discarded: bool,
    /// True if others wait for it, or did.
    pub has_dependents: bool,
    /// True if a result says that it has not finished.
    pub has_result: bool,
    /// Its end of which those that wait for it were to hear last.
    pub noticed: Option<Place>,
    /// The values of steps at which it has waited, by their names.
    pub steps: BTreeMap<String, String>,
    /// True if it stands for a batch in a batch.
    pub is_nested: bool,
    /// Grows when it is touched although nothing of the above changes.
    pub version: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub registered: bool,
    pub heartbeat_seq: i64,
    pub draining: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub job: usize,
    pub process: usize,
    pub cancelled: bool,
    /// True if it was claimed in the place of another, so that its job may not have started.
    pub is_next: bool,
    pub verdict: Option<End>,
}

#[derive(Debug, Clone, Default)]
pub struct Model {
    pub jobs: Vec<Job>,
    pub processes: Vec<Process>,
    pub claims: Vec<Claim>,
    pub paused: BTreeSet<u8>,
    pub paused_classes: BTreeSet<u8>,
    /// The slots that were set for a key, or for the group.
    pub limits: BTreeMap<Option<u8>, u8>,
    pub batches: Vec<BatchState>,
    pub edges: Vec<Edge>,
    pub asked: Asked,
    /// The payloads of events.
    pub events: BTreeMap<u8, u8>,
}

impl Job {
    pub fn new(new: &New) -> Self {
        let mut job = Job {
            new: new.clone(),
            place: Place::Ready,
            attempts: 0,
            crash_count: 0,
            last_claim: None,
            attempts_kept: 0,
            keeps_place: false,
            arguments: 0,
            has_tag: false,
            in_batch: None,
            is_cancelled: false,
            is_discarded: false,
            has_dependents: false,
            has_result: false,
            noticed: None,
            steps: BTreeMap::new(),
            is_nested: false,
            version: 0,
        };
        job.place = job.first_place();
        job
    }

    /// Returns the place of a job that may start: by its time, unless that has passed with an earlier run.
    pub fn first_place(&self) -> Place {
        match self.last_claim {
            Some(_) => Place::Ready,
            None => by_time(&self.new),
        }
    }
}

/// Returns the place of a job that was enqueued just now, by its time.
pub fn by_time(new: &New) -> Place {
    match new.when {
        When::Now | When::Past => Place::Ready,
        When::Future => Place::Scheduled(Due::Far),
        When::After(seconds) => Place::Scheduled(Due::In(u32::from(seconds))),
    }
}

/// The meaning of a step's picks at this moment.
impl Model {
    pub fn process(&self, which: Which) -> Option<usize> {
        let all = 0..self.processes.len();
        match which {
            Which::Ever(number) => pick(all, number),
            Which::Now(number) => pick(
                all.filter(|process| self.processes[*process].registered),
                number,
            ),
        }
    }

    pub fn claim(&self, which: Which) -> Option<usize> {
        let all = 0..self.claims.len();
        match which {
            Which::Ever(number) => pick(all, number),
            Which::Now(number) => pick(all.filter(|claim| self.is_held(*claim)), number),
        }
    }

    pub fn picked(&self, claims: &[Which]) -> Vec<usize> {
        claims
            .iter()
            .filter_map(|which| self.claim(*which))
            .collect()
    }

    pub fn owner(&self, by: By, claims: &[Which]) -> Option<usize> {
        match by {
            By::Owner => self
                .picked(claims)
                .first()
                .map(|claim| self.claims[*claim].process),
            By::Process(which) => self.process(which),
        }
    }

    /// Jobs that are there or were.
    pub fn picked_jobs(&self, numbers: &[u8]) -> BTreeSet<usize> {
        let pick = |number: &u8| pick(0..self.jobs.len(), *number);
        numbers.iter().filter_map(pick).collect()
    }

    pub fn scheduled(&self, number: u8) -> Option<usize> {
        let scheduled = |job: &usize| matches!(self.jobs[*job].place, Place::Scheduled(_));
        pick((0..self.jobs.len()).filter(scheduled), number)
    }

    pub fn alive(&self, which: Which) -> Option<usize> {
        self.process(which)
            .filter(|process| self.processes[*process].registered)
    }

    pub fn is_held(&self, claim: usize) -> bool {
        self.jobs[self.claims[claim].job].place == Place::Claimed(claim)
    }

    pub fn held_by(&self, process: usize) -> Vec<(usize, usize)> {
        (0..self.claims.len())
            .filter(|claim| self.is_held(*claim) && self.claims[*claim].process == process)
            .map(|claim| (claim, self.claims[claim].job))
            .collect()
    }

    pub fn job_of(&mut self, claim: usize) -> &mut Job {
        &mut self.jobs[self.claims[claim].job]
    }
}

fn pick(all: impl Iterator<Item = usize>, number: u8) -> Option<usize> {
    let all: Vec<usize> = all.collect();
    (!all.is_empty()).then(|| all[usize::from(number) % all.len()])
}

/// Of the claims that a process holds, those that it does not remember.
pub fn forgotten(held: &[(usize, usize)], memory: u8) -> impl Iterator<Item = usize> {
    let bit = move |index: usize| memory & (1 << (index % 8)) != 0;
    held.iter()
        .enumerate()
        .filter(move |(index, _)| !bit(*index))
        .map(|(_, (claim, _))| *claim)
}
