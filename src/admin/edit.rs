//! Changes the arguments of a waiting job.

use crate::db::model::audit::{Actor, AuditAction};
use crate::db::table::jobs::EditableJob;
use crate::db::transition::audit::{AuditEffect, AuditTrail};
use crate::db::transition::operate::edit::{self, EditOutcome, NewArguments};
use crate::db::{AsConn, own};
use crate::error::{EditRefusal, Error, Result};
use crate::job::JobId;
use crate::job::bounds::MAX_ARGUMENTS;
use crate::job::new_job::NewJob;
use crate::job::registry::Registry;
use crate::job::run_log::HIDDEN;
use serde_json::Value;

/// The most searches for a job that moves to another state meanwhile.
const ROUNDS: usize = 100;

/// Replaces the arguments of a job that is ready, scheduled, blocked or failed, as JSON text, on the
/// given connection.
///
/// If `registry` has the job's class, the arguments must match its type and its limits, and the job
/// gets the [version](crate::Job::VERSION) of the type. Otherwise they must be JSON of at most 64 KiB,
/// of the version that is stored with the job. The unique id and the concurrency key stay as they
/// are, even if the type would compute others from the new arguments. So do the queue, the time, the
/// attempts, the steps that are done, and the slot of a concurrency key that a ready job holds.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{NewJob, jobs};
///
/// let job = NewJob::of_class("import", r#"{"file":"a.csv"}"#).enqueue(&mut conn)?.id;
/// jobs::edit_arguments(&mut conn, job, r#"{"file":"b.csv"}"#, None)?;
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// - [`Error::Edit`] if a process holds the job, it has ended, Active Job enqueued it, its class is
///   [internal](crate::Job::INTERNAL), or the arguments are invalid.
/// - [`Error::NoSuchJob`] if there is no such job.
/// - If a statement fails.
pub fn edit_arguments<C: AsConn + ?Sized>(
    conn: &mut C,
    job: JobId,
    arguments: &str,
    registry: Option<&Registry>,
) -> Result<()> {
    Actor::default().edit_arguments(conn, job, arguments, registry)
}

impl Actor {
    /// Does what [`edit_arguments`] does. The audit does not record the arguments.
    ///
    /// # Errors
    /// As for [`edit_arguments`].
    pub fn edit_arguments<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        job: JobId,
        arguments: &str,
        registry: Option<&Registry>,
    ) -> Result<()> {
        let mut conn = own(conn);
        let refused = |reason| Error::Edit { job: job.0, reason };
        let mut trail = AuditTrail::new(self, AuditAction::EditJob).target(job.to_string());
        for _ in 0..ROUNDS {
            let outcome = trail.record(
                &mut conn,
                |conn| {
                    edit::edit(conn, job.0, |row| {
                        checked(row, arguments, registry).map_err(refused)
                    })
                },
                |outcome| AuditEffect::of_jobs(u64::from(*outcome == EditOutcome::Done)),
            );
            match outcome? {
                EditOutcome::Done => return Ok(()),
                EditOutcome::Moved => {}
                EditOutcome::Claimed => return Err(refused(EditRefusal::Running)),
                EditOutcome::Ended => return Err(refused(EditRefusal::Ended)),
                EditOutcome::Missing => {
                    let job = job.to_string();
                    return Err(Error::NoSuchJob { job });
                }
            }
        }
        Err(refused(EditRefusal::Running))
    }
}

/// Returns the arguments as they are stored.
fn checked(
    row: &EditableJob,
    arguments: &str,
    registry: Option<&Registry>,
) -> Result<NewArguments, EditRefusal> {
    let stored: Value = serde_json::from_str(&row.arguments).unwrap_or_default();
    if stored.get("job_class").is_some() && stored.get("executions").is_some() {
        return Err(EditRefusal::OfRuby);
    }
    if serde_json::from_str(arguments).is_ok_and(|new| has_hidden(&new)) {
        return Err(EditRefusal::Hidden);
    }
    let class = row.class_name.as_str();
    let known = registry.filter(|registry| registry.classes().any(|known| known == class));
    let job = match known {
        Some(registry) => registry.new_job(class, arguments),
        None if row.is_internal => return Err(EditRefusal::Internal),
        None => Ok(NewJob::of_class(class, arguments).max_arguments(MAX_ARGUMENTS)),
    };
    let new = job.and_then(|job| {
        let version = known.map(|_| job.policy.arguments_version());
        let text = job.into_row()?.arguments;
        Ok(NewArguments { text, version })
    });
    new.map_err(|error| match error {
        Error::InternalClass { .. } => EditRefusal::Internal,
        Error::InvalidJob { reason, .. } => EditRefusal::Invalid(reason),
        error => EditRefusal::Invalid(error.to_string()),
    })
}

/// Returns whether a secret was copied as it is shown.
fn has_hidden(value: &Value) -> bool {
    match value {
        Value::String(text) => text == HIDDEN,
        Value::Array(items) => items.iter().any(has_hidden),
        Value::Object(fields) => fields.values().any(has_hidden),
        _ => false,
    }
}
