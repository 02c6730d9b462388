//! The recurring tasks.

pub(crate) mod changes;
pub(crate) mod task_lines;
pub(crate) mod tasks_now;

use crate::web::http::link;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::recurring::task_lines::{NextHour, TaskLine};
use crate::web::pages::recurring::tasks_now::TasksNow;
use crate::web::request::cx::Cx;
use crate::web::request::panel::Panel;
use crate::web::request::shell::Shell;
use crate::web::show::filters;
use crate::web::show::markup::Markup;
use crate::web::site::section::Section;
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

/// Shows the recurring tasks.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let after = cx
        .query()
        .get("after")
        .unwrap_or_default()
        .replace('\0', "");
    let now = cx.panel("the recurring tasks", |conn| TasksNow::read(conn, &after));
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
