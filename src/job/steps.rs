//! Steps of a job, and finishing in its own transaction: effects in the queue's database that
//! happen exactly once.

use crate::db::model::claim::ClaimOf;
use crate::db::model::decision::{FinishedJob, KeySlots};
use crate::db::model::outcome::{NewOutput, NewResult, ResultOf};
use crate::db::table::jobs;
use crate::db::table::steps::{self, StepState};
use crate::db::transition::finish;
use crate::db::{AsConn, Conn, own};
use crate::error::ErrorContext;
use crate::job::arguments::readable::to_json;
use crate::job::context::{Context, Run};
use crate::job::error::{Interrupted, JobError, JobResult};
use crate::job::running::{Memory, ignored};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The most steps that are read at once; further ones are looked up when they are reached.
const READ_AT_ONCE: usize = 20_000;

/// The maximum size of a name, in bytes.
pub(crate) const LONGEST_NAME: usize = 255;

impl<S: ?Sized> Context<'_, S> {
    /// Does a part of the job, and records in the same transaction that it is done, with its
    /// result.
    ///
    /// A later run of the job, after a crash, a stop or a failed attempt, skips the step and gets
    /// the recorded result. So the effects on this database happen exactly once, however often the
    /// job runs.
    ///
    /// The connection must lead to the queue's database, and `work` must use that connection. The
    /// step starts and commits a transaction, or uses a savepoint if one is open. It locks the
    /// claim first, so no process can recover or cancel the job during the step: keep it short.
    ///
    /// A name identifies one step of the job and has up to 255 bytes; for many steps, include a
    /// number. Steps may be nested; an outer step that rolls back also undoes the inner ones. Two
    /// threads may run steps on connections of their own, and take turns.
    ///
    /// The steps are deleted when the job has ended, unless it failed. When a failed job is
    /// [retried](crate::jobs::Change::Retry), it continues where it was.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Context, Job, JobResult};
    /// #[derive(Serialize, Deserialize)]
    /// struct NotifyAll { users: Vec<i64> }
    ///
    /// impl Job for NotifyAll {
    ///     const NAME: &'static str = "notify_all";
    ///     type State = String; // the address of the database
    ///     type Output = ();
    ///     fn perform(self, cx: &Context<'_, String>) -> JobResult {
    ///         let mut conn = SqliteConnection::establish(cx)?;
    ///         for user in self.users {
    ///             cx.check()?;
    ///             cx.step(&mut conn, &format!("user {user}"), |conn| {
    ///                 diesel::sql_query("INSERT INTO notifications (user_id) VALUES (?)")
    ///                     .bind::<diesel::sql_types::BigInt, _>(user)
    ///                     .execute(conn)?;
    ///                 Ok(())
    ///             })?;
    ///         }
    ///         Ok(())
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// - The error of `work`; then nothing of the step is kept.
    /// - An error if the connection was lost or the database is busy, also in a statement of `work`. Return it with `?`:
    ///   the job is then [given back](crate::JobError#when-the-database-does-not-answer), which is not an attempt.
    /// - [`Interrupted::Lost`] if the claim is lost.
    /// - An error if the database rejects a statement, or if the name was used before in this run.
    /// - An error if the value takes more than [`Job::MAX_STEP`](crate::Job::MAX_STEP) as JSON, or cannot be read back.
    pub fn step<C, T>(
        &self,
        conn: &mut C,
        name: &str,
        work: impl FnOnce(&mut C) -> JobResult<T>,
    ) -> JobResult<T>
    where
        C: AsConn,
        T: Serialize + DeserializeOwned,
    {
        check_name(name)?;
        if let Some(value) = self.done_before(conn, name)? {
            return read(name, &value);
        }
        own(conn).begin().during("start a step")?;
        match self.do_step(conn, name, work) {
            Ok(value) => {
                own(conn).commit().during("commit a step")?;
                self.steps(|steps| steps.passed.insert(name.to_owned()));
                Ok(value)
            }
            Err(error) => {
                // If it cannot be rolled back, it is undone when its connection closes.
                let _ = own(conn).roll_back();
                Err(error.in_own_transaction())
            }
        }
    }

    /// Does the part of a step within its transaction.
    fn do_step<C, T>(
        &self,
        conn: &mut C,
        name: &str,
        work: impl FnOnce(&mut C) -> JobResult<T>,
    ) -> JobResult<T>
    where
        C: AsConn,
        T: Serialize + DeserializeOwned,
    {
        let run = self.run();
        let found = steps::begin(&mut own(conn), run.fence, name).during("start a step")?;
        run.signals.live.note_steps();
        match found {
            StepState::Lost => Err(lost(run)),
            // Recorded without this run having seen it: the answer to its commit was lost.
            StepState::Completed(value) => {
                if self.steps(|steps| steps.passed.contains(name)) {
                    return Err(twice(name));
                }
                self.steps(|steps| steps.has_found_some = true);
                read(name, &value)
            }
            StepState::New => {
                let value = work(conn)?;
                let text = written(name, &value, self.max_step)?;
                steps::record(&mut own(conn), run.job_id, name, &text).during("record a step")?;
                Ok(value)
            }
        }
    }

    /// Returns the value of a step that an earlier run has done.
    ///
    /// All such values are read at once, so further ones need no query. A first attempt has none,
    /// unless an earlier one was cut short, and then its first step finds its value by itself.
    fn done_before<C: AsConn>(&self, conn: &mut C, name: &str) -> JobResult<Option<String>> {
        let run = self.run();
        self.steps(|steps| {
            if let Some(step) = &steps.parked_at {
                return Err(ignored(step));
            }
            let behind = match &mut steps.behind {
                Some(behind) => behind,
                None if run.attempt == 1 && !steps.has_found_some => return Ok(None),
                unread => {
                    let read = steps::of_job(&mut own(conn), run.job_id, READ_AT_ONCE)
                        .during("read the steps of the job")?;
                    let read = read.into_iter().map(|step| (step.name, step.value));
                    // Those that this run has passed itself are not behind it.
                    unread.insert(
                        read.filter(|(name, _)| !steps.passed.contains(name))
                            .collect(),
                    )
                }
            };
            let value = behind.remove(name);
            if value.is_some() {
                run.signals.live.note_steps();
                steps.passed.insert(name.to_owned());
            }
            Ok(value)
        })
    }

    pub(crate) fn steps<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        self.run().steps.with(work)
    }

    /// Finishes the job in the transaction that is open on this connection to the queue's database.
    ///
    /// After the commit, the job has finished, together with everything else in the transaction. So
    /// effects that are not idempotent also happen exactly once. After a rollback, or if the
    /// process dies before, nothing has happened.
    ///
    /// This is the last thing that the job does under its claim: no [`step`](Self::step) can
    /// follow, in this transaction or another. The value that `perform` returns afterwards counts
    /// only if the transaction was not committed.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Context, Job, JobError, JobResult};
    /// #[derive(Serialize, Deserialize)]
    /// struct Charge { account: i64, cents: i64 }
    ///
    /// impl Job for Charge {
    ///     const NAME: &'static str = "charge";
    ///     type State = String; // the address of the database
    ///     type Output = ();
    ///     fn perform(self, cx: &Context<'_, String>) -> JobResult {
    ///         let mut conn = SqliteConnection::establish(cx)?;
    ///         conn.immediate_transaction(|conn| {
    ///             diesel::sql_query("UPDATE accounts SET balance = balance - ? WHERE id = ?")
    ///                 .bind::<diesel::sql_types::BigInt, _>(self.cents)
    ///                 .bind::<diesel::sql_types::BigInt, _>(self.account)
    ///                 .execute(conn)?;
    ///             cx.finish_in(conn)
    ///         })
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// If the claim is lost ([`Interrupted::Lost`]), if no transaction is open, or if the database
    /// rejects a statement. Roll back in these cases.
    pub fn finish_in<C: AsConn + ?Sized>(&self, conn: &mut C) -> JobResult {
        let (run, conn) = (self.run(), &mut own(conn));
        if self.is_around {
            return Err(JobError::new(
                "not_the_job",
                "`finish_in` was called around the job: only the job itself may finish it",
            )
            .fail());
        }
        if let Some(step) = run.steps.parked_at() {
            return Err(ignored(&step));
        }
        if !conn.is_in_transaction() {
            return Err(JobError::new(
                "no_transaction",
                "`finish_in` needs the open transaction of the job's work: start one first",
            )
            .fail());
        }
        let claim = ClaimOf {
            claim_id: run.fence.claim_id,
            job_id: run.job_id,
        };
        let live = &run.signals.live;
        let process = run.fence.process_id;
        let accepted = finish::finish_and_keep(
            conn,
            process,
            vec![traces(run)],
            run.finished,
            KeySlots::of(run.job.is_limited),
        )
        .during("finish the job")?;
        if accepted.is_empty() && !(live.ends_itself() && has_ended(conn, claim)?) {
            return Err(lost(run));
        }
        live.note_own_end();
        Ok(())
    }
}

/// The claim is gone.
pub(crate) fn lost(run: &Run) -> JobError {
    run.signals.live.raise(Interrupted::Lost);
    Interrupted::Lost.into()
}

/// Returns what remains of a job that finishes before it returns a value.
fn traces(run: &Run) -> FinishedJob<'_> {
    let unique_id = run.job.unique_id.as_deref();
    FinishedJob {
        claim_id: run.fence.claim_id,
        result: NewResult::of_finished(
            ResultOf {
                job_id: run.job_id,
                attempt: i32::try_from(run.attempt).unwrap_or(i32::MAX),
                class_name: &run.job.class_name,
                unique_id,
                batch_id: run.batch_id,
            },
            NewOutput::default(),
            run.policy.keep_result,
        ),
        named: unique_id.map(|_| run.job_id),
        has_steps: true,
        has_batch: run.batch_id.is_some(),
    }
}

/// Returns whether the job has ended its claim before; checked only for a job that tried to.
fn has_ended(conn: &mut Conn<'_>, claim: ClaimOf) -> crate::error::Result<bool> {
    let ended = jobs::ended_by_owner(conn, claim);
    ended.during("look whether the job has finished")
}

pub(crate) fn check_name(name: &str) -> JobResult {
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
        let message =
            format!("a step's name has 1 to {LONGEST_NAME} bytes, none of them NUL: {name:.64?}");
        return Err(JobError::new("step_name", message).fail());
    }
    Ok(())
}

pub(crate) fn twice(name: &str) -> JobError {
    let message =
        format!("the step `{name}` was already done in this run: each step needs its own name");
    JobError::new("duplicate_step", message).fail()
}

pub(crate) fn read<T: DeserializeOwned>(name: &str, value: &str) -> JobResult<T> {
    serde_json::from_str(value).map_err(|error| {
        let message = format!(
            "the value of the step `{name}` from an earlier run cannot be read: {error}; \
             a step whose type changes needs another name"
        );
        JobError::new("unreadable_step", message)
    })
}

pub(crate) fn written<T: Serialize>(name: &str, value: &T, most: usize) -> JobResult<String> {
    let text = to_json(value).map_err(|error| {
        let message = format!("the value of the step `{name}` cannot be stored: {error}");
        JobError::new("unserialisable_step", message)
    })?;
    if text.len() > most {
        let message = format!(
            "the value of the step `{name}` takes {} bytes, more than the maximum of {most}: \
             keep it elsewhere, and give a reference to it, or raise `MAX_STEP`",
            text.len()
        );
        return Err(JobError::new("step_too_large", message).fail());
    }
    Ok(text)
}
