//! What can be done to many jobs at once.

use crate::admin::bulk::change::Change;
use crate::db::model::state::JobState;
use crate::web::http::page_error::PageError;
use crate::web::http::pairs::Pairs;
use std::time::Duration;

/// An action of the list of jobs, or of the failed groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BulkAction {
    Retry,
    Run,
    Move,
    Priority,
    Cancel,
    Discard,
}

/// The states of jobs that wait.
const WAITING: [JobState; 3] = [JobState::Scheduled, JobState::Blocked, JobState::Ready];

impl BulkAction {
    pub(crate) const ALL: [(&'static str, BulkAction); 6] = [
        ("retry", BulkAction::Retry),
        ("run", BulkAction::Run),
        ("move", BulkAction::Move),
        ("priority", BulkAction::Priority),
        ("cancel", BulkAction::Cancel),
        ("discard", BulkAction::Discard),
    ];

    /// Reads the action of an address or a form.
    ///
    /// # Errors
    /// If there is none of this name.
    pub(crate) fn of(pairs: &Pairs) -> Result<Self, PageError> {
        let asked = pairs.get("do").unwrap_or_default();
        let found = Self::ALL.into_iter().find(|(name, _)| *name == asked);
        found.map(|(_, action)| action).ok_or_else(|| {
            PageError::Invalid(
                "What is done to jobs is one of: retry, run, move, priority, cancel, discard."
                    .to_owned(),
            )
        })
    }

    /// Returns the states whose jobs it changes, in the order in which they are changed.
    pub(crate) fn states(self) -> Vec<JobState> {
        match self {
            BulkAction::Retry => vec![JobState::Failed],
            BulkAction::Run => vec![JobState::Scheduled],
            BulkAction::Move | BulkAction::Priority => WAITING.to_vec(),
            BulkAction::Cancel => [&[JobState::Claimed], &WAITING[..]].concat(),
            BulkAction::Discard => [&WAITING[..], &[JobState::Failed]].concat(),
        }
    }

    /// Returns its verb, at the start of a sentence.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            BulkAction::Retry => "Retry",
            BulkAction::Run => "Run now",
            BulkAction::Move => "Move",
            BulkAction::Priority => "Change the priority of",
            BulkAction::Cancel => "Cancel",
            BulkAction::Discard => "Discard",
        }
    }

    /// Returns which jobs it changes, for the case that there are none of them.
    pub(crate) fn of_which(self) -> &'static str {
        match self {
            BulkAction::Retry => "Only failed jobs can be retried.",
            BulkAction::Run => "Only scheduled jobs can be run now: the others wait for no time.",
            BulkAction::Move => "Only jobs that wait can be moved.",
            BulkAction::Priority => "Only jobs that wait can have another priority.",
            BulkAction::Cancel => "Only jobs that wait or run can be cancelled.",
            BulkAction::Discard => "Only jobs that wait or have failed can be discarded.",
        }
    }

    /// Returns what happens to the jobs, and what cannot be undone.
    pub(crate) fn consequence(self) -> &'static str {
        match self {
            BulkAction::Retry => {
                "They are ready again, with all their attempts. Those whose unique id another job holds by now stay failed."
            }
            BulkAction::Run => "They are ready at once, and do not wait for their time.",
            BulkAction::Move => "They keep their time, their priority and a slot that they hold.",
            BulkAction::Priority => "A smaller number is more important.",
            BulkAction::Cancel => {
                "Those that wait do not run any more. Those that run are asked to stop. Cancelled jobs cannot be retried."
            }
            BulkAction::Discard => {
                "They will not run again, and all that is stored about them is deleted. This cannot be undone. Their unique ids become free."
            }
        }
    }

    /// Returns the change, with the values of the form.
    ///
    /// # Errors
    /// If a value is missing or wrong.
    pub(crate) fn change(self, form: &Pairs) -> Result<Change, PageError> {
        let missing = |what: &str| PageError::Invalid(format!("Nothing was changed: {what}."));
        Ok(match self {
            BulkAction::Retry => Change::Retry {
                even_at_most_once: form.has("even_at_most_once"),
            },
            BulkAction::Run => Change::RunIn(Duration::ZERO),
            BulkAction::Move => {
                let queue = form.get("to_queue").map(str::trim);
                let queue = queue.filter(|queue| !queue.is_empty());
                Change::Queue(
                    queue
                        .ok_or_else(|| missing("a queue is needed"))?
                        .to_owned(),
                )
            }
            BulkAction::Priority => {
                let text = form.get("to_priority").unwrap_or_default().trim();
                let wrong = || missing("a priority is a whole number");
                Change::Priority(text.parse().map_err(|_| wrong())?)
            }
            BulkAction::Cancel => Change::Cancel,
            BulkAction::Discard => Change::Discard,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_needs_its_values() {
        let form = |text: &str| Pairs::parse(text.as_bytes());
        assert_eq!(BulkAction::of(&form("do=move")).unwrap(), BulkAction::Move);
        assert!(BulkAction::of(&form("do=explode")).is_err());
        assert!(BulkAction::of(&form("")).is_err());
        let moved = BulkAction::Move.change(&form("to_queue=+slow+")).unwrap();
        assert_eq!(moved, Change::Queue("slow".to_owned()));
        assert!(BulkAction::Move.change(&form("to_queue=+")).is_err());
        assert!(
            BulkAction::Priority
                .change(&form("to_priority=high"))
                .is_err()
        );
        let ranked = BulkAction::Priority.change(&form("to_priority=-5"));
        assert_eq!(ranked.unwrap(), Change::Priority(-5));
    }
}
