//! `windlass doctor`.

use crate::read::doctor::scope::{Finding, Verdict};
use crate::read::sql::doctor::FIRST;
use crate::terminal::{self, Column, Report, Table, has_colors};
use serde::Serialize;
use std::process::ExitCode;
use windlass::{Database, Result};

/// Check the schema, the jobs, the processes and the database
///
/// It only reads. Problems lose or block jobs, such as tables that differ from the migrations, or
/// jobs that are in two states or in none. Warnings may become problems, such as dead processes
/// that are not pruned, due jobs that are not dispatched, or an old transaction or write-ahead log.
/// The exit code is 3 if there is a problem.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass doctor
  windlass doctor --strict --json | jq '.findings[] | select(.verdict != \"fine\")'")]
pub(crate) struct Doctor {
    /// Also exit with 3 if there is a warning
    #[arg(long)]
    strict: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The findings.
#[derive(Debug, Serialize)]
struct Findings {
    verdict: Verdict,
    findings: Vec<Finding>,
}

/// The exit code if there is a problem.
const WRONG: u8 = 3;

impl Doctor {
    pub(crate) fn show(&self, database: &Database) -> Result<ExitCode> {
        let findings = crate::read::doctor::doctor(&mut database.connect()?)?;
        let verdicts = findings.iter().map(|finding| finding.verdict);
        let verdict = verdicts.max().unwrap_or(Verdict::Fine);
        let least = if self.strict {
            Verdict::Warning
        } else {
            Verdict::Problem
        };
        let code = if verdict >= least { WRONG } else { 0 };
        let found = Findings { verdict, findings };
        Ok(terminal::show_and_end(&found, self.json, code))
    }
}

impl Report for Findings {
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
        let text = table.text(width);
        if width.is_some() && has_colors() {
            self.colored(&text)
        } else {
            text
        }
    }
}

impl Findings {
    /// Colors the verdicts in their place: behind the name of a check, or on a line of their own.
    fn colored(&self, text: &str) -> String {
        let checks = self.findings.iter().map(|finding| finding.check);
        let places: Vec<&str> = checks.chain(["verdict:"]).collect();
        let mut colored = String::new();
        for line in text.lines() {
            let found = [Verdict::Fine, Verdict::Warning, Verdict::Problem]
                .into_iter()
                .find_map(|verdict| {
                    let (before, after) = line.split_once(name(verdict))?;
                    places
                        .contains(&before.trim())
                        .then_some((before, verdict, after))
                });
            colored += &match found {
                Some((before, verdict, after)) => {
                    format!(
                        "{before}{}{}{RESET}{after}\n",
                        color(verdict),
                        name(verdict)
                    )
                }
                None => format!("{line}\n"),
            };
        }
        colored
    }
}

/// Ends a color.
const RESET: &str = "\x1b[0m";

fn color(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fine => "\x1b[32m",
        Verdict::Warning => "\x1b[1;33m",
        Verdict::Problem => "\x1b[1;31m",
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
