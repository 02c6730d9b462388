//! Steps that are undone when the job fails.

use crate::db::model::extras::{On, Otherwise, Parent};
use crate::db::transition::enqueue::connect;
use crate::db::{AsConn, own};
use crate::error::ErrorContext;
use crate::flow::batch::ToNewJob;
use crate::job::context::Context;
use crate::job::error::{JobError, JobResult};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;

impl<S: ?Sized> Context<'_, S> {
    /// Names the job that undoes the step which follows, if this job fails in the end. Together, such steps are a *saga*.
    ///
    /// `job` gets the result of the step. The job that it returns is enqueued in the transaction that records the step, and
    /// waits for this one to end:
    ///
    /// - If this job finishes, they are deleted.
    /// - If it fails for good, is parked, cancelled or discarded, they run, **the newest first**, each after the one before
    ///   has succeeded. They are ordinary jobs with policies of their own: give them enough attempts. One that fails for good
    ///   holds up the others until it is retried by hand, or discarded.
    ///
    /// A [retry](crate::jobs::Change::Retry) by hand of this job runs the steps again that were undone: those whose job
    /// has started. Retry it when the jobs that undo them have ended. If another job replaces this one by its unique
    /// id, they run at once.
    ///
    /// A [`memo`](Undo::memo) whose work fails is not undone, although it may have had an effect, as when an answer is lost.
    /// If that matters, record first what undoes it, in a step that does nothing else.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Context, Job, JobResult, NewJob};
    /// # fn book(_: &str) -> JobResult<u64> { Ok(1) }
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Trip { hotel: String, flight: String }
    /// #[derive(Serialize, Deserialize)]
    /// struct CancelBooking { number: u64 }
    ///
    /// # impl Job for CancelBooking {
    /// #     const NAME: &'static str = "cancel_booking";
    /// #     type State = ();
    /// #     type Output = ();
    /// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
    /// # }
    /// # impl Job for Trip {
    /// #     const NAME: &'static str = "trip";
    /// #     type State = ();
    /// #     type Output = ();
    /// fn perform(self, cx: &Context<'_, ()>) -> JobResult {
    ///     let cancel = |number: &u64| NewJob::new(&CancelBooking { number: *number });
    ///     cx.undo(cancel).memo("hotel", || book(&self.hotel))?;
    ///     cx.undo(cancel).memo("flight", || book(&self.flight))?;
    ///     Ok(())
    /// }
    /// # }
    /// ```
    pub fn undo<T, J, F>(&self, job: F) -> Undo<'_, '_, S, T, F>
    where
        F: FnOnce(&T) -> J,
        J: ToNewJob,
    {
        Undo {
            cx: self,
            job,
            value: PhantomData,
        }
    }
}

/// The job that undoes a step, before the step is done; see [`Context::undo`].
#[must_use = "it does nothing without the step that it undoes"]
pub struct Undo<'u, 'j, S: ?Sized, T, F> {
    cx: &'u Context<'j, S>,
    job: F,
    value: PhantomData<fn(&T)>,
}

impl<S: ?Sized, T, F> fmt::Debug for Undo<'_, '_, S, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Undo").finish_non_exhaustive()
    }
}

impl<S: ?Sized, T, J, F> Undo<'_, '_, S, T, F>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(&T) -> J,
    J: ToNewJob,
{
    /// Does a [step](Context::step), and enqueues the job that undoes it in the same transaction.
    ///
    /// # Errors
    /// Those of [`Context::step`]. Also if the job that undoes it is not new, waits for others itself, or cannot be
    /// enqueued.
    pub fn step<C: AsConn>(
        self,
        conn: &mut C,
        name: &str,
        work: impl FnOnce(&mut C) -> JobResult<T>,
    ) -> JobResult<T> {
        let Undo { cx, job, .. } = self;
        cx.step(conn, name, |conn| {
            let value = work(conn)?;
            enlist(cx, conn, name, job(&value))?;
            Ok(value)
        })
    }

    /// Does something outside of the database, as [`Context::memo`] does, and enqueues the job that undoes it in the
    /// transaction that records its result.
    ///
    /// # Errors
    /// Those of [`Context::memo`] and of [`step`](Self::step).
    pub fn memo(self, name: &str, work: impl FnOnce() -> JobResult<T>) -> JobResult<T> {
        let Undo { cx, job, .. } = self;
        cx.memo_with(name, work, |conn, value| enlist(cx, conn, name, job(value)))
    }
}

/// Enqueues the job that undoes a step.
fn enlist<S: ?Sized, C: AsConn>(
    cx: &Context<'_, S>,
    conn: &mut C,
    step: &str,
    job: impl ToNewJob,
) -> JobResult {
    let refused = |problem: String| JobError::new("wrong_undo", problem).fail();
    let run = cx.run();
    let mut job = job.to_new_job()?;
    let follows = job.follows_mut();
    if !follows.is_default() {
        let problem =
            format!("what undoes the step `{step}` waits for others, which is not possible");
        return Err(refused(problem));
    }
    follows.parents = vec![(Parent::Job(run.job_id), Some(step.to_owned()))];
    (follows.on, follows.otherwise) = (On::Failure, Otherwise::Undo);
    let enqueued = job.enqueue(conn)?;
    if !enqueued.is_new {
        let problem = format!(
            "what undoes the step `{step}` exists already, as job {}",
            enqueued.id
        );
        return Err(refused(problem));
    }
    connect::reverse(&mut own(conn), run.job_id, enqueued.id.0)
        .during("enqueue what undoes a step")?;
    Ok(())
}
