//! Steps at which a job waits for others.

use crate::db::model::extras::{Follows, Parent};
use crate::db::model::outcome::WaitUntil;
use crate::db::own;
use crate::db::table::flows::edges;
use crate::db::table::steps::StepState;
use crate::db::transition::enqueue::connect;
use crate::error::{Doing, Error};
use crate::job::context::Context;
use crate::job::error::{JobError, JobResult};
use crate::job::new_job::NewJob;
use crate::job::new_job::parents::After;
use crate::job::steps::{lost, twice};
use crate::job::unknown_parents::{name_unknown, refuse_unknown_of};
use serde::{Deserialize, Serialize};
use std::iter;

/// How the jobs and batches have ended for which a job has [waited](Context::join).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Joined {
    /// How many have succeeded.
    pub succeeded: usize,
    /// How many have ended otherwise.
    pub failed: usize,
}

/// The value of such a step.
#[derive(Debug, Default, Serialize, Deserialize)]
struct JoinedIds {
    jobs: Vec<i64>,
    batches: Vec<i64>,
}

impl<S: ?Sized> Context<'_, S> {
    /// Waits at this step until other jobs or batches have ended, without a thread and a claim, and resumes the job at the
    /// same step.
    ///
    /// `children` is what [`NewJob::after`] takes, but no delay: up to 1,000 jobs and batches, each with a name if its result
    /// is to be read by [`input`](Self::input). [`inputs`](Self::inputs) reads all results. Whether the children succeed
    /// makes no difference, and retries are waited for; what is retried by hand after its end is not.
    ///
    /// Like [`pause_for`](Self::pause_for) it returns an error the first time, which is returned with `?`.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Context, Job, JobError, JobId, JobResult, NewJob};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Import { files: Vec<String> }
    /// # impl Job for Import {
    /// #     const NAME: &'static str = "import";
    /// #     type State = ();
    /// #     type Output = u64;
    /// fn perform(self, cx: &Context<'_, ()>) -> JobResult<u64> {
    ///     let parts: Vec<JobId> = cx.step(&mut cx.connection()?, "split", |conn| {
    ///         let parts = self.files.iter().map(|file| NewJob::of_class("read_file", format!("{file:?}")));
    ///         let parts = windlass::enqueue_all(conn, parts)?;
    ///         Ok(parts.iter().map(|part| part.id).collect())
    ///     })?;
    ///     let ended = cx.join("parts", &parts[..])?;
    ///     if ended.failed > 0 {
    ///         return Err(JobError::from(format!("{} files cannot be read", ended.failed)).fail());
    ///     }
    ///     let lines: Vec<u64> = cx.inputs().map(|input| Ok(input?.value)).collect::<JobResult<_>>()?;
    ///     Ok(lines.iter().sum())
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// - Those of [`pause_for`](Self::pause_for).
    /// - An error if a child is not stored ([`NoSuchParent`](crate::Error::NoSuchParent), [`NoSuchBatch`](crate::Error::NoSuchBatch)), is this job or its own batch,
    ///   or waits for this job; if there are more than 1,000, two with the same name, or a delay. Then the job fails for good.
    pub fn join(&self, name: &str, children: impl After) -> JobResult<Joined> {
        let job = NewJob::of_class("join", "null").after(children);
        let none = Follows::default();
        let children = job.follows.as_deref().unwrap_or(&none);
        if job.row.delay.is_none() && children.parents.is_empty() {
            let (succeeded, failed) = (0, 0);
            return Ok(Joined { succeeded, failed });
        }
        let value = self.wait(name, || {
            if let Some(problem) = self.wrong_children(&job, &children.parents)? {
                return Err(JobError::new("wrong_join", problem).fail());
            }
            self.connect(name, children)
        })?;
        let ids: JoinedIds = serde_json::from_str(&value).map_err(|error| {
            let message = format!("the step `{name}` has a value that is none of a join: {error}");
            JobError::new("unreadable_step", message).fail()
        })?;
        let job = self.run().job_id;
        let failed = edges::failed(
            &mut own(&mut self.connection()?),
            job,
            &ids.jobs,
            &ids.batches,
        );
        let failed = usize::try_from(failed.doing("read how jobs have ended")?).unwrap_or(0);
        let succeeded = (ids.jobs.len() + ids.batches.len()).saturating_sub(failed);
        Ok(Joined { succeeded, failed })
    }

    /// Returns why the job cannot wait for these.
    fn wrong_children(
        &self,
        job: &NewJob,
        children: &[(Parent, Option<String>)],
    ) -> JobResult<Option<String>> {
        if job.row.delay.is_some() {
            let problem = "`join` waits for jobs and batches: for a time, there is `pause_for`";
            return Ok(Some(problem.to_owned()));
        }
        if let Some(problem) = job.wrong_parents() {
            return Ok(Some(problem));
        }
        let run = self.run();
        let is_child = |parent| children.iter().any(|(child, _)| *child == parent);
        if is_child(Parent::Job(run.job_id)) {
            return Ok(Some("the job cannot wait for itself".to_owned()));
        }
        if let Some(batch) = run.batch_id.filter(|batch| is_child(Parent::Batch(*batch))) {
            let problem = format!("the job belongs to batch {batch}, and cannot wait for its end");
            return Ok(Some(problem));
        }
        let jobs: Vec<i64> = children
            .iter()
            .filter_map(|(child, _)| child.job())
            .collect();
        let waiting = edges::waits_for(&mut own(&mut self.connection()?), run.job_id, &jobs);
        let waiting = waiting.doing("look up what waits for the job")?;
        Ok(waiting.map(|child| format!("job {child} waits for this job, and would for ever")))
    }

    /// Connects the job with its children.
    fn connect(&self, step: &str, children: &Follows) -> JobResult<WaitUntil> {
        let run = self.run();
        let mut connection = self.connection()?;
        let conn = &mut own(&mut connection);
        let all = || iter::once((&*run.class_name, children));
        let refused = |error| match error {
            Error::NoSuchParent { .. } | Error::NoSuchBatch { .. } => JobError::from(error).fail(),
            error => error.into(),
        };
        refuse_unknown_of(conn, all()).map_err(refused)?;
        let found = connect::join(conn, run.fence, run.job_id, step, &children.parents);
        let found = found.doing("connect the job with others");
        let found = name_unknown(conn, all(), found).map_err(refused)?;
        let children = &children.parents[..];
        match found {
            StepState::Lost => return Err(lost(run)),
            StepState::Done(_) => return Err(twice(step)),
            StepState::New => {}
        }
        let ids = JoinedIds {
            jobs: children
                .iter()
                .filter_map(|(child, _)| child.job())
                .collect(),
            batches: children
                .iter()
                .filter_map(|(child, _)| child.batch())
                .collect(),
        };
        let value =
            serde_json::to_string(&ids).map_err(|error| JobError::from(error.to_string()))?;
        Ok(WaitUntil::Joined(value))
    }
}
