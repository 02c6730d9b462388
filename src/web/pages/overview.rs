//! The first page.

use crate::admin::status;
use crate::db::query::status::QueueStatus;
use crate::web::http::response::Response;
use crate::web::pages::section::Section;
use crate::web::pages::shell::Shell;
use crate::web::show::filters;
use crate::web::sql::cx::Cx;
use crate::web::sql::page_error::PageError;
use crate::web::sql::panel::Panel;
use askama::Template;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    shell: Shell,
    queues: Panel<Vec<QueueStatus>>,
}

/// Shows the queues.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let queues = cx.panel("the jobs of each queue", |conn| status::queues(conn));
    let shell = cx.shell("Overview", Section::Overview)?;
    cx.render(&OverviewPage { shell, queues })
}
