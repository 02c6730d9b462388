//! Jobs that are functions, without a type of their own.

mod shared;

use crate::db::AsConn;
use crate::db::model::extras::FIRST_VERSION;
use crate::db::model::new_row::NewRow;
use crate::error::Result;
use crate::job::Enqueued;
use crate::job::arguments::readable::written;
use crate::job::arguments::{ArgumentsReader, decode_as};
use crate::job::bounds::MAX_ARGUMENTS;
use crate::job::concurrency::Concurrency;
use crate::job::error::JobError;
use crate::job::extras::PublicAccess;
use crate::job::new_job::NewJob;
use crate::job::policy::Policy;
use crate::job::rate::Rate;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;

/// A class of jobs whose work is a function, with arguments of type `A`: the short form of a
/// [`Job`](crate::Job).
///
/// The same constant enqueues the jobs and, in the workers,
/// [registers](crate::Registry::function) the function:
///
/// ```
/// use diesel::prelude::*;
/// use serde::{Deserialize, Serialize};
/// use windlass::{Function, Policy, Registry};
///
/// #[derive(Serialize, Deserialize)]
/// struct Welcome { email: String }
///
/// const SEND_WELCOME: Function<Welcome> = Function::new("send_welcome")
///     .queue("mail")
///     .policy(|| Policy::new().max_attempts(5));
///
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let ada = Welcome { email: "ada@example.com".into() };
/// SEND_WELCOME.enqueue(&mut conn, &ada)?;
/// SEND_WELCOME.job(&ada)?.priority(-1).enqueue(&mut conn)?; // with the methods of `NewJob`
///
/// let registry = Registry::new().function(SEND_WELCOME, |args, cx| {
///     println!("attempt {} for {}", cx.attempt(), args.email);
///     Ok(())
/// });
/// # windlass::testing::drain(&mut conn, &registry)?.assert_all_finished(2);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// The jobs are stored like those of a type with the same name and fields. So a function can become
/// a [`Job`](crate::Job) later, if it needs a unique id, a concurrency limit or a `retry_in` of its
/// own; until then, [`NewJob`] sets the first two for each job.
pub struct Function<A> {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) queue: &'static str,
    pub(crate) redact: &'static [&'static str],
    pub(crate) policy: fn() -> Policy,
    pub(crate) priority: i32,
    pub(crate) max_arguments: usize,
    pub(crate) version: u32,
    upcast: fn(u32, Value) -> Result<Value, JobError>,
    limits: fn(&A) -> Limits,
}

/// The unique id, the concurrency limit and the rates of one job.
type Limits = (Option<String>, Option<Concurrency>, Vec<Rate>);

impl<A> Function<A> {
    /// Creates a class with this name, which is stored with its jobs: see
    /// [`Job::NAME`](crate::Job::NAME).
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Function {
            name,
            aliases: &[],
            queue: "default",
            redact: &[],
            policy: Policy::new,
            priority: 0,
            max_arguments: MAX_ARGUMENTS,
            version: FIRST_VERSION,
            upcast: |_, arguments| Ok(arguments),
            limits: |_| (None, None, Vec::new()),
        }
    }

    /// Sets the queue. Default: `default`.
    #[must_use]
    pub const fn queue(mut self, name: &'static str) -> Self {
        self.queue = name;
        self
    }

    /// Sets the priority; a smaller number is more important. Default: 0.
    #[must_use]
    pub const fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the policy, as [`Job::policy`](crate::Job::policy) does.
    ///
    /// Default: one attempt, at least once, without a time limit.
    #[must_use]
    pub const fn policy(mut self, policy: fn() -> Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets former names, whose jobs are still performed.
    #[must_use]
    pub const fn aliases(mut self, names: &'static [&'static str]) -> Self {
        self.aliases = names;
        self
    }

    /// Sets the fields of the arguments that are secret; see [`Job::REDACT`](crate::Job::REDACT).
    #[must_use]
    pub const fn redact(mut self, fields: &'static [&'static str]) -> Self {
        self.redact = fields;
        self
    }

    /// Sets the conversion of arguments of an older version; see [`Job::upcast`](crate::Job::upcast). The current version
    /// is that of [`JobArgs`](windlass_enqueue::JobArgs), or 1.
    #[must_use]
    pub const fn upcast(mut self, upcast: fn(u32, Value) -> Result<Value, JobError>) -> Self {
        self.upcast = upcast;
        self
    }

    /// Returns the name of the class.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<A: Serialize + DeserializeOwned> Function<A> {
    /// Creates a job with these arguments.
    ///
    /// # Errors
    /// If the arguments cannot be serialized to JSON, or cannot be read from it again.
    pub fn job(&self, arguments: &A) -> Result<NewJob> {
        let (unique_id, concurrency, rates) = (self.limits)(arguments);
        let decode = |text: &str| decode_as(text, self.name, self.aliases);
        let arguments = written(self.name, arguments, self.redact, decode)?;
        let (class, queue) = (self.name.to_owned(), self.queue.to_owned());
        Ok(NewJob {
            access: PublicAccess::default(),
            row: NewRow {
                unique_id,
                ..NewRow::new(class, arguments, queue, self.priority)
            },
            policy: (self.policy)().with_version(self.version).with_rates(rates),
            concurrency,
            quota: None,
            max_arguments: Some(self.max_arguments),
            is_text: false,
            ruby: None,
            follows: None,
        })
    }

    /// Enqueues a job with these arguments, on the given connection and in its open transaction, if
    /// there is one; see [`Job::enqueue`](crate::Job::enqueue).
    ///
    /// # Errors
    /// If a limit is exceeded (before any SQL is sent) or a statement fails.
    pub fn enqueue<C: AsConn + ?Sized>(&self, conn: &mut C, arguments: &A) -> Result<Enqueued> {
        self.job(arguments)?.enqueue(conn)
    }

    pub(crate) fn reader(&self) -> ArgumentsReader {
        ArgumentsReader {
            name: self.name,
            aliases: self.aliases,
            redact: self.redact,
            version: self.version,
            upcast: self.upcast,
        }
    }

    /// Creates a job from its arguments as JSON text.
    pub(crate) fn job_of_text(
        &self,
        arguments: &str,
        version: Option<u32>,
    ) -> Result<NewJob, String> {
        let version = version.unwrap_or(self.version);
        let arguments: A = self.reader().read_text(arguments, version)?;
        self.job(&arguments).map_err(|error| error.to_string())
    }
}

// A derive would require `A: Clone`.
impl<A> Clone for Function<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Function<A> {}

impl<A> fmt::Debug for Function<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&self.name).finish()
    }
}
