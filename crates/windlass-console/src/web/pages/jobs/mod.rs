//! The list of jobs, and the search box.

pub(crate) mod filters;

use crate::read::job_list::{self, JobList, ListedJob, SearchStop};
use crate::read::sql::job_search::StateCounts;
use crate::read::sql::job_window::{ListPosition, WINDOW};
use crate::read::sql::named::{self, KnownClass};
use crate::web::http::{PageError, Response};
use crate::web::pages::jobs::filters::{FilterChip, JobFilters, STATES};
use crate::web::pages::words::{job_link, of_state};
use crate::web::reads::STATE_COUNTS;
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::{self, Markup, capped, count, cut, escaped, line, verdict};
use crate::web::site::Section;
use askama::Template;
use chrono::NaiveDateTime;
use serde_json::Value;
use windlass::internal::db::model::new_row::{
    UNIQUE_SUCCESSOR, WAITS_FOR_EVENT, WAITS_FOR_PARENTS,
};
use windlass::internal::error::ErrorContext as _;
use windlass::jobs::JobState;
use windlass::{Conn, Result};

// --- The list of jobs ---

/// The most jobs on a page.
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

/// The content of a page of the list.
struct ListView {
    rows: Vec<JobListRow>,
    older: Option<String>,
    newer: Option<String>,
    stop: Option<StopView>,
}

/// The point at which the search stopped.
struct StopView {
    /// The last job that it reached, and the limits of a search, in words.
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
    /// The filters as fields of the form for operations.
    hidden: Vec<(String, String)>,
}

/// Shows the jobs that match the filters, or goes to what the search box names.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    if let Some(text) = cx.query().get("q").map(str::to_owned) {
        return filters::go(cx, &text);
    }
    let filters = JobFilters::of(cx.query())?;
    let position = filters::list_position(cx.query());
    let shell = cx.shell(title(filters.state), Section::Jobs)?;
    let now = shell.now;
    let list = cx.panel("the jobs", |conn| read(conn, &filters, position, now));
    let counts = cx.cached_panel("the number of jobs in each state", &STATE_COUNTS);
    let known = cx.panel("the classes of the workers", |conn| {
        named::known_classes(conn).during("read the classes")
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
        since: filters::SINCE,
        from: filters::field(filters.when.from),
        to: filters::field(filters.when.to),
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
    position: ListPosition,
    now: NaiveDateTime,
) -> Result<JobList> {
    let times = filters.when.bounds(now);
    job_list::list(conn, &filters.search(), times, position, ROWS).during("list the jobs")
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
    let link = |position: ListPosition| shell.link(&filters.at(position));
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
    let direction = match stop.position {
        ListPosition::Before(_) => "back",
        ListPosition::After(_) => "forward",
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
        further: shell.link(&filters.at(stop.position)),
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

// --- The rows of a list of jobs ---

/// The longest text of a row, in characters.
const LONGEST: usize = 160;

/// A job as a row shows it.
#[derive(Debug)]
pub(crate) struct JobListRow {
    pub(crate) id: i64,
    pub(crate) class: String,
    pub(crate) queue: String,
    pub(crate) priority: i32,
    /// A class of the style sheet.
    pub(crate) mark: &'static str,
    pub(crate) state: &'static str,
    /// Why it is in its state, or since when.
    pub(crate) why: Markup,
    pub(crate) arguments: Markup,
    pub(crate) tags: Vec<String>,
    /// `2 of 5`
    pub(crate) attempts: String,
    /// `<time>` around how long ago it was enqueued.
    pub(crate) age: Markup,
    pub(crate) href: String,
    pub(crate) queue_href: String,
}

impl JobListRow {
    pub(crate) fn of(job: &ListedJob, shell: &Shell) -> Self {
        let view = &job.view;
        let (mark, state) = of_state(job.state);
        let created_at = view.created_at.unwrap_or(view.now);
        let attempts = match view.max_attempts {
            Some(most) => format!("{} of {most}", view.runs),
            None => view.runs.to_string(),
        };
        JobListRow {
            id: view.job_id,
            class: view.class_name.clone(),
            queue: view.queue_name.clone(),
            priority: view.priority,
            mark,
            state,
            why: why(job, shell),
            arguments: arguments(job),
            tags: job.tags.clone(),
            attempts,
            age: show::time(
                created_at,
                &show::about(view.seconds_since(Some(created_at))),
            ),
            href: shell.to(["jobs", &view.job_id.to_string()]),
            queue_href: shell.to(["queues", &view.queue_name]),
        }
    }

    pub(crate) fn shown_id(&self) -> String {
        count(self.id)
    }
}

/// Returns the arguments that Ruby passed, without Active Job's envelope.
pub(crate) fn passed(arguments: &Value, of_ruby: bool) -> &Value {
    let list = arguments.get("arguments").filter(|_| of_ruby);
    list.unwrap_or(arguments)
}

fn arguments(job: &ListedJob) -> Markup {
    match &job.arguments {
        Some(value) => line(passed(value, job.view.is_of_ruby()), LONGEST),
        None => Markup::trusted("<var>long</var>".to_owned()),
    }
}

fn text(text: &str) -> Markup {
    Markup::trusted(escaped(&cut(text, LONGEST)))
}

fn why(job: &ListedJob, shell: &Shell) -> Markup {
    let view = &job.view;
    match job.state {
        Some(JobState::Ready) => match &job.but {
            Some(but) => verdict("warn", &format!("but {but}")),
            None => text("waits for a free thread"),
        },
        Some(JobState::Scheduled) => text(&scheduled(job)),
        Some(JobState::Blocked) => blocked(job, shell),
        Some(JobState::Claimed) => text(&running(job)),
        Some(JobState::Failed | JobState::Cancelled | JobState::Discarded) => {
            let error = view.error().unwrap_or_default();
            text(error.lines().next().unwrap_or_default())
        }
        Some(JobState::Finished) => view.finished_at.map_or_else(Markup::default, |at| {
            let at = shell.time(&at);
            Markup::trusted(format!("at {at}"))
        }),
        None => verdict("bad", "it has no execution: the row was deleted by hand"),
    }
}

fn scheduled(job: &ListedJob) -> String {
    let due = job.view.seconds_since(job.view.due_at);
    let when = match due < 0.0 {
        true => format!("in {}", show::duration(-due)),
        false => format!("has been due for {}", show::duration(due)),
    };
    match job.view.runs {
        0 => when,
        runs => format!("{when}, for attempt {}", runs.saturating_add(1)),
    }
}

fn blocked(job: &ListedJob, shell: &Shell) -> Markup {
    let key = job.view.blocked_key.as_deref().unwrap_or_default();
    match job.view.after_job_id {
        _ if key == WAITS_FOR_PARENTS => text("waits for a batch"),
        _ if key == WAITS_FOR_EVENT => text("waits for an event"),
        _ if key != UNIQUE_SUCCESSOR => text(&format!("waits for a slot of {key}")),
        Some(other) => {
            let link = job_link(shell, other);
            Markup::trusted(format!("behind {link}: same unique id"))
        }
        None => text("behind a job with the same unique id"),
    }
}

fn running(job: &ListedJob) -> String {
    let view = &job.view;
    let held = show::duration(view.seconds_since(view.claimed_at));
    let location = match (&view.hostname, view.pid) {
        (Some(host), Some(pid)) => format!("on {host}:{pid}"),
        (Some(host), None) => format!("on {host}"),
        (None, _) => "by a dead process".to_owned(),
    };
    match view.note().progress {
        Some(progress) => format!("at {:.0} %, for {held}, {location}", progress.percent),
        None => format!("for {held}, {location}"),
    }
}
