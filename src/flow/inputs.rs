//! The results of what a job waited for.

use crate::db::query::flows::nodes::{self, InputRow, ParentBatch};
use crate::db::{DbConnection, own};
use crate::error::{Doing as _, Result};
use crate::job::context::Context;
use crate::job::error::{JobError, JobResult};
use crate::job::id::JobId;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

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
        let found = nodes::named(&mut own(&mut self.connection()?), job, name);
        let found = found.doing("read an input")?.ok_or_else(|| {
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
            place: InputPlace::Jobs(0),
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
    /// That job.
    pub job: JobId,
    /// Its name, or that of its batch, if it was given one.
    pub name: Option<String>,
    /// What it returned.
    pub value: T,
}

/// The results of what a job waited for; see [`Context::inputs`].
pub struct Inputs<'c, T> {
    job: i64,
    connect: Box<dyn Fn() -> Result<DbConnection> + 'c>,
    page: VecDeque<InputRow>,
    place: InputPlace,
    value: PhantomData<fn() -> T>,
}

/// What is read next.
#[derive(Debug)]
enum InputPlace {
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
            .field("place", &self.place)
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
            match &mut self.place {
                InputPlace::Jobs(after) => {
                    self.page = nodes::of_jobs(conn, self.job, *after).doing(ACTION)?.into();
                    match self.page.back() {
                        Some(last) => *after = last.job_id,
                        None => {
                            let batches = nodes::batches(conn, self.job).doing(ACTION)?;
                            self.place = InputPlace::Batches(batches.into(), 0);
                        }
                    }
                }
                InputPlace::Batches(batches, after) => {
                    let Some(batch) = batches.front() else {
                        self.place = InputPlace::Nothing;
                        return Ok(());
                    };
                    let rows = nodes::of_batch(conn, batch.batch_id, *after).doing(ACTION)?;
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
                InputPlace::Nothing => return Ok(()),
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
            self.place = InputPlace::Nothing;
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
