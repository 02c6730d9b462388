//! The tasks of one page, as one look at the tables.

use crate::db::Conn;
use crate::db::model::recurring::RecurringTaskRow;
use crate::db::query::load::fleet;
use crate::db::query::load::tasks::{self, OverdueTask, TaskTotals, TickOfTask};
use crate::error::{Doing as _, Result};

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
    pub(crate) is_more: bool,
}

impl TasksNow {
    /// Reads the tasks after this key.
    pub(crate) fn read(conn: &mut Conn<'_>, after: &str) -> Result<Self> {
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
}
