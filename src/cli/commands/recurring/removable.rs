//! The values of a recurring task that `--unset` removes.

use crate::db::model::recurring::{Definition, Overlap};
use crate::recurring::missed::MissedTicks;
use crate::recurring::stored::Options;
use clap::ValueEnum;

/// A value that can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Removable {
    Description,
    From,
    Until,
    Jitter,
    Missed,
    Overlap,
    /// Also `--ahead-by` and `--behind-by`
    Priority,
    Attempts,
    Backoff,
    /// Also `--retry-until`
    RetryFor,
    /// Also `--retry-for`
    RetryUntil,
    ExpiresIn,
    Timeout,
    KeepResult,
    Delivery,
}

impl Removable {
    pub(crate) fn remove(self, task: &mut Definition, stored: &mut Options) {
        match self {
            Removable::Description => task.description = None,
            Removable::From => stored.from = None,
            Removable::Until => stored.until = None,
            Removable::Jitter => stored.jitter = None,
            Removable::Missed => stored.missed = MissedTicks::default(),
            Removable::Overlap => stored.overlap = Overlap::default(),
            Removable::Priority => {
                task.priority = 0;
                stored.ahead_by = None;
            }
            Removable::Attempts => stored.max_attempts = None,
            Removable::Backoff => stored.policy.backoff = None,
            Removable::RetryFor | Removable::RetryUntil => stored.policy.retry_limit = None,
            Removable::ExpiresIn => stored.policy.expiry = None,
            Removable::Timeout => stored.policy.timeout = None,
            Removable::KeepResult => stored.policy.keep_result = None,
            Removable::Delivery => stored.delivery = None,
        }
    }
}
