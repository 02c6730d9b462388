//! Tags, metadata and the version of the arguments: set at the enqueue, read by the job.

use crate::db::model::extras::{Extras, FIRST_VERSION};
use crate::job::context::Context;
use crate::job::new_job::NewJob;
use crate::job::policy::Policy;
use serde_json::Value;

impl Policy {
    fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Adds a tag; see [`NewJob::tag`]. A tag of a program-wide policy has no effect.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.extras_mut().add_tag(tag.into());
        self
    }

    /// Adds a value to the metadata; see [`NewJob::meta`]. A value of a program-wide policy has no
    /// effect.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extras_mut().meta.insert(key.into(), value.into());
        self
    }

    /// Sets the version of the arguments.
    pub(crate) fn with_version(mut self, version: u32) -> Self {
        if version != FIRST_VERSION {
            self.extras_mut().version = Some(version);
        }
        self
    }

    /// Replaces the version of the arguments.
    pub(crate) fn set_version(&mut self, version: u32) {
        let mut extras = self.extras.take().unwrap_or_default();
        extras.version = Some(version).filter(|version| *version != FIRST_VERSION);
        self.extras = Some(extras).filter(|extras| **extras != Extras::default());
    }

    /// Returns the version of the arguments.
    pub(crate) fn arguments_version(&self) -> u32 {
        let extras = self.extras.as_deref();
        extras.map_or(FIRST_VERSION, Extras::arguments_version)
    }
}

impl NewJob {
    /// Adds a tag, by which [`Jobs::tagged`](crate::Jobs::tagged) and `windlass jobs list --tag` find
    /// the job. A tag that the job already has is added once.
    ///
    /// A job has at most 32 tags of 1 to 100 bytes each, without NUL. [`Job::policy`] can have tags
    /// for all jobs of a type; those of the enqueue are added to them.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use windlass::{Jobs, NewJob};
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// NewJob::of_class("import", "{}")
    ///     .tags(["customer/7", "night"])
    ///     .meta("request", "4711")
    ///     .enqueue(&mut conn)?;
    /// assert_eq!(Jobs::waiting().tagged(["night"]).count(&mut conn)?, 1);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// [`Job::policy`]: crate::Job::policy
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.policy = self.policy.tag(tag);
        self
    }

    /// Adds several tags; see [`tag`](Self::tag).
    pub fn tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        for tag in tags {
            self.policy = self.policy.tag(tag);
        }
        self
    }

    /// Adds a value to the metadata, such as the id of a request. [`Context::meta`] returns it, and
    /// `windlass jobs show` prints it. A key has one value, the last one.
    ///
    /// A job has at most 32 values, with keys of 1 to 100 bytes. Tags and metadata count towards the
    /// maximum size of the arguments. Readers see it without the fields in
    /// [`Job::REDACT`](crate::Job::REDACT).
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.policy = self.policy.meta(key, value);
        self
    }

    /// Sets the version of the arguments of a job that was created [by name](Self::of_class); see
    /// [`Job::VERSION`](crate::Job::VERSION). Default: 1.
    pub fn arguments_version(mut self, version: u32) -> Self {
        self.policy.set_version(version);
        self
    }
}

impl<'a, S: ?Sized> Context<'a, S> {
    fn extras(&self) -> Option<&'a Extras> {
        self.run().policy.extras.as_deref()
    }

    /// Returns the job's tags when it was claimed, in the order in which they were added.
    pub fn tags(&self) -> &'a [String] {
        self.extras().map_or(&[], |extras| &extras.tags)
    }

    /// Returns a value of the job's metadata, or `None` if there is none for this key.
    pub fn meta(&self, key: &str) -> Option<&'a Value> {
        self.extras()?.meta.get(key)
    }
}
