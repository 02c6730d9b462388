//! How many times a job may start.

use serde::{Deserialize, Serialize};

/// How many times a job may start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The job runs until the outcome of one run is stored in the database.
    ///
    /// A run that was cut short is repeated, so effects outside the database may happen twice.
    #[default]
    AtLeastOnce,
    /// The job runs once or not at all.
    ///
    /// An uncertain outcome is never resolved by running the job again. The job fails, to be
    /// checked by hand, if its process dies during the run or the shutdown deadline passes. It also
    /// fails if it exceeds its timeout or returns an error. Only a job that was claimed but not
    /// started goes back to the queue.
    AtMostOnce,
    /// The job runs again only after a run whose outcome is known.
    ///
    /// If the job's code returns, its outcome is known: an error, a panic, a snooze, and an
    /// interruption that the job noticed itself are treated as with
    /// [`AtLeastOnce`](Self::AtLeastOnce), with as many attempts as the policy has. If a run is cut
    /// off, because its process died, the shutdown deadline passed or the job overran its timeout
    /// and the grace, the job fails with the kind `outcome_unknown`, to be checked by hand, as with
    /// [`AtMostOnce`](Self::AtMostOnce).
    ///
    /// Programs of versions without this value treat such jobs as at most once.
    AfterKnownOutcome,
}

impl Delivery {
    /// Returns the delivery that every version knows, as columns of their own name it.
    pub(crate) fn as_every_version_knows_it(self) -> Self {
        match self {
            Delivery::AfterKnownOutcome => Delivery::AtMostOnce,
            other => other,
        }
    }

    /// Returns the delivery of a stored value and the refinement of it in the policy.
    pub(crate) fn refined(stored: Option<Self>, refinement: Option<Self>) -> Option<Self> {
        match (stored, refinement) {
            (Some(Delivery::AtMostOnce), Some(Delivery::AfterKnownOutcome)) => refinement,
            _ => stored,
        }
    }

    /// Whether the policy's JSON does not have to name it.
    pub(crate) fn is_stored_elsewhere(delivery: &Option<Self>) -> bool {
        *delivery != Some(Delivery::AfterKnownOutcome)
    }
}
