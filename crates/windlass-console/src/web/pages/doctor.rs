//! The page with the findings of `windlass doctor`.

use crate::read::doctor;
use crate::read::doctor::scope::{CheckScope, Finding, Verdict};
use crate::web::http::{PageError, Response};
use crate::web::pages::overview::{DoctorRow, checked};
use crate::web::reads::FINDINGS;
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::{Markup, count, filters, in_words};
use crate::web::site::Section;
use askama::Template;
use std::time::Duration;

#[derive(Template)]
#[template(path = "doctor/page.html")]
struct DoctorPage {
    shell: Shell,
    lead: Markup,
    checks: Panel<Checks>,
}

/// All checks, the worst first.
struct Checks {
    rows: Vec<DoctorRow>,
    /// The time since they ran, in words.
    checked: String,
    /// True if all rows were read.
    is_full: bool,
}

/// Shows the checks of the newest rows, or of all.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let is_full = cx.query().has("full");
    if is_full {
        cx.without_updates();
    }
    let found = match is_full {
        true => cx.panel("the checks of all rows", |conn| {
            Ok((doctor::check(conn, CheckScope::AllInTime)?, Duration::ZERO))
        }),
        false => cx.cached_panel("the checks of doctor", &FINDINGS),
    };
    let page = DoctorPage {
        lead: lead(found.ready().map(|(findings, _)| findings.as_slice())),
        checks: found.map(|(mut findings, age)| {
            findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
            Checks {
                rows: findings.iter().map(DoctorRow::of).collect(),
                checked: checked(age),
                is_full,
            }
        }),
        shell: cx.shell("Doctor", Section::Other)?,
    };
    cx.render(&page)
}

fn lead(findings: Option<&[Finding]>) -> Markup {
    let Some(findings) = findings else {
        return Markup::default();
    };
    let bad = |verdict: Verdict| findings.iter().filter(|one| one.verdict == verdict).count();
    let (problems, warnings) = (bad(Verdict::Problem), bad(Verdict::Warning));
    Markup::trusted(match (problems, warnings) {
        (0, 0) => format!("All {} checks are fine.", count(findings.len())),
        (0, warnings) => format!(
            "<b class=\"warn\">{} of {} checks found something.</b>",
            in_words(warnings),
            count(findings.len())
        ),
        (problems, warnings) => format!(
            "<b class=\"bad\">{} of {} checks found something.</b>",
            in_words(problems + warnings),
            count(findings.len())
        ),
    })
}
