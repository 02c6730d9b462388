//! Shows what a bulk action would change, and asks.

use crate::admin::job_list::ListedJob;
use crate::db::Conn;
use crate::error::{Doing as _, Result};
use crate::operation::start::Preview;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::bulk::action::BulkAction;
use crate::web::pages::bulk::selection::BulkSelection;
use crate::web::pages::bulk::spread::{self, SpreadChoice};
use crate::web::pages::jobs::rows::JobListRow;
use crate::web::request::cx::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::numbers::count;
use crate::web::site::section::Section;
use askama::Template;

/// More jobs than these are discarded only if their number is typed.
pub(crate) const TYPED: u64 = 10;

#[derive(Template)]
#[template(path = "bulk/preview.html")]
struct PreviewPage {
    shell: Shell,
    action: BulkAction,
    question: String,
    /// `1,204` or `10,000+`
    number: String,
    /// What has to be typed; empty for nothing.
    typed: String,
    preview: Preview,
    stored: String,
    request: String,
    words: Vec<(&'static str, String)>,
    hidden: Vec<(String, String)>,
    spreads: Vec<SpreadChoice>,
    sample: Vec<JobListRow>,
    back: String,
    /// Whether the jobs are those of a group of failures.
    is_group: bool,
}

/// Returns the number of jobs as pages show it.
pub(crate) fn number(preview: &Preview) -> String {
    let plus = if preview.is_exact { "" } else { "+" };
    format!("{}{plus}", count(preview.count))
}

/// Returns `1 job` or `1,204 jobs`.
pub(crate) fn jobs(number: &str) -> String {
    match number {
        "1" => "1 job".to_owned(),
        number => format!("{number} jobs"),
    }
}

fn look(conn: &mut Conn<'_>, selection: &BulkSelection) -> Result<(Preview, Vec<ListedJob>)> {
    let preview = selection.jobs().preview(conn)?;
    let sample = selection.sample(conn).doing("list some of the jobs")?;
    Ok((preview, sample))
}

/// Shows the preview of an action. It changes nothing.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let now = cx.frame()?.now;
    let selection = BulkSelection::of(cx.query(), now)?;
    let (preview, sample) = cx.read(|conn| look(conn, &selection))?;
    let number = number(&preview);
    let question = format!("{} {}?", selection.action.verb(), jobs(&number));
    let shell = cx.shell(&question, Section::Jobs)?;
    let is_typed = selection.action == BulkAction::Discard && preview.count > TYPED;
    cx.render(&PreviewPage {
        action: selection.action,
        question,
        typed: if is_typed {
            number.clone()
        } else {
            String::new()
        },
        number,
        stored: serde_json::to_string(&preview).unwrap_or_default(),
        // Two forms with one id would start one operation.
        request: format!("{:032x}", fastrand::u128(..)),
        words: selection.in_words(),
        hidden: selection.pairs(),
        spreads: spread::choices(&preview),
        sample: sample
            .iter()
            .map(|job| JobListRow::of(job, &shell))
            .collect(),
        back: shell.link(&selection.back()),
        is_group: cx.query().get("group").is_some(),
        preview,
        shell,
    })
}

impl PreviewPage {
    fn button(&self) -> String {
        let jobs = jobs(&self.number);
        match self.action {
            BulkAction::Run => format!("Run {jobs} now"),
            BulkAction::Priority => format!("Change {jobs}"),
            action => format!("{} {jobs}", action.verb()),
        }
    }
}
