//! Steps at which a job waits, and effects outside of the database.

use crate::db::model::audit::{Actor, AuditAction};
use crate::db::model::outcome::{ParkUntil, ParkedStep};
use crate::db::table::{run_time, steps};
use crate::db::transition::audit::AuditTrail;
use crate::db::transition::flows::wake as stored;
use crate::db::{AsConn, DbConnection, own};
use crate::error::{Error, ErrorContext, Result};
use crate::job::arguments::readable::to_json;
use crate::job::arguments::{MAX_DEPTH, is_too_deep};
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
        self.park_at_step(name, || Ok(ParkUntil::Pause(time)))
            .map(drop)
    }

    /// Waits at this step for an [event](crate::events::emit), without a thread and a claim, and resumes the job at the
    /// same step with the payload.
    ///
    /// Like [`pause_for`](Self::pause_for) it returns an error the first time, which is returned with `?`. An event
    /// that was emitted before counts, as long as it is [kept](crate::processes::Retention::events_for). Returns `None`
    /// if none was emitted within `timeout`. A zero `timeout` looks whether there is one.
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
        let value = self.park_at_step(name, || {
            if let Some(problem) = problem_of_name(event) {
                return Err(JobError::new("event_name", problem).fail());
            }
            let longest = self.run().longest_wait;
            if timeout > longest {
                return Err(too_long(event, timeout, longest));
            }
            let name = event.to_owned();
            Ok(ParkUntil::Event { name, timeout })
        })?;
        let payload: Option<(T,)> = serde_json::from_str(&value).map_err(|error| {
            let message = format!("the payload of the event `{event}` cannot be read: {error}");
            JobError::new("unreadable_event", message)
        })?;
        Ok(payload.map(|(payload,)| payload))
    }

    /// Returns the value of a wait that is over, or the error that starts one.
    pub(crate) fn park_at_step(
        &self,
        name: &str,
        until: impl FnOnce() -> JobResult<ParkUntil>,
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
        self.steps(|steps| steps.parked_at = Some(step.clone()));
        Err(JobError::park(ParkedStep { step, until }))
    }

    /// Returns the recorded value of a step, in whichever run it was recorded.
    fn recorded(&self, name: &str) -> JobResult<Option<String>> {
        let run = self.run();
        let known = self.steps(|steps| {
            if let Some(step) = &steps.parked_at {
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
                .during("read a step of the job")?,
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

// --- Events, for which jobs wait ---

/// The maximum size of an event's name, in bytes.
pub(crate) const LONGEST_NAME: usize = 255;

/// The maximum size of a payload as JSON, in bytes, unless a larger one is set.
pub(crate) const LARGEST_PAYLOAD: usize = 64 * 1024;

/// The largest maximum that can be set.
const MOST_PAYLOAD: usize = 64 * 1024 * 1024;

/// Emits an event: jobs that [wait](crate::Context::wait_event) for it run again, with its payload.
///
/// It is part of your transaction, if one is open: the event is there when that commits. Jobs that wait for it later
/// get it as well, as long as it is [kept](crate::processes::Retention::events_for): 30 days by default. So it does not
/// matter which comes first, the event or the wait.
///
/// An event happens once. To emit it again with the same payload does nothing, so that a repeated request is harmless;
/// with another payload it is an error, and the first stays. Use names that say which: `paid/7`.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use serde_json::json;
///
/// windlass::events::emit(&mut conn, "paid/7", &json!({ "cents": 990 }))?;
/// windlass::events::emit(&mut conn, "paid/7", &json!({ "cents": 990 }))?; // the same once more
/// let other = windlass::events::emit(&mut conn, "paid/7", &json!({ "cents": 1 }));
/// assert!(matches!(other, Err(windlass::Error::EventTaken { .. })));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// - [`Error::EventTaken`] if the event was emitted before with another payload, compared as JSON.
/// - [`Error::InvalidEvent`] if the name is empty, has more than 255 bytes or a NUL, or if the payload cannot be
///   written as JSON, takes more than [`max_payload`] or is nested deeper than 120 arrays and objects.
/// - [`Error::Query`] if the database rejects a statement.
pub fn emit<C, T>(conn: &mut C, event: &str, payload: &T) -> Result<()>
where
    C: AsConn + ?Sized,
    T: Serialize + ?Sized,
{
    let payload = to_json(payload).map_err(|error| {
        let reason = format!("its payload cannot be written as JSON: {error}");
        invalid(event, reason)
    })?;
    emit_json(conn, event, &payload)
}

/// Does the same with a payload that is JSON.
pub fn emit_json<C: AsConn + ?Sized>(conn: &mut C, event: &str, payload: &str) -> Result<()> {
    if let Some(problem) = problem_of_name(event) {
        return Err(invalid(event, problem));
    }
    if payload.len() > LARGEST_PAYLOAD {
        let most = max_payload(conn)?;
        if payload.len() > most {
            let reason = format!(
                "its payload takes {} bytes, more than the maximum of {most}: keep the data elsewhere, and give a \
                 reference to it, or raise the maximum by `windlass events max`",
                payload.len()
            );
            return Err(invalid(event, reason));
        }
    }
    if is_too_deep(payload) {
        let reason = format!(
            "its payload is nested deeper than {MAX_DEPTH} arrays and objects, and could not be read by what waits for it"
        );
        return Err(invalid(event, reason));
    }
    let accepted = stored::emit(&mut own(conn), event, payload).during("emit an event")?;
    if !accepted {
        let event = event.to_owned();
        return Err(Error::EventTaken { event });
    }
    conn.after_enqueue()
}

/// Returns the maximum size of a payload as JSON, in bytes, for all programs. Default: 64 KiB.
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::audit::Actor;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// assert_eq!(windlass::events::max_payload(&mut conn)?, 65_536);
/// Actor::default().set_max_payload(&mut conn, 1_000_000)?;
/// assert_eq!(windlass::events::max_payload(&mut conn)?, 1_000_000);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn max_payload<C: AsConn + ?Sized>(conn: &mut C) -> Result<usize> {
    let set = run_time::max_payload(&mut own(conn)).during("read the settings")?;
    Ok(set.unwrap_or(LARGEST_PAYLOAD).max(LARGEST_PAYLOAD))
}

impl Actor {
    /// Sets the [maximum size](crate::events::max_payload) of an event's payload, from 64 KiB to 64 MiB: for Rust, SQL and
    /// HTTP. Returns `false` if that was set already.
    ///
    /// # Errors
    /// If the size is beyond these, or the database does not answer or has no tables.
    pub fn set_max_payload<C: AsConn + ?Sized>(&self, conn: &mut C, bytes: usize) -> Result<bool> {
        if !(LARGEST_PAYLOAD..=MOST_PAYLOAD).contains(&bytes) {
            return Err(Error::Settings(format!(
                "cannot set the maximum size of a payload to {bytes} bytes: it is {LARGEST_PAYLOAD} to {MOST_PAYLOAD}"
            )));
        }
        let set = AuditTrail::new(self, AuditAction::SetMaxPayload)
            .target(bytes.to_string())
            .record_if(&mut own(conn), |conn| {
                run_time::set_max_payload(conn, bytes)
            });
        set.during("change the settings")
    }
}

fn invalid(event: &str, reason: String) -> Error {
    Error::InvalidEvent {
        event: format!("{event:.64}").escape_debug().to_string(),
        reason,
    }
}

/// Returns what is wrong with the name of an event.
pub(crate) fn problem_of_name(event: &str) -> Option<String> {
    let is_wrong = event.is_empty() || event.len() > LONGEST_NAME || event.contains('\0');
    is_wrong.then(|| {
        format!("an event's name has 1 to {LONGEST_NAME} bytes, none of them NUL: {event:.64?}")
    })
}
