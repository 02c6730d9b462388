//! The recurring tasks.

use crate::read::sql::fleet;
use crate::read::sql::tasks::{self, OverdueTask, TaskTotals, TickOfTask};
use crate::web::http::{self, PageError, Response};
use crate::web::pages::queues::{actor, back, named};
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::chart::histogram::{TickMark, sums, ticks};
use crate::web::show::{
    Markup, ago, bounded, count, duration, escaped, filters, in_words, state, verdict,
};
use crate::web::site::Section;
use askama::Template;
use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use std::collections::BTreeMap;
use windlass::internal::db::model::recurring::RecurringTaskRow;
use windlass::internal::error::ErrorContext as _;
use windlass::internal::recurring::tasks::deleted_at;
use windlass::internal::recurring::time_zone::Zone;
use windlass::internal::recurring::timing::NEVER;
use windlass::recurring::Schedule;
use windlass::{Conn, RecurringTask, Result};

#[derive(Template)]
#[template(path = "recurring/page.html")]
struct RecurringPage {
    shell: Shell,
    lead: Markup,
    tasks: Panel<TaskPageLines>,
}

/// The tasks of a page.
struct TaskPageLines {
    lines: Vec<TaskLine>,
    next_hour: Vec<NextHour>,
    /// The address of the next page; empty if there is none.
    next: String,
    is_first: bool,
}

/// Shows the recurring tasks.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let after = cx
        .query()
        .get("after")
        .unwrap_or_default()
        .replace('\0', "");
    let now = cx.panel("the recurring tasks", |conn| TasksNow::read(conn, &after));
    let page = RecurringPage {
        lead: lead(now.ready()),
        tasks: now.map(|now| TaskPageLines {
            lines: task_lines(&now),
            next_hour: next_hour(&now),
            next: match now.tasks.iter().map(|task| task.key.as_str()).max() {
                Some(last) if now.is_more => http::with_query("/recurring", &[("after", last)]),
                _ => String::new(),
            },
            is_first: after.is_empty(),
        }),
        shell: cx.shell("Recurring", Section::Recurring)?,
    };
    cx.render(&page)
}

// --- Runs, pauses and resumes recurring tasks ---

/// Enqueues a job of a task at once.
pub(crate) fn run(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (key, actor) = (cx.param("key").to_owned(), actor(cx));
    let job = cx.write(|conn| actor.run_task(conn, &key))?;
    let message = format!("Enqueued job {} of {}.", count(job), named(&key));
    Ok(back(cx, &message))
}

/// Pauses a task.
pub(crate) fn pause(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (key, actor) = (cx.param("key").to_owned(), actor(cx));
    cx.write(|conn| actor.pause_task(conn, &key))?;
    let message = format!(
        "Paused {}. Ticks are skipped until it is resumed.",
        named(&key)
    );
    Ok(back(cx, &message))
}

/// Resumes a task.
pub(crate) fn resume(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (key, actor) = (cx.param("key").to_owned(), actor(cx));
    cx.write(|conn| actor.resume_task(conn, &key))?;
    let message = format!("Resumed {}: it goes on with its next tick.", named(&key));
    Ok(back(cx, &message))
}

// --- The rows of the table of recurring tasks ---

/// A task in the table.
#[derive(Debug, Clone)]
pub(crate) struct TaskLine {
    pub(crate) key: String,
    pub(crate) description: String,
    pub(crate) class_name: String,
    pub(crate) last: Markup,
    pub(crate) in_words: String,
    /// The schedule as it was written.
    pub(crate) text: String,
    /// The time until the next tick; empty if there is none.
    pub(crate) next_in: String,
    /// Why there is no next tick.
    pub(crate) why_none: &'static str,
    /// The next ticks, by the clock of the task's time zone.
    pub(crate) next: Vec<String>,
    pub(crate) ticks: Markup,
    /// The outcomes of the last ticks: `9 finished, 1 failed`.
    pub(crate) sums: String,
    pub(crate) is_paused: bool,
    rank: u8,
}

/// The number of next ticks that are shown.
const NEXT: usize = 5;

/// Returns the tasks, overdue ones first, then paused ones, then by key.
pub(crate) fn task_lines(now: &TasksNow) -> Vec<TaskLine> {
    let mut lines: Vec<TaskLine> = now
        .tasks
        .iter()
        .map(|task| {
            let own = now.ticks.iter().filter(|tick| tick.key == task.key);
            line(task, &own.collect::<Vec<_>>(), now)
        })
        .collect();
    lines.sort_by_key(|line| line.rank);
    lines
}

fn line(task: &RecurringTaskRow, own: &[&TickOfTask], now: &TasksNow) -> TaskLine {
    let marks: Vec<(TickMark, String)> = own.iter().map(|tick| mark(tick)).collect();
    let is_paused = task.paused_at.is_some();
    let overdue = now.overdue.iter().find(|one| one.key == task.key);
    let (rank, last) = match (overdue, task.paused_at) {
        (Some(overdue), _) => (
            0,
            verdict(
                "warn",
                &format!("overdue for {}", duration(overdue.seconds)),
            ),
        ),
        (None, _) if task.is_undeclared => (3, undeclared(task)),
        (None, Some(at)) => (1, paused(at, task.now)),
        (None, None) => (2, last(own.last().copied(), task)),
    };
    let zone: Zone = task.time_zone.parse().unwrap_or(Zone::UTC);
    let next = match task.is_undeclared {
        true => Vec::new(),
        false => upcoming(task, NEXT),
    };
    let shown = next.iter().map(|tick| in_zone(*tick, task.now, zone));
    TaskLine {
        key: task.key.clone(),
        description: task.description.clone().unwrap_or_default(),
        class_name: task.class_name.clone(),
        last,
        in_words: in_english(task),
        text: match task.time_zone.as_str() {
            "UTC" => task.schedule.clone(),
            zone => format!("{} {zone}", task.schedule),
        },
        next_in: match next.first() {
            Some(tick) if !is_paused => duration((tick.naive_utc() - task.now).as_seconds_f64()),
            _ => String::new(),
        },
        why_none: match (task.is_undeclared, is_paused) {
            (true, _) => "none: no scheduler declares it",
            (_, true) => "none while it is paused",
            _ => "none is known",
        },
        next: shown.collect(),
        sums: sums(&marks),
        ticks: ticks(&marks),
        is_paused,
        rank,
    }
}

fn in_english(task: &RecurringTaskRow) -> String {
    let schedule: Option<Schedule> = task.schedule.parse().ok();
    let zoned = schedule.map(|schedule| match schedule.time_zone() {
        Some(_) => Ok(schedule),
        None => schedule.in_time_zone(&task.time_zone),
    });
    match zoned {
        Some(Ok(schedule)) => schedule.in_words(),
        _ => String::new(),
    }
}

/// Returns the next ticks of a task.
fn upcoming(task: &RecurringTaskRow, most: usize) -> Vec<DateTime<Utc>> {
    let first = task.next_run_at.filter(|next| *next < NEVER);
    let Ok(stored) = RecurringTask::read(task) else {
        return first.map(|next| next.and_utc()).into_iter().collect();
    };
    if stored.schedule.named().is_some() {
        // Only a program computes the others.
        return first.map(|next| next.and_utc()).into_iter().collect();
    }
    let from = task.now.max(task.last_run_at.unwrap_or(task.now));
    let times = stored.times_in(Zone::UTC);
    times.upcoming(from).take(most).collect()
}

/// Returns a tick by the clock of the task's time zone.
///
/// One of today has no date.
fn in_zone(tick: DateTime<Utc>, now: NaiveDateTime, zone: Zone) -> String {
    let local = zone.local(tick.naive_utc());
    let today = zone.local(now).date_naive();
    let time = local.format("%H:%M:%S").to_string();
    let time = time.strip_suffix(":00").unwrap_or(&time);
    match local.date_naive() == today {
        true => format!("today {time}"),
        false => format!("{} {time}", local.format("%a %-d %b")),
    }
}

fn mark(tick: &TickOfTask) -> (TickMark, String) {
    let mark = match tick.state.as_str() {
        "claimed" => TickMark::Running,
        "scheduled" | "blocked" | "ready" => TickMark::Waiting,
        "failed" => TickMark::Failed,
        "cancelled" | "discarded" => TickMark::Ended,
        _ => TickMark::Finished,
    };
    let at = tick
        .run_at
        .map(|at| at.format("%Y-%m-%d %H:%M:%S UTC").to_string());
    (mark, format!("{}: {}", at.unwrap_or_default(), mark.word()))
}

fn undeclared(task: &RecurringTaskRow) -> Markup {
    let deleted = deleted_at(task).map(|at| format!("deleted on {}", at.format("%-d %b %Y")));
    let sub = Markup::element("span", "sub", &deleted.unwrap_or_default());
    Markup::trusted(format!("{}{sub}", state("ended", "no longer declared")))
}

fn paused(at: NaiveDateTime, now: NaiveDateTime) -> Markup {
    let since = ago((now - at).as_seconds_f64());
    let sub = Markup::element("span", "sub", &since);
    Markup::trusted(format!("{}{sub}", state("pause ink", "paused")))
}

/// Returns what became of the last tick.
fn last(tick: Option<&TickOfTask>, task: &RecurringTaskRow) -> Markup {
    let Some(tick) = tick else {
        return Markup::element("span", "q", "no tick whose job is kept");
    };
    let since = tick.seconds.unwrap_or_default();
    match mark(tick).0 {
        TickMark::Running => {
            let text = format!("running for {}", duration(since));
            let sub = Markup::element("span", "sub", &format!("job {}", count(tick.job_id)));
            Markup::trusted(format!("{}{sub}", state("run ink", &text)))
        }
        TickMark::Waiting => state("ready", "waiting to start"),
        TickMark::Failed => verdict("bad", &format!("failed {}", ago(since))),
        TickMark::Ended => state("disc", "discarded or cancelled"),
        TickMark::Finished => {
            let finished = tick
                .finished_at
                .map(|at| ago((task.now - at).as_seconds_f64()));
            verdict("ok", &format!("finished {}", finished.unwrap_or_default()))
        }
    }
}

/// The tasks that are due at one time.
#[derive(Debug, Clone)]
pub(crate) struct NextHour {
    pub(crate) at: String,
    pub(crate) in_seconds: f64,
    pub(crate) keys: String,
    pub(crate) classes: String,
    pub(crate) queues: String,
}

/// The most times that are listed.
const TIMES: usize = 12;

/// Returns when the tasks of the page are due within the next hour.
pub(crate) fn next_hour(now: &TasksNow) -> Vec<NextHour> {
    let mut times: BTreeMap<DateTime<Utc>, Vec<&RecurringTaskRow>> = BTreeMap::new();
    let active = now.tasks.iter().filter(|task| task.paused_at.is_none());
    for task in active {
        let end = task.now.and_utc() + TimeDelta::hours(1);
        for tick in upcoming(task, TIMES)
            .into_iter()
            .filter(|tick| *tick <= end)
        {
            times.entry(tick).or_default().push(task);
        }
    }
    let rows = times.into_iter().take(TIMES).map(|(tick, tasks)| {
        let joined = |of: fn(&RecurringTaskRow) -> &str| {
            let mut names: Vec<&str> = tasks.iter().map(|task| of(task)).collect();
            names.dedup();
            let more = names.len().saturating_sub(5);
            let shown = names[..names.len() - more].join(", ");
            match more {
                0 => shown,
                more => format!("{shown} and {more} more"),
            }
        };
        let seconds = tasks
            .first()
            .map(|task| (tick.naive_utc() - task.now).as_seconds_f64());
        NextHour {
            at: tick.format("%H:%M:%S").to_string(),
            in_seconds: seconds.unwrap_or_default(),
            keys: joined(|task| &task.key),
            classes: joined(|task| &task.class_name),
            queues: joined(|task| &task.queue_name),
        }
    });
    rows.collect()
}

/// Returns the sentence on top.
pub(crate) fn lead(now: Option<&TasksNow>) -> Markup {
    let Some(now) = now else {
        return Markup::default();
    };
    if now.totals.known.is_zero() {
        return Markup::trusted("There are no recurring tasks.".to_owned());
    }
    let (known, paused) = (now.totals.known, now.totals.paused);
    let mut parts = Vec::new();
    match now.overdue.as_slice() {
        [] => {}
        [one] => parts.push(format!(
            "<b class=\"warn\">{} is overdue</b>",
            escaped(&one.key)
        )),
        [first, rest @ ..] => parts.push(format!(
            "<b class=\"warn\">{} and {} more are overdue</b>",
            escaped(&first.key),
            count(rest.len())
        )),
    }
    match paused.count {
        0 => {}
        1 => parts.push("1 is paused".to_owned()),
        _ => parts.push(format!("{} are paused", bounded(paused))),
    }
    let tasks = match (known.count, parts.as_slice()) {
        (1, []) => "The task is on time.".to_owned(),
        (_, []) => format!("All {} tasks are on time.", bounded(known)),
        (1, parts) => format!("Of 1 task, {}.", parts.join(" and ")),
        (_, parts) => format!("Of {} tasks, {}.", bounded(known), parts.join(" and ")),
    };
    let schedulers = match now.schedulers {
        0 => "<b class=\"bad\">No scheduler runs.</b>".to_owned(),
        1 => "One scheduler runs.".to_owned(),
        many => format!("{} schedulers run.", in_words(many)),
    };
    Markup::trusted(format!("{tasks} {schedulers}"))
}

// --- The tasks of one page, as one read of the tables ---

/// The tasks on one page.
const PAGE: i64 = 100;

/// In seconds. A task that has been due for longer is not being fired.
const LATE: u32 = 60;

/// The tasks of one page, with their last ticks.
#[derive(Debug)]
pub(crate) struct TasksNow {
    pub(crate) tasks: Vec<RecurringTaskRow>,
    pub(crate) ticks: Vec<TickOfTask>,
    pub(crate) overdue: Vec<OverdueTask>,
    pub(crate) totals: TaskTotals,
    /// The number of schedulers with a heartbeat within 60 s.
    pub(crate) schedulers: usize,
    pub(crate) is_more: bool,
}

impl TasksNow {
    /// Reads the tasks after this key.
    pub(crate) fn read(conn: &mut Conn<'_>, after: &str) -> Result<Self> {
        let action = "look at the recurring tasks";
        let mut page = tasks::page(conn, after, PAGE).during(action)?;
        let most = usize::try_from(PAGE).unwrap_or(usize::MAX);
        let is_more = page.len() > most;
        page.truncate(most);
        let keys: Vec<&str> = page.iter().map(|task| task.key.as_str()).collect();
        let ticks = tasks::ticks(conn, &keys, 10).during(action)?;
        let processes = fleet::processes(conn).during(action)?;
        let schedulers = processes.iter().filter(|process| {
            let is_of_windlass = !process.metadata["windlass"].is_null();
            process.kind == "Scheduler" && is_of_windlass && process.heartbeat_seconds <= 60.0
        });
        Ok(TasksNow {
            ticks,
            overdue: tasks::overdue(conn, LATE, PAGE).during(action)?,
            totals: tasks::totals(conn).during(action)?,
            schedulers: schedulers.count(),
            tasks: page,
            is_more,
        })
    }
}
