//! Creates jobs from the values of their types.

use crate::db::model::new_row::NewRow;
use crate::error::Result;
use crate::job::arguments::decode::decode;
use crate::job::arguments::readable::written;
use crate::job::class::Job;
use crate::job::extras::access::PublicAccess;
use crate::job::new_job::NewJob;

impl NewJob {
    /// Creates a job with the given arguments and the defaults of its type.
    ///
    /// # Errors
    /// If the arguments cannot be serialized to JSON, or cannot be read from it again: a float is NaN
    /// or infinite, for example.
    pub fn new<J: Job>(job: &J) -> Result<Self> {
        let arguments = written(J::NAME, job, J::REDACT, decode::<J>)?;
        let (class, queue) = (J::NAME.to_owned(), J::QUEUE.to_owned());
        let mut row = NewRow::new(class, arguments, queue, J::PRIORITY);
        row.unique_id = job.unique_id();
        Ok(NewJob {
            row,
            policy: J::policy().with_version(J::VERSION),
            concurrency: job.concurrency(),
            quota: job.quota(),
            max_arguments: J::MAX_ARGUMENTS,
            is_text: false,
            access: PublicAccess {
                wants_token: false,
                shows_result: J::PUBLIC_RESULT,
            },
            ruby: None,
            follows: None,
        })
    }
}
