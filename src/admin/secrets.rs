//! The parts of a job that are shown. Everything that leaves the program for readers passes here; the texts that a
//! job writes itself are covered where it runs, by [`Cover`](crate::job::run_log::Cover).

use crate::admin::job_info::{self, TaskInfo, TaskStatus};
use crate::db::query::job_view;
use crate::db::query::jobs::JobSummary;
use crate::db::table::claimed::Progress;
use crate::db::table::{classes, public_tokens};
use crate::db::{AsConn, Conn, own};
use crate::error::{ErrorContext, Result};
use crate::job::digest;
use crate::job::run_log::{self, HIDDEN, SecretTexts};
use chrono::{DateTime, Utc};
use diesel::QueryResult;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// The number of listed jobs whose arguments are read at once, to find their secrets.
const READ_AT_ONCE: usize = 100;

/// The parts of a job that are hidden.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secrets {
    None,
    /// The fields with these names, and the values that they have in its arguments.
    Named(Vec<String>, SecretTexts),
    /// All: no worker has registered which of them are secret.
    All,
}

impl Secrets {
    pub(crate) fn named(names: Vec<String>) -> Self {
        Secrets::Named(names, SecretTexts::default())
    }

    /// Returns what is hidden of a class.
    pub(crate) fn of_class(conn: &mut Conn<'_>, class: &str) -> QueryResult<Self> {
        let names = classes::redact(conn, class)?;
        Ok(names.map_or(Secrets::All, Secrets::named))
    }

    /// Returns what is hidden of each of these classes, if that is known.
    pub fn of_classes<'c>(
        conn: &mut Conn<'_>,
        names: impl Iterator<Item = &'c str>,
    ) -> QueryResult<BTreeMap<String, Self>> {
        let names: Vec<&str> = BTreeSet::from_iter(names).into_iter().collect();
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let known = classes::redact_all(conn, &names)?.into_iter();
        Ok(known
            .map(|(class, fields)| (class, Secrets::named(fields)))
            .collect())
    }

    /// Returns whether some fields are secret, and others are not.
    pub fn has_names(&self) -> bool {
        matches!(self, Secrets::Named(names, _) if !names.is_empty())
    }

    /// Returns the same for a job with these arguments.
    pub fn with(&self, arguments: &str) -> Self {
        match self {
            Secrets::Named(names, _) if !names.is_empty() => {
                Secrets::Named(names.clone(), SecretTexts::of(arguments, names))
            }
            other => other.clone(),
        }
    }

    /// Returns the same for a job with these arguments, if they are stored. Else all is hidden, as the secrets in it are not
    /// known.
    pub(crate) fn with_stored(&self, arguments: Option<&str>) -> Self {
        match arguments {
            Some(arguments) => self.with(arguments),
            None if self.has_names() => Secrets::All,
            None => self.clone(),
        }
    }

    /// Hides what is secret in a job.
    pub fn cover(conn: &mut Conn<'_>, task: &mut TaskInfo) -> QueryResult<()> {
        let secrets = Self::of_class(conn, &task.class_name)?;
        let stored = match secrets.has_names() {
            true => job_view::arguments(conn, &[task.job_id.0])?,
            false => Vec::new(),
        };
        let arguments = stored.first().map(|stored| &*stored.arguments);
        secrets.with_stored(arguments).hide_in_task(task);
        Ok(())
    }

    /// Hides what is secret in a job, of which this is known.
    pub(crate) fn hide_in_task(&self, task: &mut TaskInfo) {
        task.result = task.result.take().map(|result| self.hide(result));
        self.hide_in_tags(&mut task.tags);
    }

    /// Hides the values of secret fields in tags.
    pub fn hide_in_tags(&self, tags: &mut [String]) {
        if let Secrets::Named(_, texts) = self {
            for tag in tags {
                *tag = texts.hide(std::mem::take(tag));
            }
        }
    }

    /// The same for the tags of listed jobs.
    pub fn hide_in_list(conn: &mut Conn<'_>, jobs: &mut [JobSummary]) -> QueryResult<()> {
        let tagged = jobs.iter().filter(|job| !job.tags.is_empty());
        let secrets = Self::of_classes(conn, tagged.map(|job| &*job.class_name))?;
        let secrets_in = |job: &JobSummary| {
            let secrets = secrets
                .get(&job.class_name)
                .filter(|_| !job.tags.is_empty());
            secrets.filter(|secrets| secrets.has_names())
        };
        for jobs in jobs.chunks_mut(READ_AT_ONCE) {
            let ids: Vec<i64> = jobs
                .iter()
                .filter(|job| secrets_in(job).is_some())
                .map(|job| job.job_id)
                .collect();
            if ids.is_empty() {
                continue;
            }
            let stored = job_view::arguments(conn, &ids)?;
            for job in jobs {
                if let Some(secrets) = secrets_in(job) {
                    let own = stored.iter().find(|stored| stored.job_id == job.job_id);
                    let secrets = secrets.with_stored(own.map(|stored| &*stored.arguments));
                    secrets.hide_in_tags(&mut job.tags);
                }
            }
        }
        Ok(())
    }

    /// Returns JSON text with what is secret replaced.
    pub fn show(&self, text: &str) -> Value {
        let value = serde_json::from_str(text);
        match (self, value) {
            (Secrets::None, value) => value.unwrap_or_else(|_| text.into()),
            // If it cannot be read, its secret parts are unknown too.
            (Secrets::All, _) | (Secrets::Named(..), Err(_)) => HIDDEN.into(),
            (Secrets::Named(..), Ok(value)) => self.hide(value),
        }
    }

    /// Returns a value with what is secret replaced: the fields with these names, and what has their
    /// values in the arguments.
    pub(crate) fn hide(&self, mut value: Value) -> Value {
        match self {
            Secrets::None => {}
            Secrets::Named(names, texts) => {
                run_log::hide(&mut value, names);
                texts.hide_in(&mut value);
            }
            Secrets::All => value = HIDDEN.into(),
        }
        value
    }

    /// Returns metadata with what is secret replaced.
    pub(crate) fn hide_in_meta(&self, meta: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
        if *self == Secrets::All {
            return meta.into_keys().map(|key| (key, HIDDEN.into())).collect();
        }
        match self.hide(Value::Object(meta.into_iter().collect())) {
            Value::Object(shown) => shown.into_iter().collect(),
            _ => BTreeMap::new(),
        }
    }

    /// Returns whether JSON text contains one of the texts where it is shown. Spaces do not count, as
    /// programs set them differently.
    pub fn shows(&self, arguments: &str, texts: &[String]) -> bool {
        if !self.has_names() {
            return *self != Secrets::All;
        }
        let packed = |text: &str| -> String { text.split(' ').collect() };
        let shown = packed(&self.show(arguments).to_string());
        texts.iter().any(|text| shown.contains(&packed(text)))
    }
}

// --- The view of a job by its public token ---

/// The public view of a job: no error, no arguments, no tags, and no names of its class, its queue
/// or a host.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct PublicTask {
    /// Its progress or outcome.
    pub status: TaskStatus,
    /// The time at which it ended, by the database's clock.
    pub finished_at: Option<DateTime<Utc>>,
    /// The time before which the next attempt does not start, if there is one.
    pub retry_at: Option<DateTime<Utc>>,
    /// The progress it reported, with its text, as of the last heartbeat.
    pub progress: Option<Progress>,
    /// The value it returned, while that is kept. `None` if its type does not
    /// [allow](crate::Job::PUBLIC_RESULT) it.
    pub result: Option<Value>,
}

impl TaskInfo {
    /// Returns what outsiders may see of the job.
    ///
    /// The result is included only if this job was found by its public token, and its type
    /// [allows](crate::Job::PUBLIC_RESULT) it.
    pub fn public(&self) -> PublicTask {
        PublicTask {
            status: self.status,
            finished_at: self.finished_at,
            retry_at: self.retry_at,
            progress: self.progress.clone(),
            result: self.result.clone().filter(|_| self.shows_result),
        }
    }
}

/// Returns the status of the job to which a [public token](crate::NewJob::public_token) leads; give
/// outsiders only its [`public`](TaskInfo::public) part.
///
/// Returns `None` for every other text, and for a token whose job and result were deleted.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{NewJob, jobs};
///
/// let job = NewJob::of_class("export", "{}").public_token().enqueue(&mut conn)?;
/// let token = job.public_token.expect("the job is new").to_string();
/// let task = jobs::status_by_token(&mut conn, &token)?.expect("it is stored");
/// println!("{}", serde_json::to_string(&task.public()).unwrap());
/// assert!(jobs::status_by_token(&mut conn, "another text")?.is_none());
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn task_info_by_token<C: AsConn + ?Sized>(
    conn: &mut C,
    token: &str,
) -> Result<Option<TaskInfo>> {
    let mut conn = own(conn);
    let found = public_tokens::find(&mut conn, &digest(token)).during("look the token up")?;
    let Some(found) = found else { return Ok(None) };
    let task = job_info::read_one(&mut conn, found.job_id)?;
    Ok(task.map(|task| TaskInfo {
        shows_result: found.shows_result,
        ..task
    }))
}
