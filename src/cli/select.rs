//! Which jobs a command is about, and what came of doing something to them.

use super::output::{self, Progress, Report};
use super::table::{Column, Table, printable};
use crate::db::migrations;
use crate::db::{AsConn as _, Database, DbConnection};
use crate::error::{Error, Result};
use crate::job::JobId;
use crate::operate::{Change, Changed, Jobs};
use crate::task_info::{TaskStatus, task_info};
use crate::{JobCount, JobState, JobSummary};
use serde::Serialize;

/// Opens a connection to a database with our tables.
pub(super) fn connect(database: &Database) -> Result<DbConnection> {
    let mut connection = database.connect()?;
    migrations::check(&mut connection.as_conn(), database)?;
    Ok(connection)
}

/// Which jobs.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The ids of the jobs
    #[arg(value_name = "JOB", conflicts_with = "all")]
    ids: Vec<i64>,

    /// Only jobs of this class
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    class: Option<String>,

    /// Only jobs on this queue
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    queue: Option<String>,

    /// Every job that can be
    #[arg(long)]
    all: bool,

    /// At most so many jobs
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
}

/// How many jobs a command is about, by its own word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those with these ids.
    Ids(Vec<i64>),
    /// Those of a class, a queue, or with an error.
    Some,
    /// All.
    All,
}

impl Which {
    pub(super) fn scope(&self) -> Scope {
        if self.all {
            Scope::All
        } else if self.ids.is_empty() {
            Scope::Some
        } else {
            Scope::Ids(self.ids.clone())
        }
    }

    /// Of `jobs`, those that were asked for; `narrowed` when something else
    /// than these arguments has been said of them.
    pub(super) fn of(&self, mut jobs: Jobs, narrowed: bool) -> Result<Jobs> {
        let says = !self.ids.is_empty() || self.class.is_some() || self.queue.is_some();
        if !(says || narrowed || self.all) {
            return Err(Error::Settings(
                "no job is named: give ids, `--class` or `--queue`, or `--all` for every one"
                    .to_owned(),
            ));
        }
        if !self.ids.is_empty() {
            jobs = jobs.ids(self.ids.iter().map(|id| JobId(*id)));
        }
        if let Some(class) = &self.class {
            jobs = jobs.class(class);
        }
        if let Some(queue) = &self.queue {
            jobs = jobs.queue(queue);
        }
        Ok(match self.limit {
            Some(limit) => jobs.limit(limit),
            None => jobs,
        })
    }
}

/// How a change is made and shown.
#[derive(Debug, clap::Args)]
pub(super) struct How {
    /// Only count the jobs, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask before jobs that are not named by id are cancelled or deleted
    #[arg(long)]
    yes: bool,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What came of a change, or would.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    /// What was to be done.
    #[serde(skip)]
    deed: Deed,
    dry_run: bool,
    /// The person at the terminal did not want it.
    #[serde(skip)]
    refused: bool,
    /// Of a dry run: the jobs it would be about.
    #[serde(skip_serializing_if = "Option::is_none")]
    selected: Option<Vec<Selected>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(flatten)]
    changed: Option<Changed>,
    /// Jobs that were named and are none of those that can be changed so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_selected: Vec<Missing>,
}

#[derive(Debug, Serialize)]
struct Selected {
    state: JobState,
    #[serde(flatten)]
    jobs: JobCount,
}

#[derive(Debug, Serialize)]
struct Missing {
    job_id: i64,
    /// `None`: there is no such job.
    status: Option<TaskStatus>,
}

/// A change in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deed {
    /// `cancelled`, `retried` and so on.
    pub(super) done: &'static str,
    /// What is true of the jobs that cannot be changed so: `has not failed`.
    pub(super) but: &'static str,
}

impl How {
    /// Makes the change, or counts what it would be about.
    pub(super) fn run(
        &self,
        database: &Database,
        (jobs, scope): (&Jobs, &Scope),
        change: Change,
        deed: Deed,
    ) -> Result<Done> {
        let mut connection = connect(database)?;
        let mut done = Done {
            deed,
            dry_run: self.dry_run,
            refused: false,
            selected: None,
            changed: None,
            not_selected: missing(&mut connection, jobs, scope)?,
        };
        if self.dry_run {
            let counts = jobs.counts(&mut connection)?;
            let selected = counts.into_iter();
            done.selected = Some(
                selected
                    .map(|(state, jobs)| Selected { state, jobs })
                    .collect(),
            );
        } else if self.is_wanted(&mut connection, (jobs, scope), change, deed)? {
            done.changed = Some(make(&mut connection, jobs, change, deed)?);
        } else {
            done.refused = true;
        }
        Ok(done)
    }

    /// Asks before many jobs are gone.
    fn is_wanted(
        &self,
        connection: &mut DbConnection,
        (jobs, scope): (&Jobs, &Scope),
        change: Change,
        deed: Deed,
    ) -> Result<bool> {
        let is_final = matches!(change, Change::Cancel | Change::Discard);
        if self.yes || !is_final || matches!(scope, Scope::Ids(_)) {
            return Ok(true);
        }
        let count = jobs.count(connection)?;
        let done = deed.done;
        match output::ask(&format!("{} will be {done}. Go on?", plural(count, "job"))) {
            Some(answer) => Ok(answer),
            None if *scope == Scope::All => Err(Error::Settings(format!(
                "{} would be {done}, and there is no terminal to ask at: pass `--yes`, or look first with \
                 `--dry-run`",
                plural(count, "job")
            ))),
            None => Ok(true),
        }
    }
}

fn make(connection: &mut DbConnection, jobs: &Jobs, change: Change, deed: Deed) -> Result<Changed> {
    let progress = Progress::of(deed.done, || jobs.count(connection))?;
    let changed = jobs.change_with_progress(connection, change, |done| {
        let Changed {
            changed,
            running,
            at_most_once,
            id_taken,
            passed_over,
        } = done;
        progress.reach(changed + running + at_most_once + id_taken + passed_over);
    });
    progress.end();
    changed
}

/// As many named jobs are looked at one by one.
const MOST_NAMED: usize = 1000;

/// Which of the jobs that were named are not among `jobs`, and how they are.
fn missing(connection: &mut DbConnection, jobs: &Jobs, scope: &Scope) -> Result<Vec<Missing>> {
    let Scope::Ids(ids) = scope else {
        return Ok(Vec::new());
    };
    if ids.len() > MOST_NAMED {
        return Ok(Vec::new());
    }
    let there = jobs.clone().limit(ids.len() as u64).list(connection)?;
    let is_there = |id: &i64| there.iter().any(|job| job.job_id == *id);
    let mut ids: Vec<i64> = ids.iter().copied().filter(|id| !is_there(id)).collect();
    ids.sort_unstable();
    ids.dedup();
    let look = |id: i64| {
        Ok(Missing {
            job_id: id,
            status: task_info(connection, JobId(id))?.map(|task| task.status),
        })
    };
    ids.into_iter().map(look).collect()
}

impl Done {
    /// What the program is to exit with.
    pub(super) fn code(&self) -> u8 {
        u8::from(self.refused || !self.not_selected.is_empty())
    }
}

impl Report for Done {
    fn text(&self, width: Option<usize>) -> String {
        let mut text: String = self
            .not_selected
            .iter()
            .map(|missing| missing.text(self.deed.but))
            .collect();
        let done = self.deed.done;
        text.push_str(&match (&self.selected, &self.changed) {
            (Some(selected), _) => planned(selected, done, width),
            (None, Some(changed)) => told(changed, done),
            (None, None) => format!("No job was {done}.\n"),
        });
        text
    }
}

impl Missing {
    fn text(&self, but: &str) -> String {
        let id = self.job_id;
        let is = match self.status {
            None => return format!("There is no job {id}.\n"),
            Some(TaskStatus::Queued) => "it waits",
            Some(TaskStatus::Running) => "it runs",
            Some(TaskStatus::Succeeded) => "it has finished",
            Some(TaskStatus::Failed) => "it has failed",
            Some(TaskStatus::Cancelled) => "it was cancelled",
            Some(TaskStatus::Discarded) => "it was discarded",
        };
        format!("Job {id} {but}: {is}.\n")
    }
}

/// `1 job`, `2 jobs`.
fn plural(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// One of two words, as there is one or are many.
fn by(count: u64, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

fn planned(selected: &[Selected], word: &str, width: Option<usize>) -> String {
    let sum: i64 = selected.iter().map(|selected| selected.jobs.count).sum();
    if sum == 0 {
        return format!("No job would be {word}.\n");
    }
    let mut table = Table::new(&[
        Column::text("STATE"),
        Column::text("CLASS"),
        Column::text("QUEUE"),
        Column::text("DELIVERY"),
        Column::number("JOBS"),
    ]);
    for Selected { state, jobs } in selected {
        table.add(vec![
            name(*state).to_owned(),
            printable(&jobs.class_name),
            printable(&jobs.queue_name),
            delivery(jobs.at_most_once).to_owned(),
            jobs.count.to_string(),
        ]);
    }
    format!(
        "{}\nA dry run: nothing was changed. {} would be looked at, to be {word}.\n",
        table.text(width),
        plural(u64::try_from(sum).unwrap_or_default(), "job")
    )
}

fn delivery(at_most_once: bool) -> &'static str {
    if at_most_once {
        "at most once"
    } else {
        "at least once"
    }
}

fn told(changed: &Changed, word: &str) -> String {
    let Changed {
        changed,
        running,
        at_most_once,
        id_taken,
        passed_over,
    } = *changed;
    let were = |count| by(count, "was", "were");
    let mut text = match changed {
        0 => format!("No job was {word}.\n"),
        _ => format!("{} {} {word}.\n", plural(changed, "job"), were(changed)),
    };
    if running > 0 && word == "cancelled" {
        let is = by(
            running,
            "more is running: it hears",
            "more are running: they hear",
        );
        let their = by(running, "its", "their");
        text.push_str(&format!(
            "{running} {is} of it with the next heartbeat of {their} process.\n"
        ));
    } else if running > 0 {
        let is = by(running, "is", "are");
        text.push_str(&format!(
            "{running} {is} running and {} left alone.\n",
            were(running)
        ));
    }
    if at_most_once > 0 {
        text.push_str(&format!(
            "{at_most_once} may run at most once and {} left alone: each has started before, and may have done \
             all or part of its work. `--even-at-most-once` runs them again nevertheless.\n",
            were(at_most_once)
        ));
    }
    if id_taken > 0 {
        let have = by(id_taken, "has", "have");
        text.push_str(&format!(
            "{id_taken} {have} a unique id that another job holds by now, and {} left alone.\n",
            were(id_taken)
        ));
    }
    if passed_over > 0 {
        let turn = by(passed_over, "its", "their");
        text.push_str(&format!(
            "{passed_over} had been moved or had ended before {turn} turn came.\n"
        ));
    }
    text
}

/// A state as people and `--state` write it.
pub(super) fn name(state: JobState) -> &'static str {
    match state {
        JobState::Ready => "ready",
        JobState::Scheduled => "scheduled",
        JobState::Blocked => "blocked",
        JobState::Claimed => "claimed",
        JobState::Failed => "failed",
        JobState::Finished => "finished",
        JobState::Cancelled => "cancelled",
        JobState::Discarded => "discarded",
    }
}

/// Jobs, one a row.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    pub(super) jobs: Vec<JobSummary>,
    /// What is said of none.
    #[serde(skip)]
    pub(super) none: &'static str,
}

impl Report for Listed {
    fn text(&self, width: Option<usize>) -> String {
        if self.jobs.is_empty() {
            return format!("{}\n", self.none);
        }
        let Some(width) = width else {
            return self.table(usize::MAX).text(None);
        };
        let room = width.saturating_sub(self.table(0).width() - ERROR.len());
        if room >= LEAST_ROOM {
            self.table(room).text(Some(width))
        } else {
            let room = width.saturating_sub("  error: ".len());
            self.table(room.max(LEAST_ROOM)).text(Some(width))
        }
    }
}

const ERROR: &str = "ERROR";

/// An error that has less room beside the other columns comes below them.
const LEAST_ROOM: usize = 30;

impl Listed {
    /// With errors of at most so many letters.
    fn table(&self, most: usize) -> Table {
        let mut table = Table::new(&[
            Column::number("JOB"),
            Column::text("CLASS"),
            Column::text("QUEUE"),
            Column::number("PRIORITY"),
            Column::text("STATE"),
            Column::text("AT"),
            Column::number("ATTEMPTS"),
            Column::text(ERROR),
        ]);
        for job in &self.jobs {
            let error = job.error.as_deref().unwrap_or_default();
            table.add(vec![
                job.job_id.to_string(),
                printable(&job.class_name),
                printable(&job.queue_name),
                job.priority.to_string(),
                name(job.state).to_owned(),
                job.at.format("%Y-%m-%d %H:%M:%S").to_string(),
                job.attempts.to_string(),
                shortened(&printable(error), most),
            ]);
        }
        table
    }
}

/// At most so many letters of a text, without its middle: what an error is
/// about stands at its beginning, and its cause at its end.
fn shortened(text: &str, most: usize) -> String {
    let letters = text.chars().count();
    if letters <= most {
        return text.to_owned();
    }
    let head = most.saturating_sub(1) / 3;
    let tail = most.saturating_sub(1 + head);
    let start = text.chars().take(head).chain((most > 0).then_some('…'));
    start.chain(text.chars().skip(letters - tail)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;

    #[test]
    fn errors_lose_their_middle() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(
            shortened("what it is about: the cause", 13),
            "what…he cause"
        );
        assert_eq!(shortened(&"ä".repeat(80), 61).chars().count(), 61);
        assert_eq!(shortened("any", 0), "");
    }

    #[test]
    fn a_table_of_jobs_uses_the_whole_width() {
        let job = JobSummary {
            job_id: 1,
            class_name: "import".to_owned(),
            queue_name: "default".to_owned(),
            priority: 0,
            state: JobState::Failed,
            attempts: 1,
            created_at: DateTime::default(),
            at: DateTime::default(),
            error: Some(format!("first {} the cause", "x".repeat(200))),
        };
        let listed = Listed {
            jobs: vec![job],
            none: "",
        };
        let whole = listed.text(None);
        assert!(whole.contains(&"x".repeat(200)), "{whole}");
        for (width, lines) in [(200, 2), (110, 2), (70, 8)] {
            let text = listed.text(Some(width));
            assert!(
                text.contains("first x") && text.contains("x the cause"),
                "{text}"
            );
            assert_eq!(text.lines().count(), lines, "{text}");
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert_eq!(longest, Some(width), "{text}");
        }
    }

    #[test]
    fn what_was_left_alone_is_told() {
        let changed = Changed {
            changed: 3,
            running: 2,
            at_most_once: 1,
            id_taken: 1,
            passed_over: 0,
        };
        let text = told(&changed, "retried");
        assert!(
            text.starts_with("3 jobs were retried.\n2 are running and were"),
            "{text}"
        );
        assert!(text.contains("--even-at-most-once"), "{text}");
        assert!(text.contains("1 has a unique id"), "{text}");
        assert!(told(&changed, "cancelled").contains("2 more are running"));
    }
}
