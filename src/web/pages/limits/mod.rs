//! The concurrency keys in use, and the limits that operators have set.

pub(crate) mod changes;
pub(crate) mod key_lines;
pub(crate) mod keys_now;

use crate::db::table::run_time::limits::{self, RunTimeLimit};
use crate::error::Doing as _;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::limits::key_lines::KeyLine;
use crate::web::pages::limits::keys_now::{KeyFilter, read};
use crate::web::request::cx::Cx;
use crate::web::request::panel::Panel;
use crate::web::request::shell::Shell;
use crate::web::show::filters;
use crate::web::show::markup::Markup;
use crate::web::site::section::Section;
use askama::Template;

#[derive(Template)]
#[template(path = "limits/page.html")]
struct LimitsPage {
    shell: Shell,
    lead: Markup,
    keys: Panel<KeyPageLines>,
    set: Panel<Vec<RunTimeLimit>>,
    search: KeyFilter,
}

/// The keys of a page.
struct KeyPageLines {
    lines: Vec<KeyLine>,
    /// The address of the next page; empty if there is none.
    next: String,
}

/// Shows the keys in use.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let search = KeyFilter::of(cx);
    let now = cx.panel("the concurrency keys in use", |conn| read(conn, &search));
    let set = cx.panel("the limits that were set", |conn| {
        limits::all(conn).doing("look at the limits")
    });
    let page = LimitsPage {
        lead: key_lines::lead(now.ready()),
        keys: now.map(|now| KeyPageLines {
            lines: key_lines::of(&now),
            next: now
                .reached
                .as_ref()
                .map(|key| search.after(key))
                .unwrap_or_default(),
        }),
        set,
        search,
        shell: cx.shell("Limits", Section::Limits)?,
    };
    cx.render(&page)
}
