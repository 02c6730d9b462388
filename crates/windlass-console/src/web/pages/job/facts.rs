//! The facts of a job: its columns, in words.

use crate::web::http;
use crate::web::pages::jobs::filters::only;
use crate::web::request::shell::Shell;
use crate::web::show::{self, Markup, cut, escaped, line};
use log::Level;
use std::time::Duration;
use windlass::internal::db::model::new_row::ORDERED;
use windlass::internal::db::query::job_view::JobView;
use windlass::jobs::{JobDetails, JobLog, Reason};
use windlass::{Backoff, Delivery, Policy};

/// The longest text, in characters.
const LONGEST: usize = 300;

/// A name with its value.
#[derive(Debug)]
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) value: Markup,
}

/// Collects the job.
struct Facts<'s> {
    shell: &'s Shell,
    all: Vec<Fact>,
}

/// Returns a text, and a note beside it in grey.
fn with_note(html: &str, note: &str) -> Markup {
    match note.is_empty() {
        true => Markup::trusted(html.to_owned()),
        false => Markup::trusted(format!("{html} <span class=\"q\">{}</span>", escaped(note))),
    }
}

fn plain(text: &str) -> String {
    escaped(&cut(text, LONGEST))
}

fn duration(time: Duration) -> String {
    show::duration(time.as_secs_f64())
}

/// Returns the facts of a job.
pub(crate) fn facts(details: &JobDetails, job: &JobView, shell: &Shell) -> Vec<Fact> {
    let mut list = Facts {
        shell,
        all: Vec::new(),
    };
    let policy = Policy::of_columns(job.policy.as_deref(), job.max_attempts, job.at_most_once);
    list.queue_and_class(details);
    list.flow(details, job);
    list.names(details, job, &policy);
    list.limits(details, job, &policy);
    list.extras(details);
    list.outcome(details, job);
    list.all
}

impl Facts<'_> {
    fn add(&mut self, name: &'static str, html: &str, note: &str) {
        let value = with_note(html, note);
        self.all.push(Fact { name, value });
    }

    fn link(&self, path: &str, text: &str) -> String {
        let href = escaped(&self.shell.link(path));
        format!("<a href=\"{href}\">{}</a>", plain(text))
    }

    fn queue_and_class(&mut self, details: &JobDetails) {
        let explanation = &details.explanation;
        if let (Some(queue), Some(priority)) = (&explanation.queue_name, explanation.priority) {
            let href = escaped(&self.shell.to(["queues", queue]));
            let html = format!("<a href=\"{href}\">{}</a>, {priority}", plain(queue));
            self.add("Queue, priority", &html, "");
        }
        let class = &explanation.task.class_name;
        let html = self.link(&only("class", class), class);
        self.add("Class", &html, "");
    }

    fn flow(&mut self, details: &JobDetails, job: &JobView) {
        if job.has_flow {
            let id = details.explanation.task.job_id.0.to_string();
            let html = self.link(&http::path(&["jobs", &id, "flow"]), "what waits for what");
            self.add("Flow", &html, "");
        }
        for (name, batch) in [("Batch", job.batch_id), ("Follows", job.follows)] {
            if let Some(batch) = batch {
                let path = http::path(&["batches", &batch.to_string()]);
                let html = self.link(&path, &format!("batch {batch}"));
                self.add(name, &html, "");
            }
        }
    }

    fn names(&mut self, details: &JobDetails, job: &JobView, policy: &Policy) {
        if let Some(id) = &details.explanation.task.unique_id {
            let note = match job.scope.as_deref() {
                Some("while_waiting") => "held until it starts",
                Some("until_result_expires") => "held until its result expires",
                Some(_) => "held until it has finished or failed",
                None => "",
            };
            let html = self.link(&only("uid", id), id);
            self.add("Unique id", &html, note);
        }
        if let Some(key) = &job.concurrency_key {
            let limit = job.concurrency_slots;
            let note = match (limit, job.on_conflict.as_deref()) {
                (None, _) => "a limit of Active Job".to_owned(),
                (Some(slots), Some(ORDERED)) => format!("limit {slots}, in order"),
                (Some(slots), Some("discard")) => {
                    format!("limit {slots}, jobs over it are discarded")
                }
                (Some(slots), _) => format!("limit {slots}, the others wait"),
            };
            let href = escaped(&self.shell.find("/limits", [("key", key)]));
            let html = format!("<a href=\"{href}\">{}</a>", plain(key));
            self.add("Concurrency key", &html, &note);
        }
        if let Some(key) = &job.idempotency_key {
            self.add("Idempotency key", &plain(key), "");
        }
        let tick = policy.tick.as_ref();
        let task = job.task_key.as_deref().or(tick.map(|tick| &*tick.task));
        if let Some(task) = task {
            let at = job.run_at.or(tick.map(|tick| tick.at.naive_utc()));
            let href = escaped(&self.shell.find("/recurring", [("key", task)]));
            let at = at.map_or_else(String::new, |at| format!(", {}", self.shell.time(&at)));
            let html = format!("<a href=\"{href}\">{}</a>{at}", plain(task));
            self.add("Recurring task", &html, "");
        }
        if let Some(id) = &job.active_job_id {
            self.add("Active Job id", &plain(id), "");
        }
    }

    fn limits(&mut self, details: &JobDetails, job: &JobView, policy: &Policy) {
        let explanation = &details.explanation;
        let attempts = explanation.task.attempt;
        let backoff = match policy.backoff {
            Some(Backoff::Fixed(delay)) if delay.is_zero() => "the next one at once".to_owned(),
            Some(Backoff::Fixed(delay)) => format!("{} between attempts", duration(delay)),
            Some(Backoff::Exponential { first, cap }) => format!(
                "back-off {}, doubled, at most {}",
                duration(first),
                duration(cap)
            ),
            None => String::new(),
        };
        let html = match job.max_attempts {
            Some(most) => format!("{attempts} of {most}"),
            None => attempts.to_string(),
        };
        self.add("Attempts", &html, &backoff);
        if job.crash_count > 0 {
            let most = job.max_crashes.unwrap_or(3);
            let html = format!("{} of {most}", job.crash_count);
            self.add("Crashes", &html, "after the last of them it fails");
        }
        if let Some(limit) = policy.time_limit() {
            self.add("Timeout", &duration(limit.timeout), "of each attempt");
        }
        let delivery = match explanation.delivery {
            Some(Delivery::AtMostOnce) => "at most once",
            Some(Delivery::AfterKnownOutcome) => "again only after a known outcome",
            Some(Delivery::AtLeastOnce) => "at least once",
            None => return,
        };
        self.add("Delivery", delivery, "");
        if let Some(at) = explanation.expires_at {
            let at = self.shell.time(&at.naive_utc());
            self.add("Expires", at.as_str(), "unless it has started by then");
        }
        if let Some(at) = explanation.retry_until {
            let at = self.shell.time(&at.naive_utc());
            self.add("Last attempt", at.as_str(), "none follows after that");
        }
    }

    fn extras(&mut self, details: &JobDetails) {
        let tags = &details.explanation.task.tags;
        if !tags.is_empty() {
            let links: Vec<String> = tags
                .iter()
                .map(|tag| self.link(&only("tag", tag), tag))
                .collect();
            self.add("Tags", &links.join(", "), "");
        }
        for (key, value) in &details.meta {
            let html = format!("{}: <code>{}</code>", plain(key), line(value, LONGEST));
            self.add("Metadata", &html, "");
        }
        if let Some(version) = details.arguments_version.filter(|version| *version > 1) {
            self.add("Arguments", &format!("version {version}"), "");
        }
    }

    fn outcome(&mut self, details: &JobDetails, job: &JobView) {
        let progress = match &details.explanation.reason {
            Reason::Claimed { progress, .. } => progress.as_ref(),
            _ => details.explanation.task.progress.as_ref(),
        };
        if let Some(progress) = progress {
            let percent = progress.percent;
            let html = format!(
                "<progress value=\"{percent:.1}\" max=\"100\" aria-label=\"Progress\">{percent:.0} %</progress> {percent:.0} %: {}",
                plain(&progress.message)
            );
            self.add("Progress", &html, "as of the last heartbeat");
        }
        if let Some(print) = &job.fingerprint {
            let href = escaped(&self.shell.link(&only("group", print)));
            let html = format!("<a href=\"{href}\">jobs that failed alike</a>");
            self.add("Failure", &html, "");
        }
        if let Some(until) = job.result_until {
            let at = self.shell.time(&until);
            self.add("Result", &format!("kept until {at}"), "");
        }
    }
}

// --- The steps that a job has completed, and the lines that it logged ---

/// The most steps that are shown.
const STEPS: usize = 200;

/// The most lines of each run that are shown, the newest.
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

/// The log of a run.
#[derive(Debug)]
pub(crate) struct LogView {
    pub(crate) attempt: u32,
    pub(crate) started: Option<Markup>,
    /// The number of older lines that are not shown.
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
