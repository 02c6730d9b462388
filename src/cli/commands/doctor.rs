//! `windlass doctor`.

use crate::admin::finding::{Finding, Verdict};
use crate::db::Database;
use crate::db::query::doctor::FIRST;
use crate::error::Result;
use crate::terminal::output::{self, Report};
use crate::terminal::table::{Column, Table};
use serde::Serialize;
use std::process::ExitCode;

/// Look whether all is well: the schema, the jobs, the processes, the database
///
/// It only reads. Problems are what loses or holds up jobs: tables that are not
/// as the migrations made them, jobs that stand in two places or in none.
/// Warnings are what may: processes that nobody prunes, due jobs that nobody
/// dispatches, a transaction or a write-ahead log that grows old. Exits with 3
/// when there is a problem.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass doctor
  windlass doctor --strict --json | jq '.findings[] | select(.verdict != \"fine\")'")]
pub(crate) struct Doctor {
    /// Exit with 3 when there is a warning, too
    #[arg(long)]
    strict: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Found {
    verdict: Verdict,
    findings: Vec<Finding>,
}

/// What the program exits with when it found a problem.
const WRONG: u8 = 3;

impl Doctor {
    pub(crate) fn show(&self, database: &Database) -> Result<ExitCode> {
        let findings = crate::admin::doctor::doctor(&mut database.connect()?)?;
        let verdicts = findings.iter().map(|finding| finding.verdict);
        let verdict = verdicts.max().unwrap_or(Verdict::Fine);
        let least = if self.strict {
            Verdict::Warning
        } else {
            Verdict::Problem
        };
        let code = if verdict >= least { WRONG } else { 0 };
        let found = Found { verdict, findings };
        Ok(output::show_and_end(&found, self.json, code))
    }
}

impl Report for Found {
    fn text(&self, width: Option<usize>) -> String {
        let mut table = Table::new(&[
            Column::text("CHECK"),
            Column::text("VERDICT"),
            Column::text("FOUND"),
        ]);
        for finding in &self.findings {
            table.add(vec![
                finding.check.to_owned(),
                name(finding.verdict).to_owned(),
                told(finding),
            ]);
        }
        table.text(width)
    }
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fine => "fine",
        Verdict::Warning => "WARNING",
        Verdict::Problem => "PROBLEM",
    }
}

fn told(finding: &Finding) -> String {
    let Finding { says, jobs, .. } = finding;
    if jobs.is_empty() {
        return says.clone();
    }
    let named: Vec<String> = jobs.iter().map(i64::to_string).collect();
    let more = if jobs.len() < FIRST { "" } else { ", .." };
    format!("{says} (jobs {}{more})", named.join(", "))
}
