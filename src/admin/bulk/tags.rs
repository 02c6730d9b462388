//! Selecting jobs by their tags, and changing these.

use crate::admin::changed::Changed;
use crate::admin::jobs::Jobs;
use crate::db::model::audit::AuditAction;
use crate::db::model::extras::{MAX_LABEL, TagChange, is_label};
use crate::db::model::state::JobState;
use crate::db::transition::operate::edit;
use crate::db::transition::operators::AuditEffect;
use crate::db::{AsConn, Conn, own};
use crate::error::{Doing, Error, Result};
use std::ops::ControlFlow;

fn list<T: Into<String>>(tags: impl IntoIterator<Item = T>) -> Vec<String> {
    tags.into_iter().map(Into::into).collect()
}

impl Jobs {
    /// Restricts the selection to jobs with all of these [tags](crate::NewJob::tag).
    ///
    /// Tags are compared exactly. There is no index: all jobs of the selected states are read.
    pub fn tagged<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.filter.tags = Some(list(tags));
        self
    }

    /// Restricts the selection to jobs with at least one of these [tags](crate::NewJob::tag), so to
    /// none without tags.
    pub fn tagged_any<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.filter.any_tag = Some(list(tags));
        self
    }

    /// Adds a [tag](crate::NewJob::tag) to the jobs, in batches of 500, each in one transaction.
    ///
    /// Running jobs are tagged too, but do not see it before their next attempt. A job that has the
    /// tag, or 32 others, is passed over.
    ///
    /// # Errors
    /// - If the database does not answer or has no tables; completed batches stay changed.
    /// - If the tag is not 1 to 100 bytes long or contains NUL, before any job is changed.
    pub fn tag<C: AsConn + ?Sized>(&self, conn: &mut C, tag: &str) -> Result<Changed> {
        self.retag(conn, TagChange::Add(tag), &mut |_| {})
    }

    /// Removes a tag from the jobs, in batches of 500, each in one transaction. A job without the tag
    /// is passed over.
    ///
    /// # Errors
    /// As for [`tag`](Self::tag).
    pub fn untag<C: AsConn + ?Sized>(&self, conn: &mut C, tag: &str) -> Result<Changed> {
        self.retag(conn, TagChange::Remove(tag), &mut |_| {})
    }

    pub(crate) fn retag<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        change: TagChange<'_>,
        progress: &mut dyn FnMut(&Changed),
    ) -> Result<Changed> {
        let (TagChange::Add(text) | TagChange::Remove(text)) = change;
        if !is_label(text) {
            return Err(Error::Settings(format!(
                "a tag must have 1 to {MAX_LABEL} bytes and no NUL"
            )));
        }
        let mut conn = own(conn);
        let action = match change {
            TagChange::Add(_) => AuditAction::TagJobs,
            TagChange::Remove(_) => AuditAction::UntagJobs,
        };
        let mut trail = self
            .trail(action)
            .parameters(serde_json::json!({ "tag": text }).to_string());
        let apply = |conn: &mut Conn<'_>, _: JobState, jobs: &[i64]| {
            self.name_batch(&mut trail, jobs);
            let tagged = trail.record(
                conn,
                |conn| edit::tag(conn, jobs, change),
                |tagged| AuditEffect::of_jobs(tagged.len() as u64),
            );
            let changed = tagged.doing("change the tags of jobs")?.len() as u64;
            Ok(Changed {
                changed,
                passed_over: jobs.len() as u64 - changed,
                ..Changed::default()
            })
        };
        let progress = |done: &Changed| {
            progress(done);
            ControlFlow::Continue(())
        };
        self.each_batch(&mut conn, progress, apply)
    }
}
