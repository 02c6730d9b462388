//! The findings of `doctor`, as pages show them.

use crate::admin::doctor::scope::{Finding, Verdict};
use crate::web::show::markup::{Markup, verdict};
use crate::web::show::times::ago;
use std::time::Duration;

/// A finding.
#[derive(Debug, Clone)]
pub(crate) struct DoctorRow {
    pub(crate) check: &'static str,
    pub(crate) verdict: Markup,
    pub(crate) says: String,
    /// The ids of the first few jobs affected.
    pub(crate) jobs: Vec<i64>,
}

impl DoctorRow {
    pub(crate) fn of(finding: &Finding) -> Self {
        DoctorRow {
            check: finding.check,
            verdict: match finding.verdict {
                Verdict::Fine => verdict("ok", "fine"),
                Verdict::Warning => verdict("warn", "warning"),
                Verdict::Problem => verdict("bad", "problem"),
            },
            says: finding.says.clone(),
            jobs: finding.jobs.clone(),
        }
    }
}

/// Returns when the checks ran, not so exactly that an open page changes by it.
pub(crate) fn checked(age: Duration) -> String {
    match age.as_secs() {
        0..60 => "within the last minute".to_owned(),
        _ => ago(age.as_secs_f64()),
    }
}

/// The findings, with all that are fine in one row.
#[derive(Debug, Clone)]
pub(crate) struct DoctorRows {
    /// Those that are not fine, the worst first.
    pub(crate) findings: Vec<DoctorRow>,
    /// The names of the checks that are fine.
    pub(crate) fine: String,
    /// The verdict on these, and what it says.
    pub(crate) verdict: Markup,
    pub(crate) says: &'static str,
    /// When the checks ran.
    pub(crate) checked: String,
}

impl DoctorRows {
    /// Beside concerns that are not `doctor`'s, its checks are not called fine: they have found nothing.
    pub(crate) fn of(findings: &[Finding], age: Duration, has_concerns: bool) -> Self {
        let fine = |finding: &&Finding| finding.verdict == Verdict::Fine;
        let mut bad: Vec<&Finding> = findings.iter().filter(|one| !fine(one)).collect();
        bad.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
        let names: Vec<&str> = findings.iter().filter(fine).map(|one| one.check).collect();
        DoctorRows {
            findings: bad.into_iter().map(DoctorRow::of).collect(),
            fine: names.join(", "),
            verdict: match has_concerns {
                true => Markup::element("span", "q", "no finding"),
                false => verdict("ok", "fine"),
            },
            says: match has_concerns {
                true => "See “Needs attention”.",
                false => "Nothing to do.",
            },
            checked: checked(age),
        }
    }
}
