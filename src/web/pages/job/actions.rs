//! What can be done to a job, and why not.

use crate::admin::details::JobDetails;
use crate::admin::explain::Reason;
use crate::admin::job_info::TaskStatus;
use crate::job::policy::Delivery;

/// The actions on a job. `Ok` if it is possible; otherwise why not.
#[derive(Debug, Clone)]
pub(crate) struct JobActions {
    pub(crate) cancel: Result<(), &'static str>,
    pub(crate) discard: Result<(), &'static str>,
    pub(crate) retry: Result<(), &'static str>,
    pub(crate) run: Result<(), &'static str>,
    pub(crate) change: Result<(), &'static str>,
    /// Whether a retry asks first: the job runs at most once, and may have done its work.
    pub(crate) asks_to_retry: bool,
}

const NOT_OPERATOR: &str = "Only an operator may change jobs.";

const HAS_ENDED: &str = "It has ended.";

const RUNS: &str = "A process runs it.";

const FAILED: &str = "It has failed.";

impl JobActions {
    pub(crate) fn of(details: &JobDetails, is_operator: bool) -> Self {
        let explanation = &details.explanation;
        let asks_to_retry = matches!(
            explanation.delivery,
            Some(Delivery::AtMostOnce | Delivery::AfterKnownOutcome)
        );
        if !is_operator {
            return Self::all(Err(NOT_OPERATOR), asks_to_retry);
        }
        let has_failed = explanation.task.status == TaskStatus::Failed;
        let actions = |cancel, discard, retry, run, change| JobActions {
            cancel,
            discard,
            retry,
            run,
            change,
            asks_to_retry,
        };
        let (waits, not_failed) = (Err("It waits for no time."), Err("It has not failed."));
        match &explanation.reason {
            Reason::Scheduled { .. } => actions(Ok(()), Ok(()), not_failed, Ok(()), Ok(())),
            Reason::Ready { .. }
            | Reason::Blocked { .. }
            | Reason::Batch { .. }
            | Reason::Jobs { .. }
            | Reason::Event { .. }
            | Reason::Limited { .. }
            | Reason::InLine { .. } => actions(Ok(()), Ok(()), not_failed, waits, Ok(())),
            Reason::Claimed {
                cancel_requested_at,
                ..
            } => {
                let cancel = match cancel_requested_at {
                    Some(_) => Err("Its cancellation was requested already."),
                    None => Ok(()),
                };
                actions(cancel, Err(RUNS), not_failed, Err(RUNS), Err(RUNS))
            }
            // A job of which only the result is left has no row to change.
            Reason::Ended if has_failed && explanation.queue_name.is_some() => {
                actions(Err(FAILED), Ok(()), Ok(()), Err(FAILED), Err(FAILED))
            }
            Reason::Ended => Self::all(Err(HAS_ENDED), asks_to_retry),
            Reason::Adrift => Self::all(Err("It has no execution."), asks_to_retry),
        }
    }

    fn all(possible: Result<(), &'static str>, asks_to_retry: bool) -> Self {
        JobActions {
            cancel: possible,
            discard: possible,
            retry: possible,
            run: possible,
            change: possible,
            asks_to_retry,
        }
    }

    /// Returns why some of them are not possible, each reason with the actions: `Retry: it has not
    /// failed.`
    pub(crate) fn reasons(&self) -> Vec<String> {
        let named = [
            ("Cancel", self.cancel),
            ("Discard", self.discard),
            ("Change", self.change),
            ("Run now", self.run),
            ("Retry", self.retry),
        ];
        let refused: Vec<(&str, &str)> = named
            .into_iter()
            .filter_map(|(name, possible)| Some((name, possible.err()?)))
            .collect();
        if refused.len() == named.len() && refused.iter().all(|(_, why)| *why == refused[0].1) {
            return vec![refused[0].1.to_owned()];
        }
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (name, why) in refused {
            match reasons.iter_mut().find(|(other, _)| *other == why) {
                Some((_, names)) => names.push(name),
                None => reasons.push((why, vec![name])),
            }
        }
        let sentence = |(why, names): (&str, Vec<&str>)| {
            let (first, rest) = why.split_at(1);
            format!("{}: {}{rest}", names.join(", "), first.to_lowercase())
        };
        reasons.into_iter().map(sentence).collect()
    }
}
