//! Steps at which a job waits, and effects outside of the database.

use crate::db::model::outcome::{StepWait, WaitUntil};
use crate::db::table::steps;
use crate::db::{DbConnection, own};
use crate::error::Doing;
use crate::flow::events::problem_of_name;
use crate::job::context::Context;
use crate::job::error::{JobError, JobResult};
use crate::job::running::ignored;
use crate::job::steps::{check_name, read, twice};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

impl<S: ?Sized> Context<'_, S> {
    /// Does something outside of the database, such as a request to another service, and records its result.
    ///
    /// A later run of the job, after a crash, a stop or a failed attempt, skips the step and gets the recorded result.
    /// `work` runs in no transaction. Its result is recorded afterwards, on a connection of the context. So `work` runs
    /// again if the process dies before that, or the result cannot be recorded: at least once. For work on this database,
    /// which happens exactly once, use [`step`](Self::step).
    ///
    /// Names and values are those of [`step`](Self::step). Do not call it within a step.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Context, Job, JobResult};
    /// # fn charge(_order: i64) -> JobResult<String> { Ok("ch_1".into()) }
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Order { id: i64 }
    /// # impl Job for Order {
    /// #     const NAME: &'static str = "order";
    /// #     type State = ();
    /// #     type Output = ();
    /// fn perform(self, cx: &Context<'_, ()>) -> JobResult {
    ///     let charge = cx.memo("charge", || charge(self.id))?;
    ///     log::info!("order {} was charged: {charge}", self.id);
    ///     Ok(())
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of `work`, and those of [`step`](Self::step).
    pub fn memo<T>(&self, name: &str, work: impl FnOnce() -> JobResult<T>) -> JobResult<T>
    where
        T: Serialize + DeserializeOwned,
    {
        self.memo_with(name, work, |_, _| Ok(()))
    }

    /// Does the same, and `also` something in the transaction that records the result.
    pub(crate) fn memo_with<T>(
        &self,
        name: &str,
        work: impl FnOnce() -> JobResult<T>,
        also: impl FnOnce(&mut DbConnection, &T) -> JobResult,
    ) -> JobResult<T>
    where
        T: Serialize + DeserializeOwned,
    {
        check_name(name)?;
        if let Some(value) = self.recorded(name)? {
            return read(name, &value);
        }
        let value = work()?;
        self.step(&mut self.connection()?, name, |conn| {
            also(conn, &value)?;
            Ok(value)
        })
    }

    /// Pauses the job at this step, without a thread and a claim, and resumes it at the same step after `time`.
    ///
    /// The first time it returns an error: return that with `?`. The worker then schedules the job. When it is due, the
    /// job runs again from its start, and skips the [steps](Self::step) that it has done, and this pause. A crash, a stop
    /// or a failed attempt does not start the pause anew.
    ///
    /// A pause is neither an attempt nor a crash, and an at-most-once job pauses too. The job gives its slot of a
    /// [concurrency key](crate::Job::concurrency) up. Its [timeout](crate::Policy::timeout) starts anew. An operator who
    /// runs the job now, or reschedules it, ends the pause.
    ///
    /// The time counts from the end of the run, by the database's clock. Names are those of [`step`](Self::step).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Context, Job, JobResult};
    /// # fn send(_: &str) -> JobResult { Ok(()) }
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Trial;
    /// # impl Job for Trial {
    /// #     const NAME: &'static str = "trial";
    /// #     type State = ();
    /// #     type Output = ();
    /// fn perform(self, cx: &Context<'_, ()>) -> JobResult {
    ///     cx.memo("welcome", || send("welcome"))?;
    ///     cx.pause_for("trial", Duration::from_secs(14 * 86_400))?;
    ///     cx.memo("reminder", || send("your trial is over"))
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// - The error that starts the pause. A job that goes on all the same gets errors of kind `wait_ignored` from all
    ///   further steps, and fails for good with it if it returns `Ok`.
    /// - The reason to stop, if [`check`](Self::check) returns one.
    /// - An error if the name was used before in this run, or the database rejects a statement.
    pub fn pause_for(&self, name: &str, time: Duration) -> JobResult {
        self.wait(name, || Ok(WaitUntil::Pause(time))).map(drop)
    }

    /// Waits at this step for an [event](crate::emit), without a thread and a claim, and resumes the job at the same step
    /// with the payload.
    ///
    /// Like [`pause_for`](Self::pause_for) it returns an error the first time, which is returned with `?`. An event that
    /// was emitted before counts, as long as it is [kept](crate::Retention::events_for). Returns `None` if none was
    /// emitted within `timeout`. A zero `timeout` looks whether there is one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Context, Job, JobError, JobResult};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Order { id: i64 }
    /// #[derive(Serialize, Deserialize)]
    /// struct Paid { cents: i64 }
    ///
    /// # impl Job for Order {
    /// #     const NAME: &'static str = "order";
    /// #     type State = ();
    /// #     type Output = ();
    /// fn perform(self, cx: &Context<'_, ()>) -> JobResult {
    ///     let event = format!("paid/{}", self.id);
    ///     let Some(paid) = cx.wait_event::<Paid>("paid", &event, Duration::from_secs(7 * 86_400))? else {
    ///         return Err(JobError::from("not paid within a week").discard());
    ///     };
    ///     log::info!("order {} is paid: {} cents", self.id, paid.cents);
    ///     Ok(())
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// - Those of [`pause_for`](Self::pause_for).
    /// - An error if the event's name is empty, longer than 255 bytes, or has a NUL.
    /// - An error if `timeout` is longer than events are kept: see [`Worker::longest_wait`](crate::Worker::longest_wait).
    /// - An error if the payload is no `T`.
    pub fn wait_event<T: DeserializeOwned>(
        &self,
        name: &str,
        event: &str,
        timeout: Duration,
    ) -> JobResult<Option<T>> {
        let value = self.wait(name, || {
            if let Some(problem) = problem_of_name(event) {
                return Err(JobError::new("event_name", problem).fail());
            }
            let longest = self.run().longest_wait;
            if timeout > longest {
                return Err(too_long(event, timeout, longest));
            }
            let name = event.to_owned();
            Ok(WaitUntil::Event { name, timeout })
        })?;
        let payload: Option<(T,)> = serde_json::from_str(&value).map_err(|error| {
            let message = format!("the payload of the event `{event}` cannot be read: {error}");
            JobError::new("unreadable_event", message)
        })?;
        Ok(payload.map(|(payload,)| payload))
    }

    /// Returns the value of a wait that is over, or the error that starts one.
    pub(crate) fn wait(
        &self,
        name: &str,
        until: impl FnOnce() -> JobResult<WaitUntil>,
    ) -> JobResult<String> {
        check_name(name)?;
        if self.is_around {
            let message =
                "a function around the job cannot wait: only the job itself can".to_owned();
            return Err(JobError::new("not_the_job", message).fail());
        }
        if let Some(value) = self.recorded(name)? {
            return Ok(value);
        }
        let until = until()?;
        self.check()?;
        let step = name.to_owned();
        self.steps(|steps| steps.waits_at = Some(step.clone()));
        Err(JobError::park(StepWait { step, until }))
    }

    /// Returns the recorded value of a step, in whichever run it was recorded.
    fn recorded(&self, name: &str) -> JobResult<Option<String>> {
        let run = self.run();
        let known = self.steps(|steps| {
            if let Some(step) = &steps.waits_at {
                return Err(ignored(step));
            }
            if steps.passed.contains(name) {
                return Err(twice(name));
            }
            Ok(steps.behind.as_mut().and_then(|steps| steps.remove(name)))
        })?;
        let value = match known {
            Some(value) => Some(value),
            None => steps::value(&mut own(&mut self.connection()?), run.job_id, name)
                .doing("read a step of the job")?,
        };
        if value.is_some() {
            run.signals.live.note_steps();
            self.steps(|steps| {
                steps.has_found_some = true;
                steps.passed.insert(name.to_owned());
            });
        }
        Ok(value)
    }
}

fn too_long(event: &str, timeout: Duration, longest: Duration) -> JobError {
    let message = format!(
        "the time-out of the wait for the event `{event}` is {} s, but events are kept for {} s: wait for a shorter time, \
         or keep them longer (`events_for` in `[retention]`, or `Retention::events_for` and `Worker::longest_wait`)",
        timeout.as_secs(),
        longest.as_secs()
    );
    JobError::new("wait_too_long", message).fail()
}
