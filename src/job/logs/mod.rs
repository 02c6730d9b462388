//! What a job logs about itself.

use crate::job::context::Context;
use crate::job::run_log::clean;
use log::Level;

impl<S: ?Sized> Context<'_, S> {
    /// Adds a line to the job's own log, at the level `info`; see [`log_at`](Self::log_at).
    ///
    /// ```
    /// # use windlass::{Function, Registry, testing};
    /// const IMPORT: Function<Vec<String>> = Function::new("import");
    /// let registry = Registry::new().function(IMPORT, |lines, cx| {
    ///     cx.log(format!("{} lines to import", lines.len()));
    ///     // ...
    ///     Ok(())
    /// });
    /// # testing::perform_by(&registry, &IMPORT.job(&vec![])?).unwrap();
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn log(&self, text: impl AsRef<str>) {
        self.log_at(Level::Info, text);
    }

    /// Adds a line to the job's own log, which is kept as long as the job, and shown by `windlass
    /// jobs show --logs` and [`job_logs`](crate::job_logs). A text with line breaks is several
    /// lines.
    ///
    /// The call sends no SQL. The next heartbeat of the process stores the lines, or else the end of
    /// the run; the lines since the last heartbeat are lost in a crash. The lines of a run that lost
    /// its claim are not stored, except those that a heartbeat stored before.
    ///
    /// The newest 1,000 lines of a run with together 64 KiB are kept, and the last 10 runs of a job
    /// that logged anything. A line is cut after 4 KiB. Control characters are replaced, and so are the
    /// values of [secret fields](crate::Job::REDACT). Everything else is stored as it is: do not log
    /// other secrets.
    ///
    /// The lines also go to the crate `log`, at the same level and with the target
    /// `windlass::job`.
    pub fn log_at(&self, level: Level, text: impl AsRef<str>) {
        let text = clean(&self.cover.hide(text.as_ref().to_owned()));
        let live = &self.signals().live;
        live.log.add(live.age(), level, &text);
        let (job, class, queue) = (self.job_id().0, self.class_name(), self.queue_name());
        let (attempt, claim) = (self.attempt(), self.claim_id());
        for line in text.lines() {
            log::log!(target: "windlass::job", level, job, class, queue, attempt, claim; "job {job} ({class}) logs: {line}");
        }
    }
}
