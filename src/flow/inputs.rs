//! The results of what a job waited for.

use crate::db::model::extras::{Follows, Parent};
use crate::db::model::outcome::ParkUntil;
use crate::db::query::flows::{self, InputRow, ParentBatch};
use crate::db::table::flows::edges;
use crate::db::table::steps::StepState;
use crate::db::transition::enqueue::connect;
use crate::db::{DbConnection, own};
use crate::error::{Error, ErrorContext as _, Result};
use crate::job::JobId;
use crate::job::context::Context;
use crate::job::error::{JobError, JobResult};
use crate::job::extras::{explain_missing, refuse_unknown_of};
use crate::job::new_job::NewJob;
use crate::job::new_job::parents::After;
use crate::job::steps::{lost, twice};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::{fmt, iter};

impl<S: ?Sized> Context<'_, S> {
    /// Returns what a job has returned for which this one waited, by the name that [`NewJob::after`](crate::NewJob::after)
    /// or the [`Flow`](crate::Flow) gave it.
    ///
    /// Results are kept as long as a job that waited for them has not finished, unless
    /// [`keep_result`](crate::Policy::keep_result) is zero.
    ///
    /// # Errors
    /// The job fails for good, if you return it, when it waited for no job of this name (kind `no_input`), or the value
    /// cannot be read as `T` (`unreadable_input`). It fails with `no_input` too, and is retried, if that job has stored no
    /// value: it has failed, or returned none.
    pub fn input<T: DeserializeOwned>(&self, name: &str) -> JobResult<T> {
        let job = self.run().job_id;
        let found = flows::named(&mut own(&mut self.connection()?), job, name);
        let found = found.during("read an input")?.ok_or_else(|| {
            let message = format!("this job waited for none with the name `{name}`");
            JobError::new("no_input", message).fail()
        })?;
        if found.job_id == 0 {
            let message =
                format!("`{name}` is a batch: read the results of its jobs with `inputs`");
            return Err(JobError::new("no_input", message).fail());
        }
        let Some(text) = &found.result else {
            let reason = match &*found.error {
                "" => "it returned no value, or its result is not kept",
                error => error,
            };
            let message = format!(
                "there is no result of job {} (`{name}`): {reason}",
                found.job_id
            );
            return Err(JobError::new("no_input", message));
        };
        read(found.job_id, text)
    }

    /// Returns what the jobs have returned for which this one waited, also those of batches: by their ids, in pages. Jobs
    /// that have stored no value are missing.
    ///
    /// A follower of a [`Batch`](crate::Batch) reads the results of its jobs so. Results are kept as long as a job that
    /// waited for them has not finished.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// use windlass::{Context, Job, JobResult};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Merge;
    ///
    /// impl Job for Merge {
    ///     const NAME: &'static str = "merge";
    ///     type State = ();
    ///     type Output = u64;
    ///     fn perform(self, cx: &Context<'_, ()>) -> JobResult<u64> {
    ///         let mut lines = 0;
    ///         for input in cx.inputs::<u64>() {
    ///             lines += input?.value;
    ///         }
    ///         Ok(lines)
    ///     }
    /// }
    /// ```
    pub fn inputs<T: DeserializeOwned>(&self) -> Inputs<'_, T> {
        Inputs {
            job: self.run().job_id,
            connect: Box::new(|| self.connection()),
            page: VecDeque::new(),
            position: InputPosition::Jobs(0),
            value: PhantomData,
        }
    }
}

fn read<T: DeserializeOwned>(job: i64, text: &str) -> JobResult<T> {
    serde_json::from_str(text).map_err(|error| {
        let message = format!("the result of job {job} cannot be read: {error}");
        JobError::new("unreadable_input", message).fail()
    })
}

/// The result of a job for which this one waited.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Input<T> {
    /// The job.
    pub job: JobId,
    /// Its name, or that of its batch, if it was given one.
    pub name: Option<String>,
    /// The value that it returned.
    pub value: T,
}

/// The results of what a job waited for; see [`Context::inputs`].
pub struct Inputs<'c, T> {
    job: i64,
    connect: Box<dyn Fn() -> Result<DbConnection> + 'c>,
    page: VecDeque<InputRow>,
    position: InputPosition,
    value: PhantomData<fn() -> T>,
}

/// The jobs whose results are read next.
#[derive(Debug)]
enum InputPosition {
    /// Jobs after this id.
    Jobs(i64),
    /// Jobs of the first of these batches, after this id.
    Batches(VecDeque<ParentBatch>, i64),
    Nothing,
}

impl<T> fmt::Debug for Inputs<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs")
            .field("job", &self.job)
            .field("place", &self.position)
            .finish_non_exhaustive()
    }
}

impl<T> Inputs<'_, T> {
    /// Reads the next page. It is empty at the end only.
    fn read_page(&mut self) -> Result<()> {
        const ACTION: &str = "read the inputs";
        let mut conn = (self.connect)()?;
        let conn = &mut own(&mut conn);
        while self.page.is_empty() {
            match &mut self.position {
                InputPosition::Jobs(after) => {
                    self.page = flows::of_jobs(conn, self.job, *after)
                        .during(ACTION)?
                        .into();
                    match self.page.back() {
                        Some(last) => *after = last.job_id,
                        None => {
                            let batches = flows::batches(conn, self.job).during(ACTION)?;
                            self.position = InputPosition::Batches(batches.into(), 0);
                        }
                    }
                }
                InputPosition::Batches(batches, after) => {
                    let Some(batch) = batches.front() else {
                        self.position = InputPosition::Nothing;
                        return Ok(());
                    };
                    let rows = flows::of_batch(conn, batch.batch_id, *after).during(ACTION)?;
                    let named = rows.into_iter().map(|row| InputRow {
                        name: batch.name.clone(),
                        ..row
                    });
                    self.page = named.collect();
                    match self.page.back() {
                        Some(last) => *after = last.job_id,
                        None => {
                            batches.pop_front();
                            *after = 0;
                        }
                    }
                }
                InputPosition::Nothing => return Ok(()),
            }
        }
        Ok(())
    }
}

impl<T: DeserializeOwned> Iterator for Inputs<'_, T> {
    type Item = JobResult<Input<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.is_empty()
            && let Err(error) = self.read_page()
        {
            self.position = InputPosition::Nothing;
            return Some(Err(error.into()));
        }
        let row = self.page.pop_front()?;
        let value = read(row.job_id, row.result.as_deref().unwrap_or("null"));
        Some(value.map(|value| Input {
            job: JobId(row.job_id),
            name: row.name,
            value,
        }))
    }
}

// --- Steps at which a job waits for others ---

/// The outcomes of the jobs and batches for which a job has [waited](Context::join).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Joined {
    /// The number of jobs and batches that have succeeded.
    pub succeeded: usize,
    /// The number of jobs and batches that have ended without success.
    pub failed: usize,
}

/// The stored value of a step at which a job waits for others.
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
        let value = self.park_at_step(name, || {
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
        let failed = usize::try_from(failed.during("read how jobs have ended")?).unwrap_or(0);
        let succeeded = (ids.jobs.len() + ids.batches.len()).saturating_sub(failed);
        Ok(Joined { succeeded, failed })
    }

    /// Returns the reason why the job cannot wait for these children.
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
        let waiting = edges::first_dependent(&mut own(&mut self.connection()?), run.job_id, &jobs);
        let waiting = waiting.during("look up what waits for the job")?;
        Ok(waiting.map(|child| format!("job {child} waits for this job, and would for ever")))
    }

    /// Connects the job with its children.
    fn connect(&self, step: &str, children: &Follows) -> JobResult<ParkUntil> {
        let run = self.run();
        let mut connection = self.connection()?;
        let conn = &mut own(&mut connection);
        let all = || iter::once((&*run.job.class_name, children));
        let refused = |error| match error {
            Error::NoSuchParent { .. } | Error::NoSuchBatch { .. } => JobError::from(error).fail(),
            error => error.into(),
        };
        refuse_unknown_of(conn, all()).map_err(refused)?;
        let found = connect::join(conn, run.fence, run.job_id, step, &children.parents);
        let found = found.during("connect the job with others");
        let found = explain_missing(conn, all(), found).map_err(refused)?;
        let children = &children.parents[..];
        match found {
            StepState::Lost => return Err(lost(run)),
            StepState::Completed(_) => return Err(twice(step)),
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
        Ok(ParkUntil::Joined(value))
    }
}
