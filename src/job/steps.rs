//! Steps that a job has behind it, and the end in its own transaction: what a
//! job does in the database of the queue, exactly once.

use crate::db::model::outcome::NewResult;
use crate::db::table::jobs;
use crate::db::table::steps::{self, Found};
use crate::db::transition::finish::{self, FinishedJob};
use crate::db::{AsConn, Conn, own};
use crate::error::Doing;
use crate::job::context::{Context, Run};
use crate::job::error::{Interrupted, JobError, JobResult};
use crate::job::step_memory::{Memory, Steps};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::PoisonError;

/// How many steps are read at once; others are looked up when they come.
const READ_AT_ONCE: usize = 20_000;

/// Bytes of a name, and of a value as JSON.
pub(crate) const LONGEST_NAME: usize = 255;

pub(crate) const LARGEST_VALUE: usize = 64 * 1024;

impl<S: ?Sized> Context<'_, S> {
    /// Does a part of the job, and records in the same transaction that it is
    /// done and what it gave: a later run of the job, after a crash, a stop or
    /// a failed attempt, passes it over and gets that value. So its effects on
    /// this database happen exactly once, as often as the job is run.
    ///
    /// The connection must lead to the database of the queue, and `work` must
    /// do its part on it. The transaction is begun and committed here, or is a
    /// savepoint of one that is open. It locks the claim first: as long as it
    /// lasts, nobody can recover the job or ask for its end, so keep it short.
    ///
    /// A name stands for one step of the job: numbers belong into it where
    /// steps are many (up to 255 bytes). Steps may be nested; the inner ones
    /// are undone with the outer one. Two threads may do steps at once, on
    /// connections of their own, one after the other. What the job did by
    /// steps is forgotten when it has ended, but not when it has failed: when
    /// somebody [retries](crate::Change::Retry) it, it goes on where it was.
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
    ///     type State = String; // where the database is
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
    /// What `work` returns, and then nothing of it is kept; also when the
    /// claim is lost ([`Interrupted::Lost`]), when the database refuses a
    /// statement, when the name has been used before in this run, and when the
    /// value takes more than 64 KiB as JSON, or cannot be read back.
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
        own(conn).begin().doing("begin a step")?;
        match self.do_step(conn, name, work) {
            Ok(value) => {
                own(conn).commit().doing("commit a step")?;
                self.steps(|steps| steps.passed.insert(name.to_owned()));
                Ok(value)
            }
            Err(error) => {
                // What cannot be rolled back is when its connection ends.
                let _ = own(conn).roll_back();
                Err(error)
            }
        }
    }

    /// The part of a step in its transaction.
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
        let found = steps::begin(&mut own(conn), run.fence, name).doing("begin a step")?;
        run.signals.live.note_steps();
        match found {
            Found::Lost => Err(lost(run)),
            // Recorded, but not known to be: the answer to its commit was lost.
            Found::Done(value) => {
                if self.steps(|steps| steps.passed.contains(name)) {
                    return Err(twice(name));
                }
                read(name, &value)
            }
            Found::New => {
                let value = work(conn)?;
                let text = written(name, &value)?;
                steps::record(&mut own(conn), run.job_id, name, &text).doing("record a step")?;
                Ok(value)
            }
        }
    }

    /// The value of a step that an earlier run has done, read with all others
    /// at the first step of this one: then those cost nothing.
    fn done_before<C: AsConn>(&self, conn: &mut C, name: &str) -> JobResult<Option<String>> {
        let run = self.run();
        self.steps(|steps| {
            let behind = match &mut steps.behind {
                Some(behind) => behind,
                unread => {
                    let read = steps::of_job(&mut own(conn), run.job_id, READ_AT_ONCE)
                        .doing("read the steps of the job")?;
                    unread.insert(read.into_iter().collect())
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

    fn steps<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        let Steps(memory) = &self.run().steps;
        work(&mut memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the job as finished, in the transaction that is open on this
    /// connection to the database of the queue. When it is committed, the job
    /// has finished, together with all else that was done in it: exactly once,
    /// also for an effect that could not bear repetition. When it is rolled
    /// back, or the process dies before, nothing has happened.
    ///
    /// It is the last thing that the job does under its claim: no
    /// [`step`](Self::step) can follow in this or another transaction. What
    /// `perform` returns afterwards counts only if the transaction was not
    /// committed.
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
    ///     type State = String; // where the database is
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
    /// When the claim is lost ([`Interrupted::Lost`]), when no transaction is
    /// open, or when the database refuses a statement. Roll back then.
    pub fn finish_in<C: AsConn + ?Sized>(&self, conn: &mut C) -> JobResult {
        let (run, conn) = (self.run(), &mut own(conn));
        if !conn.is_in_transaction() {
            return Err(JobError::new(
                "no_transaction",
                "`finish_in` belongs into the transaction of the job's work: begin one first",
            )
            .fail());
        }
        let claim = (run.fence.claim_id, run.job_id);
        let live = &run.signals.live;
        let process = run.fence.process_id;
        let accepted =
            finish::finish_and_keep(conn, process, vec![traces(run)], (run.finished, true))
                .doing("finish the job")?;
        if accepted.is_empty() && !(live.ends_itself() && has_ended(conn, claim)?) {
            return Err(lost(run));
        }
        live.note_own_end();
        Ok(())
    }
}

/// The claim is gone.
fn lost(run: &Run) -> JobError {
    run.signals.live.raise(Interrupted::Lost);
    Interrupted::Lost.into()
}

/// What a job leaves behind that finishes before it returns anything.
fn traces(run: &Run) -> FinishedJob<'_> {
    let unique_id = run.unique_id.as_deref();
    FinishedJob {
        claim_id: run.fence.claim_id,
        result: NewResult::of_finished(
            (run.job_id, run.attempt),
            &run.class_name,
            unique_id,
            (None, None),
            run.policy.keep_result,
        ),
        named: unique_id.map(|_| run.job_id),
        steps: Some(run.job_id),
    }
}

/// Whether the job has ended its claim before: asked only of one that tried.
fn has_ended(conn: &mut Conn<'_>, claim: (i64, i64)) -> crate::error::Result<bool> {
    let ended = jobs::ended_by_owner(conn, claim);
    ended.doing("look whether the job has finished")
}

fn check_name(name: &str) -> JobResult {
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
        let message =
            format!("a step's name has 1 to {LONGEST_NAME} bytes, none of them NUL: {name:.64?}");
        return Err(JobError::new("step_name", message).fail());
    }
    Ok(())
}

fn twice(name: &str) -> JobError {
    let message = format!(
        "the step `{name}` has been done before in this run: each step needs a name of its own"
    );
    JobError::new("duplicate_step", message).fail()
}

fn read<T: DeserializeOwned>(name: &str, value: &str) -> JobResult<T> {
    serde_json::from_str(value).map_err(|error| {
        let message = format!(
            "the value that the step `{name}` gave in an earlier run cannot be read: {error}; \
             a step whose type changes needs another name"
        );
        JobError::new("unreadable_step", message)
    })
}

fn written<T: Serialize>(name: &str, value: &T) -> JobResult<String> {
    let text = serde_json::to_string(value).map_err(|error| {
        let message = format!("the value of the step `{name}` cannot be stored: {error}");
        JobError::new("unserialisable_step", message)
    })?;
    if text.len() > LARGEST_VALUE {
        let message = format!(
            "the value of the step `{name}` takes {} bytes, and {LARGEST_VALUE} are the most: \
             keep it elsewhere, and give a reference to it",
            text.len()
        );
        return Err(JobError::new("step_too_large", message).fail());
    }
    Ok(text)
}
