//! Selects the jobs of a command, and changes them.

use crate::cli::config::CommandError;
use crate::cli::done::{Deed, Done, NotSelected, Selected, plural};
use crate::cli::listed::ChangedBy;
use crate::terminal::{self, ProgressReport};
use clap::error::ErrorKind;
use serde_json::Value;
use std::io::Read as _;
use windlass::internal::admin::job_info;
use windlass::internal::db::own;
use windlass::internal::db::query::job_view::TextLimits;
use windlass::internal::db::schema::migrate;
use windlass::jobs::{Change, Changed, Jobs};
use windlass::operations::NewOperation;
use windlass::{AsConn as _, BatchId, Database, DbConnection, Error, JobId, Result};

/// Opens a connection to a database that has the Windlass tables.
pub(crate) fn connect(database: &Database) -> Result<DbConnection> {
    let mut connection = database.connect()?;
    migrate::check(&mut connection.as_conn(), database)?;
    Ok(connection)
}

/// Selects jobs.
#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    /// The ids of the jobs
    #[arg(value_name = "JOB", value_parser = job_id, conflicts_with = "all")]
    ids: Vec<i64>,

    /// Only jobs of this class
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    class: Option<String>,

    /// Only jobs on this queue
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    queue: Option<String>,

    /// Only jobs of this batch
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    batch: Option<i64>,

    /// Only jobs with this tag; if repeated, with all of them
    #[arg(long = "tag", value_name = "TEXT", conflicts_with = "all")]
    tags: Vec<String>,

    /// Only jobs with this tag; if repeated, with at least one of them
    #[arg(long, value_name = "TEXT", conflicts_with = "all")]
    any_tag: Vec<String>,

    /// All jobs that the command can change
    #[arg(long)]
    all: bool,

    /// Change at most this many jobs
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
}

/// The way in which the jobs of a command were selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// By these ids.
    Ids(Vec<i64>),
    /// By class, queue or error.
    Some,
    /// All jobs.
    All,
}

/// The selected jobs of a command.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(crate) jobs: Jobs,
    pub(crate) scope: Scope,
}

impl Which {
    fn scope(&self) -> Scope {
        if self.all {
            Scope::All
        } else if self.ids.is_empty() {
            Scope::Some
        } else {
            Scope::Ids(self.ids.clone())
        }
    }

    /// Returns those of `jobs` that were selected.
    ///
    /// # Errors
    /// Returns an error if no argument selects any.
    pub(crate) fn select(&self, jobs: Jobs) -> Result<Selection> {
        let says = !self.ids.is_empty() || self.class.is_some() || self.queue.is_some();
        let says = says || self.batch.is_some();
        let is_tagged = !(self.tags.is_empty() && self.any_tag.is_empty());
        if !(says || is_tagged || self.all) {
            return Err(Error::Settings(
                "no jobs are selected: pass ids, `--class`, `--queue`, `--batch` or `--tag`, or `--all` for every one"
                    .to_owned(),
            ));
        }
        Ok(self.narrow(jobs))
    }

    /// Returns those of `jobs` that were selected, or all of them if no argument selects any.
    pub(crate) fn narrow(&self, mut jobs: Jobs) -> Selection {
        if !self.ids.is_empty() {
            jobs = jobs.ids(self.ids.iter().map(|id| JobId(*id)));
        }
        if let Some(class) = &self.class {
            jobs = jobs.class(class);
        }
        if let Some(queue) = &self.queue {
            jobs = jobs.queue(queue);
        }
        if let Some(batch) = self.batch {
            jobs = jobs.batch(BatchId(batch));
        }
        if let Some(limit) = self.limit {
            jobs = jobs.limit(limit);
        }
        jobs = tagged(jobs, &self.tags, &self.any_tag);
        let scope = self.scope();
        Selection { jobs, scope }
    }
}

/// Returns those of `jobs` with all of `tags` and one of `any`, where there are some.
pub(crate) fn tagged(mut jobs: Jobs, tags: &[String], any: &[String]) -> Jobs {
    if !tags.is_empty() {
        jobs = jobs.tagged(tags);
    }
    if !any.is_empty() {
        jobs = jobs.tagged_any(any);
    }
    jobs
}

/// The options of a change and its display.
#[derive(Debug, clap::Args)]
pub(crate) struct How {
    /// Only count the jobs, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask for confirmation before cancelling or deleting jobs that are not named by id
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The option to make a change in the background.
#[derive(Debug, clap::Args)]
pub(crate) struct Background {
    /// Return at once, and let a supervisor make the change; `windlass operations` shows how far it is
    #[arg(long, conflicts_with = "dry_run")]
    background: bool,
}

impl Background {
    /// Makes the change as `how` says, in the background if that was asked for.
    pub(crate) fn run(
        &self,
        how: &How,
        database: &Database,
        selection: &Selection,
        change: Change,
        deed: Deed,
    ) -> Result<Done> {
        let is_final = matches!(change, Change::Cancel | Change::Discard);
        if self.background {
            let start = |jobs: &Jobs| jobs.in_background(change);
            return how.start(database, selection, is_final, deed, start);
        }
        how.run_by(database, selection, is_final, deed, |connection, jobs| {
            with_progress(connection, jobs, deed, |connection, reached| {
                jobs.change_with_progress(connection, change, reached)
            })
        })
    }

    pub(crate) fn is_asked_for(&self) -> bool {
        self.background
    }
}

impl How {
    /// Makes a change, or counts the jobs that it would affect.
    pub(crate) fn run_by(
        &self,
        database: &Database,
        selection: &Selection,
        is_final: bool,
        deed: Deed,
        make: impl FnOnce(&mut DbConnection, &Jobs) -> Result<Changed>,
    ) -> Result<Done> {
        self.act(database, selection, is_final, deed, |connection, jobs| {
            make(connection, jobs).map(Made::Changed)
        })
    }

    /// Starts a change in the background.
    pub(crate) fn start(
        &self,
        database: &Database,
        selection: &Selection,
        is_final: bool,
        deed: Deed,
        operation: impl FnOnce(&Jobs) -> NewOperation,
    ) -> Result<Done> {
        self.act(database, selection, is_final, deed, |connection, jobs| {
            let started = operation(jobs).start(connection)?;
            Ok(Made::Operation(started.id))
        })
    }

    fn act(
        &self,
        database: &Database,
        selection: &Selection,
        is_final: bool,
        deed: Deed,
        make: impl FnOnce(&mut DbConnection, &Jobs) -> Result<Made>,
    ) -> Result<Done> {
        let mut connection = connect(database)?;
        let jobs = selection.jobs.clone().by_actor(self.changed_by.actor());
        let mut done = Done {
            deed,
            dry_run: self.dry_run,
            limit: jobs.limit.filter(|_| self.dry_run),
            refused: false,
            selected: None,
            changed: None,
            operation: None,
            spread: None,
            are_named: matches!(selection.scope, Scope::Ids(_)),
            not_selected: missing(&mut connection, selection)?,
        };
        if self.dry_run {
            let counts = jobs.counts(&mut connection)?;
            let selected = counts.into_iter();
            done.selected = Some(
                selected
                    .map(|(state, jobs)| Selected { state, jobs })
                    .collect(),
            );
        } else if !is_final || self.is_wanted(&mut connection, selection, deed)? {
            match make(&mut connection, &jobs)? {
                Made::Changed(changed) => done.changed = Some(changed),
                Made::Operation(id) => done.operation = Some(id),
            }
        } else {
            done.refused = true;
        }
        Ok(done)
    }

    /// Asks for confirmation before a final change to many jobs.
    fn is_wanted(
        &self,
        connection: &mut DbConnection,
        Selection { jobs, scope }: &Selection,
        deed: Deed,
    ) -> Result<bool> {
        if self.yes || matches!(scope, Scope::Ids(_)) {
            return Ok(true);
        }
        let count = jobs.count(connection)?;
        let done = deed.done;
        match terminal::ask(&format!(
            "{} will be {done}. Continue?",
            plural(count, "job")
        )) {
            Some(answer) => Ok(answer),
            None if *scope == Scope::All => Err(Error::Settings(format!(
                "{} would be {done}, and there is no terminal for a confirmation: pass `--yes`, or check first with \
                 `--dry-run`",
                plural(count, "job")
            ))),
            None => Ok(true),
        }
    }
}

/// The result of a command: changed jobs, or an operation.
enum Made {
    Changed(Changed),
    /// An operation, by its id.
    Operation(i64),
}

/// Makes a change and shows its progress.
pub(crate) fn with_progress(
    connection: &mut DbConnection,
    jobs: &Jobs,
    deed: Deed,
    make: impl FnOnce(&mut DbConnection, &mut dyn FnMut(&Changed)) -> Result<Changed>,
) -> Result<Changed> {
    let progress = ProgressReport::of(deed.done, || jobs.count(connection))?;
    let mut reached = |done: &Changed| progress.reach(done.looked_at());
    let changed = make(connection, &mut reached);
    progress.end();
    changed
}

/// Up to this many named jobs are checked one by one.
const MOST_NAMED: usize = 1000;

/// Returns the named jobs that are not among the selected ones, with their status.
fn missing(connection: &mut DbConnection, selection: &Selection) -> Result<Vec<NotSelected>> {
    let Scope::Ids(ids) = &selection.scope else {
        return Ok(Vec::new());
    };
    if ids.len() > MOST_NAMED {
        return Ok(Vec::new());
    }
    let there = selection
        .jobs
        .clone()
        .limit(ids.len() as u64)
        .list(connection)?;
    let is_there = |id: &i64| there.iter().any(|job| job.job_id == *id);
    let mut ids: Vec<i64> = ids.iter().copied().filter(|id| !is_there(id)).collect();
    ids.sort_unstable();
    ids.dedup();
    let found = job_info::read(&mut own(connection), &ids, TextLimits::NONE)?;
    let missing = ids.into_iter().map(|id| NotSelected {
        job_id: id,
        status: found.get(&id).map(|(task, _)| task.status),
    });
    Ok(missing.collect())
}

// --- Argument values whose default error messages would not help ---

/// Parses a job's id.
pub(crate) fn job_id(text: &str) -> Result<i64, String> {
    text.parse()
        .map_err(|_| "a job's id is a whole number, as `jobs list` shows it".to_owned())
}

/// Returns the JSON text of arguments, from standard input if it is `-`.
pub(crate) fn arguments(text: &str) -> Result<String, CommandError> {
    json(("the arguments are", "them"), text)
}

/// Does the same for another text, which the message names.
pub(crate) fn json((what, it): (&str, &str), text: &str) -> Result<String, CommandError> {
    let mut text = text.to_owned();
    if text == "-" {
        text.clear();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|source| Error::Io {
                action: "read",
                path: "standard input".into(),
                source,
            })?;
    }
    // Its text is not part of the message, because it may be a secret.
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => Ok(text.trim().to_owned()),
        Err(error) => Err(CommandError::Usage(
            ErrorKind::ValueValidation,
            format!("{what} not JSON: {error}; quote {it} for the shell"),
        )),
    }
}

/// Parses a value of the metadata, as `key=JSON`.
pub(crate) fn metadata(text: &str) -> Result<(String, Value), String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err("metadata is written as `key=JSON`, such as `attempts=3`".to_owned());
    };
    let value = serde_json::from_str(value).map_err(|error| {
        format!("the value is not JSON: {error}; a text needs quotes, as `'key=\"text\"'`")
    })?;
    Ok((key.to_owned(), value))
}
