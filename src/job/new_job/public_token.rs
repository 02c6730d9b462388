//! Asking for a public token.

use crate::job::new_job::NewJob;

impl NewJob {
    /// Creates a token by which outsiders can see this job: [`Enqueued::public_token`] has it, once.
    ///
    /// A caller with the token sees the job's [`PublicTask`]; see [`task_info_by_token`]. The database
    /// contains only its SHA-256. A token leads to its job as long as the job's row or its result is
    /// kept, so set [`Policy::keep_result`] if finished jobs are not kept.
    ///
    /// If the enqueue finds an existing job by the same idempotency key, that job gets another
    /// token, and the earlier ones stay valid (the last 100). If it finds another job by the unique
    /// id, there is no token: the job may belong to another caller. A job that is replaced keeps its
    /// tokens.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use windlass::NewJob;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// let job = NewJob::of_class("export", "{}").public_token().enqueue(&mut conn)?;
    /// let token = job.public_token.expect("the job is new").to_string();
    /// // Later, for a request with the token:
    /// let task = windlass::task_info_by_token(&mut conn, &token)?.expect("it is known");
    /// println!("{}", serde_json::to_string(&task.public()).unwrap());
    /// # assert_eq!(task.job_id, job.id);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// [`Enqueued::public_token`]: crate::Enqueued::public_token
    /// [`PublicTask`]: crate::PublicTask
    /// [`task_info_by_token`]: crate::task_info_by_token
    /// [`Policy::keep_result`]: crate::Policy::keep_result
    pub fn public_token(mut self) -> Self {
        self.access.wants_token = true;
        self
    }
}
