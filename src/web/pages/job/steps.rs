//! The steps that a job has completed, and the lines that it logged.

use crate::admin::details::JobDetails;
use crate::db::table::job_logs::JobLog;
use crate::web::request::shell::Shell;
use crate::web::show::{self, Markup, cut, line};
use log::Level;

/// How many steps are shown.
const STEPS: usize = 200;

/// How many lines of each run are shown, the newest.
const LINES: usize = 200;

/// The longest value or line, in characters.
const LONGEST_STEP: usize = 500;

/// A completed step.
#[derive(Debug)]
pub(crate) struct StepRow {
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) at: Markup,
    pub(crate) value: Markup,
}

/// The steps, of which the first are shown.
#[derive(Debug)]
pub(crate) struct StepsView {
    pub(crate) rows: Vec<StepRow>,
    pub(crate) more: usize,
}

impl StepsView {
    pub(crate) fn of(details: &JobDetails, shell: &Shell) -> Self {
        let steps = details.steps.iter().take(STEPS).map(|step| {
            // It belongs to the first attempt that ended after it, or to the current one.
            let mut attempts = details.attempts.iter();
            let of = attempts.find(|attempt| step.at.is_some_and(|at| at <= attempt.ended_at));
            let current = details.explanation.task.attempt;
            StepRow {
                name: cut(&step.name, LONGEST_STEP),
                attempt: of.map_or(current, |attempt| attempt.attempt),
                at: step
                    .at
                    .map_or_else(Markup::default, |at| shell.time(&at.naive_utc())),
                value: line(&step.value, LONGEST_STEP),
            }
        });
        StepsView {
            rows: steps.collect(),
            more: details.steps.len().saturating_sub(STEPS),
        }
    }
}

/// A logged line.
#[derive(Debug)]
pub(crate) struct LineRow {
    pub(crate) after: String,
    /// A class of the style sheet.
    pub(crate) class: &'static str,
    pub(crate) level: &'static str,
    pub(crate) text: String,
}

/// What a run logged.
#[derive(Debug)]
pub(crate) struct LogView {
    pub(crate) attempt: u32,
    pub(crate) started: Option<Markup>,
    /// How many older lines are not shown.
    pub(crate) before: u64,
    pub(crate) lines: Vec<LineRow>,
}

impl LogView {
    pub(crate) fn of(log: &JobLog, shell: &Shell) -> Self {
        let left = log.lines.len().saturating_sub(LINES);
        let lines = log.lines.iter().skip(left).map(|line| {
            let (class, level) = match line.level {
                Level::Error => ("v bad", "error"),
                Level::Warn => ("v warn", "warn"),
                Level::Info => ("q", "info"),
                Level::Debug => ("q", "debug"),
                Level::Trace => ("q", "trace"),
            };
            LineRow {
                after: show::duration(line.after.as_secs_f64()),
                class,
                level,
                text: cut(&line.text, LONGEST_STEP),
            }
        });
        LogView {
            attempt: log.attempt,
            started: log.started_at.map(|at| shell.time(&at.naive_utc())),
            before: log.dropped.saturating_add(left as u64),
            lines: lines.collect(),
        }
    }
}
