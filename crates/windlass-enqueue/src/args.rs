//! Types of jobs, by their arguments alone.

use crate::concurrency::Concurrency;
use crate::policy::Policy;
use crate::rate::Rate;
use std::fmt;

/// The arguments of a type of job, for programs that enqueue it but do not run it.
///
/// The constants and functions have the names and the meaning of the trait `windlass::Job`. Put these types into a crate
/// that the enqueuing program and the worker share.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass_enqueue::{JobArgs, Policy};
///
/// #[derive(Serialize, Deserialize)]
/// struct SendInvoice {
///     order: u64,
/// }
///
/// impl JobArgs for SendInvoice {
///     const NAME: &'static str = "send_invoice";
///     const QUEUE: &'static str = "mail";
///
///     fn policy() -> Policy {
///         Policy::new().max_attempts(5)
///     }
/// }
/// ```
pub trait JobArgs: serde::Serialize {
    /// The class name under which jobs of this type are stored.
    const NAME: &'static str;
    /// The queue, unless the enqueue sets another.
    const QUEUE: &'static str = "default";
    /// The priority; a smaller number is more important.
    const PRIORITY: i32 = 0;
    /// The maximum size of the arguments as JSON, in bytes. Default: 64 KiB.
    const MAX_ARGUMENTS: usize = 64 * 1024;
    /// The fields that are secret. The worker uses it; an enqueue does not.
    const REDACT: &'static [&'static str] = &[];
    /// The version of the arguments. Default: 1.
    const VERSION: u32 = 1;

    /// Returns the policy of jobs of this type. Default: a policy without values.
    fn policy() -> Policy {
        Policy::new()
    }

    /// Returns the unique id of this job. Default: none.
    fn unique_id(&self) -> Option<String> {
        None
    }

    /// Returns the concurrency limit of this job. Default: none.
    fn concurrency(&self) -> Option<Concurrency> {
        None
    }

    /// Returns the rate at which jobs with its key start. Default: none, or those that the worker's type has in its policy.
    fn rate(&self) -> Option<Rate> {
        None
    }

    /// Returns all rates of this job, if it has several: up to four, with different keys. Default: that of
    /// [`rate`](Self::rate).
    fn rates(&self) -> Vec<Rate> {
        self.rate().into_iter().collect()
    }
}

/// The reason why a job could not be created from its arguments.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The arguments cannot be written as JSON.
    Arguments {
        /// The class of the job.
        class: &'static str,
        /// The error of the serialization.
        source: serde_json::Error,
    },
    /// The arguments are larger than [`JobArgs::MAX_ARGUMENTS`].
    TooLarge {
        /// The class of the job.
        class: &'static str,
        /// The size of the arguments as JSON.
        bytes: usize,
        /// The maximum of the class.
        max: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Arguments { class, source } => {
                write!(
                    f,
                    "cannot enqueue {class}: its arguments cannot be written as JSON: {source}"
                )
            }
            Error::TooLarge { class, bytes, max } => write!(
                f,
                "cannot enqueue {class}: its arguments have {bytes} bytes, and the maximum is {max}; store large data \
                 elsewhere and pass its key, or raise `MAX_ARGUMENTS`"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Arguments { source, .. } => Some(source),
            Error::TooLarge { .. } => None,
        }
    }
}
