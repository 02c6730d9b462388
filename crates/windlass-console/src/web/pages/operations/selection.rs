//! The jobs and the action of an operation that is about to be started.

use crate::read::job_list::{self, ListedJob};
use crate::read::sql::job_search::JobSearch;
use crate::read::sql::job_window::ListPosition;
use crate::web::http::{PageError, Pairs};
use crate::web::pages::jobs::filters::{JobFilters, When, name_of};
use chrono::{NaiveDateTime, Timelike as _};
use diesel::QueryResult;
use std::time::Duration;
use windlass::jobs::{Change, JobState, Jobs};
use windlass::{BatchId, Conn, JobId};

// --- The selection of jobs: those that were ticked, or all that match the filters ---

/// The most jobs that are ticked at once.
const MOST: usize = 500;

/// The most jobs that a preview shows.
const SAMPLE: usize = 10;

/// The jobs of an operation that is about to be started.
#[derive(Debug, Clone)]
pub(crate) struct OperationSelection {
    pub(crate) action: OperationAction,
    filters: JobFilters,
    /// The ids of those that were ticked. `None` for all that match.
    ids: Option<Vec<i64>>,
}

impl OperationSelection {
    /// Reads the selection of an address or a form. What is relative to `now` becomes a time, so that
    /// the selection stays the same.
    ///
    /// # Errors
    /// If something of it is wrong, no job was ticked, or the action changes no job of the state.
    pub(crate) fn of(pairs: &Pairs, now: NaiveDateTime) -> Result<Self, PageError> {
        let action = OperationAction::of(pairs)?;
        let mut filters = JobFilters::of(pairs)?;
        let (from, to) = filters.when.bounds(now);
        // As addresses and forms hold it.
        let whole = |at: NaiveDateTime| at.with_nanosecond(0).unwrap_or(at);
        filters.when = When {
            since: "",
            from: from.map(whole),
            to: to.map(whole),
        };
        let ids = match pairs.get("which") {
            Some("matching") => None,
            _ => Some(ticked(pairs)?),
        };
        let selection = OperationSelection {
            action,
            filters,
            ids,
        };
        if selection.ids.is_none() && !selection.filters.text("args").is_empty() {
            return Err(PageError::Invalid(
                "Jobs that are found by their arguments are selected one by one.".to_owned(),
            ));
        }
        if selection.states().is_empty() {
            return Err(PageError::Invalid(action.of_which().to_owned()));
        }
        Ok(selection)
    }

    /// Returns the states of the jobs: those that the action changes, within the filter.
    fn states(&self) -> Vec<JobState> {
        let mut states = self.action.states();
        if let (Some(state), None) = (self.filters.state, &self.ids) {
            states.retain(|other| *other == state);
        }
        states
    }

    /// Returns the jobs, for a count and a change.
    pub(crate) fn jobs(&self) -> Jobs {
        let mut jobs = Jobs::unfinished();
        jobs.states = self.states();
        if let Some(ids) = &self.ids {
            return jobs.ids(ids.iter().map(|id| JobId(*id)));
        }
        let filters = &self.filters;
        let text = |name: &str| Some(filters.text(name).to_owned()).filter(|text| !text.is_empty());
        if let Some(queue) = text("queue") {
            jobs = jobs.queue(queue);
        }
        if let Some(class) = text("class") {
            jobs = jobs.class(class);
        }
        if let Some(error) = text("error") {
            jobs = jobs.error_contains(error);
        }
        if let Some(id) = text("uid") {
            jobs = jobs.unique_id(id);
        }
        if let Some(tag) = text("tag") {
            jobs = jobs.tagged([tag]);
        }
        if let Some(batch) = filters.batch() {
            jobs = jobs.batch(BatchId(batch));
        }
        if let Some(fingerprint) = text("group") {
            jobs = jobs.fingerprint(fingerprint);
        }
        let utc = |at: Option<NaiveDateTime>| at.map(|at| at.and_utc());
        let (from, to) = (utc(filters.when.from), utc(filters.when.to));
        match filters.state {
            Some(JobState::Failed) => jobs.failed_between(from, to),
            _ => jobs.created_between(from, to),
        }
    }

    /// Reads some of the jobs, the newest of each state.
    pub(crate) fn sample(&self, conn: &mut Conn<'_>) -> QueryResult<Vec<ListedJob>> {
        let states = self.states();
        let mut jobs = match &self.ids {
            Some(ids) => job_list::listed(conn, ids)?,
            None => Vec::new(),
        };
        if self.ids.is_none() {
            for state in &states {
                let search = JobSearch {
                    state: Some(*state),
                    by_enqueue: self.filters.state != Some(JobState::Failed),
                    ..self.filters.search()
                };
                let times = (self.filters.when.from, self.filters.when.to);
                let position = ListPosition::Before(i64::MAX);
                jobs.extend(job_list::list(conn, &search, times, position, SAMPLE)?.jobs);
            }
        }
        jobs.retain(|job| job.state.is_some_and(|state| states.contains(&state)));
        jobs.truncate(SAMPLE);
        Ok(jobs)
    }

    /// Returns the selection as pairs of an address or a form.
    pub(crate) fn pairs(&self) -> Vec<(String, String)> {
        let mut pairs: Vec<(String, String)> = match &self.ids {
            Some(ids) => ids
                .iter()
                .map(|id| ("job".to_owned(), id.to_string()))
                .collect(),
            None => {
                let filters = self.filters.pairs();
                let pairs = filters.iter();
                let mut pairs: Vec<_> = pairs
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect();
                pairs.push(("which".to_owned(), "matching".to_owned()));
                pairs
            }
        };
        let action = OperationAction::ALL
            .into_iter()
            .find(|(_, other)| *other == self.action);
        pairs.extend(action.map(|(name, _)| ("do".to_owned(), name.to_owned())));
        pairs
    }

    /// Returns the path of its preview.
    pub(crate) fn path(&self) -> String {
        let pairs: Pairs = self.pairs().into_iter().collect();
        format!("/preview{}", pairs.to_query())
    }

    /// Returns the path of the list that it came from.
    pub(crate) fn back(&self) -> String {
        match self.ids {
            Some(_) => "/jobs".to_owned(),
            None => format!("/jobs{}", self.filters.pairs().to_query()),
        }
    }

    /// Returns the jobs in words, each part with its name.
    pub(crate) fn in_words(&self) -> Vec<(&'static str, String)> {
        let states: Vec<&str> = self.states().into_iter().map(name_of).collect();
        let mut words = vec![("Jobs that are", states.join(", "))];
        match &self.ids {
            Some(ids) => words.push(("Selected", format!("{} by their ids", ids.len()))),
            None => {
                let chips = self.filters.chips();
                words.extend(chips.into_iter().map(|chip| ("With", chip.text)));
            }
        }
        words
    }
}

fn ticked(pairs: &Pairs) -> Result<Vec<i64>, PageError> {
    let wrong = || PageError::Invalid("The id of a job is a number.".to_owned());
    let ids: Result<Vec<i64>, PageError> = pairs
        .all("job")
        .map(|id| id.parse().map_err(|_| wrong()))
        .collect();
    let mut ids = ids?;
    ids.sort_unstable();
    ids.dedup();
    match ids.len() {
        0 => Err(PageError::Invalid(
            "No job is selected. Go back and select some, or choose “all that match”.".to_owned(),
        )),
        1..=MOST => Ok(ids),
        _ => Err(PageError::Invalid(format!(
            "At most {MOST} jobs can be selected one by one."
        ))),
    }
}

// --- The actions on many jobs ---

/// An action of the list of jobs, or of the failed groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationAction {
    Retry,
    Run,
    Move,
    Priority,
    Cancel,
    Discard,
}

/// The states of jobs that wait.
const WAITING: [JobState; 3] = [JobState::Scheduled, JobState::Blocked, JobState::Ready];

impl OperationAction {
    pub(crate) const ALL: [(&'static str, OperationAction); 6] = [
        ("retry", OperationAction::Retry),
        ("run", OperationAction::Run),
        ("move", OperationAction::Move),
        ("priority", OperationAction::Priority),
        ("cancel", OperationAction::Cancel),
        ("discard", OperationAction::Discard),
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
            OperationAction::Retry => vec![JobState::Failed],
            OperationAction::Run => vec![JobState::Scheduled],
            OperationAction::Move | OperationAction::Priority => WAITING.to_vec(),
            OperationAction::Cancel => [&[JobState::Claimed], &WAITING[..]].concat(),
            OperationAction::Discard => [&WAITING[..], &[JobState::Failed]].concat(),
        }
    }

    /// Returns its verb, at the start of a sentence.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            OperationAction::Retry => "Retry",
            OperationAction::Run => "Run now",
            OperationAction::Move => "Move",
            OperationAction::Priority => "Change the priority of",
            OperationAction::Cancel => "Cancel",
            OperationAction::Discard => "Discard",
        }
    }

    /// Returns which jobs it changes, for the case that there are none of them.
    pub(crate) fn of_which(self) -> &'static str {
        match self {
            OperationAction::Retry => "Only failed jobs can be retried.",
            OperationAction::Run => {
                "Only scheduled jobs can be run now: the others wait for no time."
            }
            OperationAction::Move => "Only jobs that wait can be moved.",
            OperationAction::Priority => "Only jobs that wait can have another priority.",
            OperationAction::Cancel => "Only jobs that wait or run can be cancelled.",
            OperationAction::Discard => "Only jobs that wait or have failed can be discarded.",
        }
    }

    /// Returns what happens to the jobs, and what cannot be undone.
    pub(crate) fn consequence(self) -> &'static str {
        match self {
            OperationAction::Retry => {
                "They are ready again, with all their attempts. Those whose unique id another job holds by now stay failed."
            }
            OperationAction::Run => "They are ready at once, and do not wait for their time.",
            OperationAction::Move => {
                "They keep their time, their priority and a slot that they hold."
            }
            OperationAction::Priority => "A smaller number is more important.",
            OperationAction::Cancel => {
                "Those that wait do not run any more. Those that run are asked to stop. Cancelled jobs cannot be retried."
            }
            OperationAction::Discard => {
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
            OperationAction::Retry => Change::Retry {
                even_at_most_once: form.has("even_at_most_once"),
            },
            OperationAction::Run => Change::RunIn(Duration::ZERO),
            OperationAction::Move => {
                let queue = form.get("to_queue").map(str::trim);
                let queue = queue.filter(|queue| !queue.is_empty());
                Change::Queue(
                    queue
                        .ok_or_else(|| missing("a queue is needed"))?
                        .to_owned(),
                )
            }
            OperationAction::Priority => {
                let text = form.get("to_priority").unwrap_or_default().trim();
                let wrong = || missing("a priority is a whole number");
                Change::Priority(text.parse().map_err(|_| wrong())?)
            }
            OperationAction::Cancel => Change::Cancel,
            OperationAction::Discard => Change::Discard,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_needs_its_values() {
        let form = |text: &str| Pairs::parse(text.as_bytes());
        assert_eq!(
            OperationAction::of(&form("do=move")).unwrap(),
            OperationAction::Move
        );
        assert!(OperationAction::of(&form("do=explode")).is_err());
        assert!(OperationAction::of(&form("")).is_err());
        let moved = OperationAction::Move
            .change(&form("to_queue=+slow+"))
            .unwrap();
        assert_eq!(moved, Change::Queue("slow".to_owned()));
        assert!(OperationAction::Move.change(&form("to_queue=+")).is_err());
        assert!(
            OperationAction::Priority
                .change(&form("to_priority=high"))
                .is_err()
        );
        let ranked = OperationAction::Priority.change(&form("to_priority=-5"));
        assert_eq!(ranked.unwrap(), Change::Priority(-5));
    }
}
