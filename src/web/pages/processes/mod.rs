//! The processes, and what they run.

pub(crate) mod hosts;
pub(crate) mod processes_now;
pub(crate) mod tree;

use crate::admin::now::Fleet;
use crate::db::query::load::fleet::{self, DiedProcess};
use crate::error::Doing as _;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::processes::hosts::HostLine;
use crate::web::pages::processes::processes_now::ProcessesNow;
use crate::web::pages::processes::tree::Tree;
use crate::web::request::cx::Cx;
use crate::web::request::panel::Panel;
use crate::web::request::shell::Shell;
use crate::web::show::filters;
use crate::web::show::markup::Markup;
use crate::web::site::section::Section;
use askama::Template;

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

/// Shows the processes.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let watch = cx.watch();
    let now = cx.panel("the processes", |conn| {
        ProcessesNow::read(conn, &watch.usual_runs)
    });
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
