//! Which jobs are changed: those that were ticked, or all that match the filters.

use crate::admin::job_list::{self, ListedJob};
use crate::admin::jobs::Jobs;
use crate::db::Conn;
use crate::db::model::state::JobState;
use crate::db::query::pages::job_search::JobSearch;
use crate::db::query::pages::job_window::ListPlace;
use crate::job::id::{BatchId, JobId};
use crate::web::http::page_error::PageError;
use crate::web::http::pairs::Pairs;
use crate::web::pages::bulk::action::BulkAction;
use crate::web::pages::jobs::filters::{JobFilters, name_of};
use crate::web::pages::jobs::when::When;
use chrono::{NaiveDateTime, Timelike as _};
use diesel::QueryResult;

/// The most jobs that are ticked at once.
const MOST: usize = 500;

/// How many jobs a preview shows.
const SAMPLE: usize = 10;

/// The jobs of a bulk action.
#[derive(Debug, Clone)]
pub(crate) struct BulkSelection {
    pub(crate) action: BulkAction,
    filters: JobFilters,
    /// The ids of those that were ticked. `None` for all that match.
    ids: Option<Vec<i64>>,
}

impl BulkSelection {
    /// Reads the selection of an address or a form. What is relative to `now` becomes a time, so that
    /// the selection stays the same.
    ///
    /// # Errors
    /// If something of it is wrong, no job was ticked, or the action changes no job of the state.
    pub(crate) fn of(pairs: &Pairs, now: NaiveDateTime) -> Result<Self, PageError> {
        let action = BulkAction::of(pairs)?;
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
        let selection = BulkSelection {
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
                let place = ListPlace::Before(i64::MAX);
                jobs.extend(job_list::list(conn, &search, times, place, SAMPLE)?.jobs);
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
        let action = BulkAction::ALL
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
