//! The result of a promotion.

use crate::db::model::claim::Claimed;
use crate::db::table::jobs::EndedJob;
use std::time::Duration;

/// The result of a promotion.
#[derive(Debug, Default)]
pub(crate) struct Promoted {
    /// Jobs that are ready now.
    pub(crate) ready: Vec<i64>,
    /// Jobs that the process has claimed at once, as [`ClaimsAtGate`](crate::db::model::claim::ClaimsAtGate) says.
    pub(crate) claimed: Vec<Claimed>,
    /// Jobs that found no slot and do not wait, or are not wanted after what they waited for has ended.
    pub(crate) discarded: Vec<Discarded>,
    /// The number of jobs that waited for a job or a batch that has ended now, or wait no longer.
    pub(crate) followed: usize,
    /// Batches of which a job has ended, and that are not over.
    pub(crate) open_batches: Vec<i64>,
    /// The number of requests that were processed.
    pub(crate) requests: usize,
    /// Those that could not be read, and are dropped.
    pub(crate) invalid: Vec<String>,
    /// The number of requests that must be processed again: another transaction has locked jobs of theirs.
    pub(crate) left_over: usize,
    /// True if it has reached the limit of one promotion, so that another one goes on.
    pub(crate) has_rest: bool,
    /// Why a request could not be handled, if the database has refused it.
    pub(crate) refused: Option<String>,
    /// The time that the check for requests took.
    pub(crate) search_took: Duration,
    /// The time until the next rate is due, if this promotion has looked at one.
    pub(crate) next_due: Option<Duration>,
    /// True if it has locked gates of jobs with rates.
    pub(crate) has_gates: bool,
}

impl Promoted {
    /// Returns whether there may be more to do at once: not if other transactions have locked
    /// everything that is left.
    pub(crate) fn is_progress(&self, chunk: usize) -> bool {
        let is_full = self.requests >= chunk && self.left_over < self.requests;
        self.has_moved() || self.followed > 0 || is_full
    }

    /// Returns whether other transactions may have left requests to this one, whose keys it had locked, or that are behind
    /// a refused one.
    pub(crate) fn may_be_left(&self) -> bool {
        self.requests > 0 || self.has_gates || self.refused.is_some()
    }

    /// Returns whether the caller promotes once more at once: what is left over is locked, and the rest of large keys is as
    /// well done by others.
    pub(crate) fn goes_on(&self) -> bool {
        let is_stuck = self.left_over > 0 && self.followed == 0;
        self.may_be_left() && !self.has_rest && !is_stuck
    }

    pub(crate) fn has_moved(&self) -> bool {
        !self.ready.is_empty() || !self.claimed.is_empty() || !self.discarded.is_empty()
    }

    /// Adds what the next promotion has done.
    pub(crate) fn extend(&mut self, next: Promoted) {
        self.ready.extend(next.ready);
        self.claimed.extend(next.claimed);
        self.discarded.extend(next.discarded);
        self.open_batches.extend(next.open_batches);
        self.followed += next.followed;
        self.requests += next.requests;
        self.invalid.extend(next.invalid);
        self.left_over += next.left_over;
        self.has_rest |= next.has_rest;
        self.refused = self.refused.take().or(next.refused);
        self.next_due = self.next_due.or(next.next_due);
        self.has_gates |= next.has_gates;
    }
}

/// A job that was discarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Discarded {
    pub(crate) id: i64,
    pub(crate) class_name: String,
    pub(crate) queue_name: String,
    /// The kind of its failure.
    pub(crate) kind: &'static str,
}

impl Discarded {
    pub(crate) fn of(job: EndedJob, kind: &'static str) -> Self {
        Discarded {
            id: job.id,
            class_name: job.class_name,
            queue_name: job.queue_name,
            kind,
        }
    }
}
