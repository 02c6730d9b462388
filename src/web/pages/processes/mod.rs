//! The processes, and what they run.

pub(crate) mod hosts;
pub(crate) mod tree;

use crate::db::Conn;
use crate::db::query::load::fleet::{self, DiedProcess};
use crate::db::query::load::runs::{self, HeldJob};
use crate::error::{Doing as _, Result as WindlassResult};
use crate::history::Histogram;
use crate::web::http::response::Response;
use crate::web::pages::now::fleet::Fleet;
use crate::web::pages::overview::running::usual;
use crate::web::pages::processes::hosts::HostLine;
use crate::web::pages::processes::tree::Tree;
use crate::web::pages::section::Section;
use crate::web::pages::shell::Shell;
use crate::web::show::filters;
use crate::web::show::markup::Markup;
use crate::web::sql::cx::Cx;
use crate::web::sql::page_error::PageError;
use crate::web::sql::panel::Panel;
use askama::Template;
use std::collections::BTreeMap;

#[derive(Template)]
#[template(path = "processes/page.html")]
struct ProcessesPage {
    shell: Shell,
    lead: Markup,
    has_rails: bool,
    is_more: bool,
    hosts: Panel<Vec<HostLine>>,
    tree: Panel<Tree>,
    died: Panel<Vec<DiedProcess>>,
}

/// The most running jobs that are read.
const RUNS: i64 = 1_000;

/// The processes and their jobs.
#[derive(Debug, Clone)]
pub(crate) struct ProcessesNow {
    pub(crate) fleet: Fleet,
    /// The jobs that processes hold, the oldest first.
    pub(crate) held: Vec<HeldJob>,
    /// The usual run times of some classes, where the history holds a week.
    pub(crate) usual: BTreeMap<String, Histogram>,
}

/// Shows the processes.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let now = cx.panel("the processes", read);
    let died = cx.panel("the processes that died", |conn| {
        fleet::died(conn).doing("look for processes that died")
    });
    let open: Vec<String> = cx.query().all("open").map(str::to_owned).collect();
    let fleet = now.ready().map(|now| &now.fleet);
    let page = ProcessesPage {
        lead: hosts::lead(fleet, died.ready().map(Vec::as_slice)),
        has_rails: fleet.is_some_and(Fleet::has_rails),
        is_more: fleet.is_some_and(|fleet| fleet.is_more),
        hosts: now.clone().map(|now| hosts::of(&now.fleet)),
        tree: now.map(|now| tree::of(&now, &open)),
        died,
        shell: cx.shell("Processes", Section::Processes)?,
    };
    cx.render(&page)
}

fn read(conn: &mut Conn<'_>) -> WindlassResult<ProcessesNow> {
    let fleet = Fleet::read(conn)?;
    let held = runs::oldest(conn, RUNS).doing("look at the running jobs")?;
    let usual = usual(conn, held.iter().map(|job| job.class_name.as_str()))?;
    Ok(ProcessesNow { fleet, held, usual })
}
