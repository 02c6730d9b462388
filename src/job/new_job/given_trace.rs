//! What callers and types set about the trace of a job.

use crate::job::context::Context;
use crate::job::new_job::NewJob;
use crate::job::policy::{Policy, PropagationStyle};

impl NewJob {
    /// Sets the trace context of the enqueue, as a header `traceparent` of W3C Trace Context.
    ///
    /// The span of each run is linked to it, or is its child; see
    /// [`PropagationStyle`](crate::PropagationStyle). Default: with the feature `otel`, the context
    /// that is active during the enqueue, if there is one; without it, none. A recurring task
    /// stores none.
    ///
    /// A value of another form is rejected when the job is enqueued. `tracestate` is not stored.
    ///
    /// ```
    /// # use windlass::NewJob;
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// NewJob::of_class("import", "{}").traceparent(header).enqueue(&mut conn)?;
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn traceparent(mut self, header: impl Into<String>) -> Self {
        self.row.traceparent = Some(header.into());
        self
    }
}

impl Policy {
    /// Sets how the spans of the job's runs belong to the trace of the enqueue. Default:
    /// [`PropagationStyle::Link`].
    ///
    /// ```
    /// use windlass::{Policy, PropagationStyle};
    /// let policy = Policy::new().propagation_style(PropagationStyle::Child);
    /// # let _ = policy;
    /// ```
    pub fn propagation_style(mut self, style: PropagationStyle) -> Self {
        self.propagation_style = Some(style);
        self
    }
}

impl<S: ?Sized> Context<'_, S> {
    /// Returns the trace context of the enqueue, as a header `traceparent` of W3C Trace Context.
    ///
    /// It is what the enqueue stored, the same for every run of the job. With the feature `otel`,
    /// the context of the run itself is the active one. Returns `None` if none is stored, or a text
    /// of another form.
    pub fn traceparent(&self) -> Option<String> {
        let stored = self.run().trace.origin?;
        Some(stored.to_string())
    }
}
