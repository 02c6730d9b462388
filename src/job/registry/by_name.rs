//! Creates jobs from the names of their classes.

use crate::error::{Error, Result};
use crate::job::new_job::NewJob;
use crate::job::registry::Registry;

impl Registry {
    /// Creates a job from the name of its class and its arguments as JSON text, with the queue,
    /// priority and policy of its type.
    ///
    /// `null` means no arguments, whatever the type.
    ///
    /// # Errors
    /// - If the class is not registered, or the arguments do not match its type's version.
    /// - [`Error::InternalClass`](crate::Error::InternalClass) if its type is
    ///   [internal](crate::Job::INTERNAL).
    pub fn new_job(&self, class_name: &str, arguments: &str) -> Result<NewJob> {
        self.refuse_internal(class_name)?;
        self.trusted_job(class_name, arguments, None)
    }

    fn refuse_internal(&self, class_name: &str) -> Result<()> {
        let class = class_name.to_owned();
        match self.classes.get(class_name) {
            Some(known) if known.internal => Err(Error::InternalClass { class }),
            _ => Ok(()),
        }
    }

    /// Creates a job as [`new_job`](Self::new_job) does, from arguments of this version, converted.
    #[cfg(feature = "cli")]
    pub(crate) fn new_job_of_version(
        &self,
        class_name: &str,
        arguments: &str,
        version: u32,
    ) -> Result<NewJob> {
        self.refuse_internal(class_name)?;
        self.trusted_job(class_name, arguments, Some(version))
    }

    /// Creates a job as [`new_job`](Self::new_job) does, also one of an internal type.
    pub(crate) fn trusted_job(
        &self,
        class_name: &str,
        arguments: &str,
        version: Option<u32>,
    ) -> Result<NewJob> {
        let refused = |reason: String| Error::InvalidJob {
            class: class_name.chars().take(80).collect(),
            reason,
        };
        let Some(class) = self.classes.get(class_name) else {
            let known = self.classes().collect::<Vec<_>>().join("`, `");
            return Err(refused(format!(
                "no type of this name is registered in this program; registered are `{known}`"
            )));
        };
        (class.new_job)(arguments, version).map_err(refused)
    }
}
