//! A job about to be enqueued: the columns that it sets.

use crate::args::{Error, JobArgs};
use crate::concurrency::Concurrency;
use crate::policy::{Backoff, Delivery, On, Policy};
use crate::rate::Rate;
use crate::time;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// A job about to be enqueued, of any type.
///
/// ```
/// use std::time::Duration;
/// use windlass_enqueue::{Database, NewJob};
///
/// let job = NewJob::of_class("import", r#"{"file": "users.csv"}"#)
///     .queue("slow")
///     .after(Duration::from_secs(60))
///     .idempotency_key("import/users.csv");
/// let statement = job.statement(Database::Postgres);
/// assert_eq!(statement.values[2], "60");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a job is enqueued by a function of a driver, or by its statement"]
pub struct NewJob {
    pub(crate) class: String,
    /// The values of the columns beside `class`, as texts.
    pub(crate) columns: BTreeMap<&'static str, String>,
    tags: Vec<String>,
    meta: Map<String, Value>,
    rates: Vec<Rate>,
}

impl NewJob {
    /// Creates a job of this type. The queue, the priority and the policy of the type are stored with it.
    ///
    /// # Errors
    /// If the arguments cannot be written as JSON, or are larger than [`JobArgs::MAX_ARGUMENTS`].
    pub fn new<J: JobArgs>(arguments: &J) -> Result<Self, Error> {
        let class = J::NAME;
        let text = serde_json::to_string(arguments)
            .map_err(|source| Error::Arguments { class, source })?;
        let (bytes, max) = (text.len(), J::MAX_ARGUMENTS);
        if bytes > max {
            return Err(Error::TooLarge { class, bytes, max });
        }
        let mut job = Self::of_class(class, text)
            .queue(J::QUEUE)
            .priority(J::PRIORITY)
            .policy(J::policy())
            .arguments_version(J::VERSION);
        job.set_or_clear("unique_id", arguments.unique_id());
        let job = match arguments.concurrency() {
            Some(concurrency) => job.concurrency(concurrency),
            None => job,
        };
        Ok(arguments.rates().into_iter().fold(job, NewJob::rate))
    }

    /// Creates a job of the class with this name. The arguments are JSON text, which the database checks.
    ///
    /// Every value that is left out is the class's, if a worker has stored it.
    pub fn of_class(class: impl Into<String>, arguments: impl Into<String>) -> Self {
        let job = NewJob {
            class: class.into(),
            columns: BTreeMap::new(),
            tags: Vec::new(),
            meta: Map::new(),
            rates: Vec::new(),
        };
        job.with("arguments", arguments)
    }

    /// Sets the queue.
    pub fn queue(self, name: impl Into<String>) -> Self {
        self.with("queue", name)
    }

    /// Sets the priority; a smaller number is more important.
    pub fn priority(self, priority: i32) -> Self {
        self.with("priority", priority.to_string())
    }

    /// Runs the job after this time has passed, by the database's clock.
    pub fn after(self, delay: Duration) -> Self {
        self.without("run_at")
            .with("delay_seconds", time::seconds(delay))
    }

    /// Runs the job at this time or later, by the database's clock.
    pub fn at(self, time: SystemTime) -> Self {
        self.without("delay_seconds")
            .with("run_at", time::rfc_3339(time))
    }

    /// Adds a tag, by which jobs can be found.
    pub fn tag(self, tag: impl Into<String>) -> Self {
        self.tags([tag])
    }

    /// Adds several tags; see [`tag`](Self::tag).
    pub fn tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        for tag in tags.into_iter().map(T::into) {
            if !self.tags.contains(&tag) {
                self.tags.push(tag);
            }
        }
        let json = Value::from(self.tags.clone()).to_string();
        self.with("tags", json)
    }

    /// Adds a value to the metadata, such as the id of a request. A key has one value, the last one.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.insert(key.into(), value.into());
        let json = Value::from(self.meta.clone()).to_string();
        self.with("meta", json)
    }

    /// Sets a unique id of up to 255 bytes, which only one job may hold at a time, of all types.
    pub fn unique_id(self, id: impl Into<String>) -> Self {
        self.with("unique_id", id)
    }

    /// Sets an idempotency key of up to 255 bytes: an enqueue with a used key changes nothing and returns the first job.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        self.with("idempotency_key", key)
    }

    /// Sets the concurrency limit; it overrides that of the job's type.
    pub fn concurrency(self, concurrency: Concurrency) -> Self {
        let word = concurrency.word().map(str::to_owned);
        let mut job = self.unlimited();
        job.set_or_clear("concurrency_on_conflict", word);
        job.set_or_clear("concurrency_group", concurrency.group);
        job.with("concurrency_limit", concurrency.limit.to_string())
            .with("concurrency_key", concurrency.key)
    }

    /// Removes the concurrency limit of the job's type: this job takes no slot and runs beside all others.
    pub fn unlimited(self) -> Self {
        self.without("concurrency_key")
            .without("concurrency_group")
            .without("concurrency_limit")
            .without("concurrency_on_conflict")
    }

    /// Adds a [rate](Rate) at which jobs with its key start, in place of one with the same key.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rates.retain(|other| other.key != rate.key);
        self.rates.push(rate);
        let json = Value::from_iter(self.rates.iter().map(Rate::to_json)).to_string();
        self.with("rates", json)
    }

    /// Removes the rates of the job's type: this job waits for no token, and takes none.
    pub fn without_rates(mut self) -> Self {
        self.rates.clear();
        self.with("rates", "[]")
    }

    /// Sets the policy; its values override those of the job's type.
    pub fn policy(mut self, policy: Policy) -> Self {
        let at_most_once = policy.delivery.map(|it| it == Delivery::AtMostOnce);
        for (column, value) in [
            ("max_attempts", policy.max_attempts.map(|n| n.to_string())),
            ("max_crashes", policy.max_crashes.map(|n| n.to_string())),
            (
                "at_most_once",
                at_most_once.map(|it| u8::from(it).to_string()),
            ),
            ("timeout_seconds", policy.timeout.map(time::limited_seconds)),
            (
                "retry_for_seconds",
                policy.retry_for.map(time::limited_seconds),
            ),
            (
                "keep_result_seconds",
                policy.keep_result.map(time::limited_seconds),
            ),
            (
                "unique_scope",
                policy.unique_scope.map(|it| it.word().to_owned()),
            ),
            (
                "on_conflict",
                policy.on_conflict.map(|it| it.word().to_owned()),
            ),
        ] {
            if value.is_some() {
                self.set_or_clear(column, value);
            }
        }
        if let Some(backoff) = policy.backoff {
            self = self.backoff(backoff);
        }
        match policy.expires_in {
            Some(time) => self.expires_in(time),
            None => self,
        }
    }

    fn backoff(mut self, backoff: Backoff) -> Self {
        let (first, cap) = match backoff {
            Backoff::Fixed(delay) => (delay, None),
            Backoff::Exponential { first, cap } => (first, Some(time::limited_seconds(cap))),
        };
        self.set_or_clear("backoff_cap_seconds", cap);
        self.with("backoff_seconds", time::limited_seconds(first))
    }

    /// Discards the job if it has not started so long after it is due; see
    /// [`Policy::expires_in`](Policy::expires_in()).
    pub fn expires_in(self, time: Duration) -> Self {
        self.without("not_after")
            .with("expires_in_seconds", time::limited_seconds(time))
    }

    /// Discards the job if it has not started by this time, by the database's clock.
    pub fn not_after(self, time: SystemTime) -> Self {
        self.without("expires_in_seconds")
            .with("not_after", time::rfc_3339(time))
    }

    /// Sets the trace context of the enqueue, as a header `traceparent` of W3C Trace Context.
    pub fn traceparent(self, header: impl Into<String>) -> Self {
        self.with("traceparent", header)
    }

    /// Sets the tenant that the job belongs to: 1 to 255 bytes without control characters. The jobs of a tenant take turns
    /// on a fair queue.
    pub fn tenant(self, tenant: impl Into<String>) -> Self {
        self.with("tenant", tenant)
    }

    /// Adds the job to a batch, which must not be over: one that this transaction opened, or that of the running job.
    ///
    /// Open one by SQL: `SELECT windlass_open_batch('import')` returns its id on Postgres. On SQLite,
    /// `INSERT INTO windlass_open_batch (name) VALUES ('import')` makes it the largest id in `solid_queue_batches`.
    pub fn batch(self, id: i64) -> Self {
        self.with("batch_id", id.to_string())
    }

    /// Runs the job when a batch is over, on this outcome. On another outcome it is discarded.
    ///
    /// Such a job can have no unique id.
    pub fn after_batch(self, id: i64, on: On) -> Self {
        let on = match on {
            On::Success => "success",
            On::Failure => "failure",
            On::Finish => "finish",
        };
        self.with("after_batch", id.to_string()).with("runs_on", on)
    }

    /// Sets the version of the arguments; see [`JobArgs::VERSION`]. Default: 1.
    pub fn arguments_version(self, version: u32) -> Self {
        match version {
            1 => self.without("version"),
            other => self.with("version", other.to_string()),
        }
    }

    /// Sets a column by its name, for tests of what the database refuses.
    #[doc(hidden)]
    pub fn column(self, name: &'static str, text: impl Into<String>) -> Self {
        self.with(name, text)
    }

    fn with(mut self, column: &'static str, text: impl Into<String>) -> Self {
        self.columns.insert(column, text.into());
        self
    }

    fn without(mut self, column: &'static str) -> Self {
        self.columns.remove(column);
        self
    }

    fn set_or_clear(&mut self, column: &'static str, text: Option<String>) {
        match text {
            Some(text) => self.columns.insert(column, text),
            None => self.columns.remove(column),
        };
    }

    /// Returns whether the enqueue may find an existing job.
    pub(crate) fn is_named(&self) -> bool {
        self.columns.contains_key("unique_id") || self.columns.contains_key("idempotency_key")
    }
}
