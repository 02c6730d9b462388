//! The list of jobs.

use crate::admin::job_list::{self, JobList, SearchStop};
use crate::db::Conn;
use crate::db::model::state::JobState;
use crate::db::query::named::{self, KnownClass};
use crate::db::query::pages::job_search::StateCounts;
use crate::db::query::pages::job_window::{ListPlace, WINDOW};
use crate::error::{Doing as _, Result};
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::jobs::filters::{self, FilterChip, JobFilters, STATES};
use crate::web::pages::jobs::rows::JobListRow;
use crate::web::pages::jobs::{search, when};
use crate::web::pages::words::of_state;
use crate::web::reads::looks::STATE_COUNTS;
use crate::web::request::cx::Cx;
use crate::web::request::panel::Panel;
use crate::web::request::shell::Shell;
use crate::web::show::numbers::{capped, count};
use crate::web::site::section::Section;
use askama::Template;
use chrono::NaiveDateTime;

/// How many jobs a page has.
const ROWS: usize = 50;

/// A state to choose, with the number of its jobs.
struct StateTab {
    href: String,
    mark: &'static str,
    label: &'static str,
    /// Empty if they are not counted.
    count: String,
    is_current: bool,
}

/// What a page of the list shows.
struct ListView {
    rows: Vec<JobListRow>,
    older: Option<String>,
    newer: Option<String>,
    stop: Option<StopView>,
}

/// Where the search stopped.
struct StopView {
    /// How many jobs it looked at, and which one was the last.
    text: String,
    further: String,
}

#[derive(Template)]
#[template(path = "jobs/list.html")]
struct JobsPage {
    shell: Shell,
    filters: JobFilters,
    tabs: Vec<StateTab>,
    chips: Vec<FilterChip>,
    list: Panel<ListView>,
    classes: Vec<KnownClass>,
    queues: Vec<String>,
    since: [(&'static str, &'static str); 6],
    from: String,
    to: String,
    /// The filters as fields of the form for bulk actions.
    hidden: Vec<(String, String)>,
}

/// Shows the jobs that match the filters, or goes to what the search box names.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    if let Some(text) = cx.query().get("q").map(str::to_owned) {
        return search::go(cx, &text);
    }
    let filters = JobFilters::of(cx.query())?;
    let place = filters::place(cx.query());
    let shell = cx.shell(title(filters.state), Section::Jobs)?;
    let now = shell.now;
    let list = cx.panel("the jobs", |conn| read(conn, &filters, place, now));
    let counts = cx.shared_panel("the number of jobs in each state", &STATE_COUNTS);
    let known = cx.panel("the classes of the workers", |conn| {
        named::known_classes(conn).doing("read the classes")
    });
    let classes = known.ready().cloned().unwrap_or_default();
    let mut queues: Vec<String> = classes
        .iter()
        .map(|known| known.queue_name.clone())
        .collect();
    queues.sort_unstable();
    queues.dedup();
    let pairs = filters.pairs();
    let hidden = pairs
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    cx.render(&JobsPage {
        tabs: state_tabs(&filters, counts.ready().map(|(counts, _)| counts), &shell),
        chips: filters.chips(),
        list: list.map(|list| view(&list, &filters, &shell)),
        hidden: hidden.collect(),
        since: when::SINCE,
        from: when::field(filters.when.from),
        to: when::field(filters.when.to),
        classes,
        queues,
        filters,
        shell,
    })
}

fn title(state: Option<JobState>) -> &'static str {
    match state {
        None => "Jobs",
        Some(JobState::Ready) => "Ready jobs",
        Some(JobState::Scheduled) => "Scheduled jobs",
        Some(JobState::Blocked) => "Blocked jobs",
        Some(JobState::Claimed) => "Running jobs",
        Some(JobState::Failed) => "Failed jobs",
        Some(JobState::Finished) => "Finished jobs",
        Some(JobState::Cancelled) => "Cancelled jobs",
        Some(JobState::Discarded) => "Discarded jobs",
    }
}

fn read(
    conn: &mut Conn<'_>,
    filters: &JobFilters,
    place: ListPlace,
    now: NaiveDateTime,
) -> Result<JobList> {
    let times = filters.when.bounds(now);
    job_list::list(conn, &filters.search(), times, place, ROWS).doing("list the jobs")
}

fn state_tabs(filters: &JobFilters, counts: Option<&StateCounts>, shell: &Shell) -> Vec<StateTab> {
    let of = |state: Option<JobState>| {
        let counts = counts?;
        Some(match state? {
            JobState::Ready => counts.ready,
            JobState::Scheduled => counts.scheduled,
            JobState::Blocked => counts.blocked,
            JobState::Claimed => counts.claimed,
            JobState::Failed => counts.failed,
            JobState::Cancelled => counts.cancelled,
            JobState::Discarded => counts.discarded,
            JobState::Finished => return None,
        })
    };
    let tab = |state: Option<JobState>, count: Option<i64>| StateTab {
        href: shell.link(&filters.with_state(state)),
        mark: state.map_or("", |state| of_state(Some(state)).0),
        label: match state {
            None => "All",
            Some(JobState::Ready) => "Ready",
            Some(JobState::Scheduled) => "Scheduled",
            Some(JobState::Blocked) => "Blocked",
            Some(JobState::Claimed) => "Running",
            Some(JobState::Failed) => "Failed",
            Some(JobState::Finished) => "Finished",
            Some(JobState::Cancelled) => "Cancelled",
            Some(JobState::Discarded) => "Discarded",
        },
        count: count.map(capped).unwrap_or_default(),
        is_current: filters.state == state,
    };
    let all = tab(None, counts.map(|counts| counts.all_jobs));
    let others = STATES
        .iter()
        .map(|(_, state)| tab(Some(*state), of(Some(*state))));
    std::iter::once(all).chain(others).collect()
}

fn view(list: &JobList, filters: &JobFilters, shell: &Shell) -> ListView {
    let link = |place: ListPlace| shell.link(&filters.at(place));
    ListView {
        rows: list
            .jobs
            .iter()
            .map(|job| JobListRow::of(job, shell))
            .collect(),
        older: list.older.map(link),
        newer: list.newer.map(link),
        stop: list.stop.map(|stop| stopped(stop, filters, shell)),
    }
}

fn stopped(stop: SearchStop, filters: &JobFilters, shell: &Shell) -> StopView {
    let direction = match stop.place {
        ListPlace::Before(_) => "back",
        ListPlace::After(_) => "forward",
    };
    let reached = match stop.job {
        Some(job) => format!("Searched {direction} to job {}", count(job)),
        None => format!("Searched {direction}"),
    };
    StopView {
        text: format!(
            "{reached}: a page looks at {} jobs, or for {} ms, at a time.",
            count(WINDOW),
            job_list::ENOUGH.as_millis()
        ),
        further: shell.link(&filters.at(stop.place)),
    }
}

impl JobsPage {
    /// Why nothing of what is listed can be changed, if so.
    fn refusal(&self) -> Option<&'static str> {
        if !self.shell.is_operator {
            return Some("Only an operator may change jobs.");
        }
        let ended = [JobState::Finished, JobState::Cancelled, JobState::Discarded];
        let has_ended = self
            .filters
            .state
            .is_some_and(|state| ended.contains(&state));
        has_ended.then_some("Jobs that have ended stay as they are.")
    }

    /// Why not all that match can be changed at once, if so.
    fn whole_refusal(&self) -> Option<&'static str> {
        let by_arguments = !self.filters.text("args").is_empty();
        by_arguments.then_some(
            "Jobs that are found by their arguments are selected one by one: which of them match is only \
             known after their hidden fields were left out.",
        )
    }
}
