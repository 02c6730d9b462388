//! Closes the key of a rate from the body of a job.

use crate::db::model::rate::RatePace;
use crate::db::own;
use crate::db::table::rates;
use crate::error::{Error, ErrorContext, Result};
use crate::job::context::Context;
use crate::job::rate::check_key;
use std::time::Duration;

impl<S: ?Sized> Context<'_, S> {
    /// Closes the key of a [rate](crate::limits::Rate) for so long: until then, no further job with the key becomes ready.
    /// Those that are ready already may start.
    ///
    /// Use it if a response says that the next request will be refused. The job goes on, and other jobs need not find out
    /// first. If this job itself was refused, return [`JobError::rate_limited`](crate::JobError::rate_limited).
    ///
    /// The key need not be one of this job, and no job need have had it yet. If it is closed for longer already, it stays so.
    /// It is closed at once, whatever comes of this job.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use serde::{Deserialize, Serialize};
    /// use windlass::limits::Rate;
    /// use windlass::{Context, Job, JobResult};
    ///
    /// # struct Response { remaining: u32, reset: u64 }
    /// # fn push(_tenant: &str) -> Response { Response { remaining: 0, reset: 30 } }
    /// #[derive(Serialize, Deserialize)]
    /// struct Push { tenant: String }
    ///
    /// impl Job for Push {
    ///     const NAME: &'static str = "push";
    ///     type State = ();
    ///     type Output = ();
    ///
    ///     fn rate(&self) -> Option<Rate> {
    ///         Some(Rate::per_second(10).key(format!("api/{}", self.tenant)))
    ///     }
    ///
    ///     fn perform(self, cx: &Context<'_, ()>) -> JobResult {
    ///         let response = push(&self.tenant);
    ///         if response.remaining == 0 {
    ///             let after = Duration::from_secs(response.reset);
    ///             cx.rate_limit(&format!("api/{}", self.tenant), after)?;
    ///         }
    ///         Ok(())
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Settings`] if the key has more than 255 bytes, none, or a control character.
    /// - As for [`connection`](Self::connection), and if the database does not answer.
    pub fn rate_limit(&self, key: &str, after: Duration) -> Result<()> {
        check_key(key).map_err(|why| {
            let key: String = key.chars().take(80).flat_map(char::escape_debug).collect();
            Error::Settings(format!("cannot close the rate `{key}`: {why}"))
        })?;
        let mut conn = self.connection()?;
        rates::close(&mut own(&mut conn), key, RatePace::LOOSE, after).during("close the rate")
    }
}
