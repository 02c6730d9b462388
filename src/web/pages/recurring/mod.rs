//! The recurring tasks.

pub(crate) mod changes;
pub(crate) mod task_lines;

use crate::db::Conn;
use crate::db::model::recurring::RecurringTaskRow;
use crate::db::query::load::fleet;
use crate::db::query::load::tasks::{self, OverdueTask, TaskTotals, TickOfTask};
use crate::error::{Doing as _, Result as WindlassResult};
use crate::web::http::response::Response;
use crate::web::pages::link;
use crate::web::pages::recurring::task_lines::{NextHour, TaskLine};
use crate::web::pages::section::Section;
use crate::web::pages::shell::Shell;
use crate::web::show::filters;
use crate::web::show::markup::Markup;
use crate::web::sql::cx::Cx;
use crate::web::sql::page_error::PageError;
use crate::web::sql::panel::Panel;
use askama::Template;

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
    /// How many schedulers have had a heartbeat within 60 s.
    pub(crate) schedulers: usize,
    is_more: bool,
}

/// Shows the recurring tasks.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let after = cx
        .query()
        .get("after")
        .unwrap_or_default()
        .replace('\0', "");
    let now = cx.panel("the recurring tasks", |conn| read(conn, &after));
    let page = RecurringPage {
        lead: task_lines::lead(now.ready()),
        tasks: now.map(|now| TaskPageLines {
            lines: task_lines::of(&now),
            next_hour: task_lines::next_hour(&now),
            next: match now.tasks.iter().map(|task| task.key.as_str()).max() {
                Some(last) if now.is_more => link::with_query("/recurring", &[("after", last)]),
                _ => String::new(),
            },
            is_first: after.is_empty(),
        }),
        shell: cx.shell("Recurring", Section::Recurring)?,
    };
    cx.render(&page)
}

fn read(conn: &mut Conn<'_>, after: &str) -> WindlassResult<TasksNow> {
    let doing = "look at the recurring tasks";
    let mut page = tasks::page(conn, after, PAGE).doing(doing)?;
    let most = usize::try_from(PAGE).unwrap_or(usize::MAX);
    let is_more = page.len() > most;
    page.truncate(most);
    let keys: Vec<&str> = page.iter().map(|task| task.key.as_str()).collect();
    let ticks = tasks::ticks(conn, &keys, 10).doing(doing)?;
    let processes = fleet::processes(conn).doing(doing)?;
    let schedulers = processes.iter().filter(|process| {
        let is_of_windlass = !process.metadata["windlass"].is_null();
        process.kind == "Scheduler" && is_of_windlass && process.heartbeat_seconds <= 60.0
    });
    Ok(TasksNow {
        ticks,
        overdue: tasks::overdue(conn, LATE, PAGE).doing(doing)?,
        totals: tasks::totals(conn).doing(doing)?,
        schedulers: schedulers.count(),
        tasks: page,
        is_more,
    })
}
