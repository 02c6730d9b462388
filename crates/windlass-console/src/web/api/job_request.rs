//! A job as a request describes it.
//!
//! The names are those of the columns of the view `windlass_enqueue`, and so are the rules.

use crate::web::access::viewer::{TokenLimits, Viewer};
use crate::web::http::{PageError, Response};
use crate::web::reads::Writers;
use crate::web::request::route::Cx;
use crate::web::site::Site;
use chrono::{DateTime, Utc};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error as _, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use windlass::internal::admin::job_info;
use windlass::internal::admin::secrets::Secrets;
use windlass::internal::clock;
use windlass::internal::db::query::job_view;
use windlass::internal::error::ErrorContext as _;
use windlass::internal::job::options::{COLUMNS, JobOptions};
use windlass::internal::process::base::stop;
use windlass::jobs::{Progress, TaskInfo, TaskStatus};
use windlass::limits::Rate;
use windlass::{NewJob, OnConflict, Result};

/// A job to enqueue.
#[derive(Debug, Clone)]
pub(crate) struct JobRequest {
    class: String,
    /// As they are: numbers and the order of keys stay.
    arguments: Option<Box<RawValue>>,
    options: JobOptions,
    /// The queue of a class that leaves it out, where the token is limited to some.
    class_queue: Option<String>,
}

/// The options that identify a request or its trace. They are harmless, whatever a token is limited to.
const IDENTITY: [&str; 2] = ["idempotency_key", "traceparent"];

impl JobRequest {
    /// Returns the text of the arguments.
    pub(crate) fn arguments(&self) -> &str {
        self.arguments.as_ref().map_or("null", |raw| raw.get())
    }

    /// Reads a job, which is an object.
    ///
    /// # Errors
    /// If it is something else, or a field is wrong.
    pub(crate) fn parsed(raw: &RawValue) -> Result<Self, PageError> {
        // serde reads a struct from a list, too.
        if !raw.get().starts_with('{') {
            return Err(wrong(&"a job is an object"));
        }
        serde_json::from_str(raw.get()).map_err(|error| wrong(&error))
    }

    /// Returns the class.
    pub(crate) fn class(&self) -> &str {
        &self.class
    }

    /// Returns the idempotency key.
    pub(crate) fn idempotency_key(&self) -> Option<&str> {
        self.options.idempotency_key.as_deref()
    }

    /// Sets what the headers say, where the job itself does not.
    pub(crate) fn or_headers(&mut self, key: Option<String>, traceparent: Option<&str>) {
        let options = &mut self.options;
        options.idempotency_key = options.idempotency_key.take().or(key);
        let traceparent = traceparent.map(str::to_owned);
        options.traceparent = options.traceparent.take().or(traceparent);
    }

    /// Returns whether it names its queue.
    pub(crate) fn has_queue(&self) -> bool {
        self.options.queue.is_some()
    }

    /// Sets the queue that it has if it names none, whatever its class says later.
    pub(crate) fn or_queue(&mut self, queue: String) {
        self.class_queue = Some(queue);
    }

    /// Checks that the viewer may enqueue it, once the queue of its class is known.
    ///
    /// # Errors
    /// If the token is limited to others.
    pub(crate) fn allowed(&self, viewer: &Viewer) -> Result<(), PageError> {
        let Some(limits) = viewer.limits.as_deref() else {
            return Ok(());
        };
        let queue = self.options.queue.as_ref().or(self.class_queue.as_ref());
        let queue = queue.map_or("default", String::as_str);
        let refused = if !limits.has_class(&self.class) {
            format!("the class {:?}", self.class)
        } else if !limits.has_queue(queue) {
            format!("the queue {queue:?}")
        } else if let Some(option) = limits.arguments_only.then(|| self.first_option()).flatten() {
            format!(
                "with `{option}`: it passes the class and its arguments, and an idempotency key"
            )
        } else if self.options.batch_id.or(self.options.after_batch).is_some() {
            "with a batch, which could be that of another program: use a token without limits"
                .to_owned()
        } else if let Some(OnConflict::Replace | OnConflict::RunAgain) = self.options.on_conflict {
            "with this `on_conflict`, which could change what a job of another class holds: use a token without limits"
                .to_owned()
        } else {
            self.takes_own_tokens(limits)?;
            return self.takes_own_slots(limits);
        };
        Err(not_allowed(&refused))
    }

    /// Returns the name of the first option that is set. A key that makes a repeated request harmless is none.
    fn first_option(&self) -> Option<&'static str> {
        let set = self.options.set();
        let is_set = |name: &&str| set.contains_key(*name) && !IDENTITY.contains(name);
        COLUMNS.into_iter().find(is_set)
    }

    /// The tokens of another class's rate would hold back its jobs. A rate without a key has the name of its class.
    fn takes_own_tokens(&self, limits: &TokenLimits) -> Result<(), PageError> {
        let rates = self.options.rates.iter().flatten();
        let mut keys = rates.filter_map(Rate::own_key);
        match keys.find(|key| !limits.has_class(key)) {
            Some(key) => Err(not_allowed(&format!(
                "with a rate of the key {key:?}, which could be that of another class"
            ))),
            None => Ok(()),
        }
    }

    /// The slots of another class would hold back its jobs. They are named `GROUP/KEY`, so `mail` and
    /// `receipt/7` are those of `mail/receipt` and `7`, too.
    fn takes_own_slots(&self, limits: &TokenLimits) -> Result<(), PageError> {
        let Some(key) = &self.options.concurrency_key else {
            return Ok(());
        };
        let group = self.options.concurrency_group.as_deref();
        let group = group.unwrap_or(&self.class);
        let slots = format!("{group}/{key}");
        let ends = slots.match_indices('/').map(|(at, _)| at);
        let mut groups = ends.filter(|at| *at >= group.len()).map(|at| &slots[..at]);
        match groups.find(|group| !limits.has_class(group)) {
            Some(group) => Err(not_allowed(&format!(
                "with the slots {slots:?}, which could be those of {group:?}"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the job.
    ///
    /// # Errors
    /// If two of its values contradict each other, or a rule of [`NewJob`] is broken.
    pub(crate) fn job(&self) -> Result<NewJob, PageError> {
        let options = &self.options;
        // The key would name the replaced job, whose arguments are others by now.
        if options.idempotency_key.is_some() && options.on_conflict == Some(OnConflict::Replace) {
            return Err(invalid(
                "with `on_conflict` `replace`, an idempotency key could not tell a repeated request from an \
                 older one: leave the key out, since a repeated replacement replaces the job by the same one",
            ));
        }
        let mut job = NewJob::of_class(&*self.class, self.arguments());
        if let Some(queue) = &self.class_queue {
            job = job.queue(queue);
        }
        let job = options.apply(job).map_err(|reason| invalid(&reason))?;
        job.check()?;
        Ok(job)
    }
}

impl<'de> Deserialize<'de> for JobRequest {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(RequestVisitor)
    }
}

struct RequestVisitor;

impl<'de> Visitor<'de> for RequestVisitor {
    type Value = JobRequest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a job")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<JobRequest, M::Error> {
        let mut fields = RequestFields {
            class: None,
            arguments: None,
            map,
        };
        let options = JobOptions::deserialize(MapAccessDeserializer::new(&mut fields))?;
        let class = fields
            .class
            .ok_or_else(|| M::Error::missing_field("class"))?;
        Ok(JobRequest {
            class,
            arguments: fields.arguments,
            options,
            class_queue: None,
        })
    }
}

/// The fields of a request while they are read: those of the options are left for these.
struct RequestFields<M> {
    class: Option<String>,
    arguments: Option<Box<RawValue>>,
    map: M,
}

impl<'de, M: MapAccess<'de>> MapAccess<'de> for &mut RequestFields<M> {
    type Error = M::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, M::Error> {
        while let Some(name) = self.map.next_key::<String>()? {
            match &*name {
                "class" if self.class.is_some() => return Err(M::Error::duplicate_field("class")),
                "arguments" if self.arguments.is_some() => {
                    return Err(M::Error::duplicate_field("arguments"));
                }
                "class" => self.class = Some(self.map.next_value()?),
                "arguments" => self.arguments = self.map.next_value()?,
                option if COLUMNS.contains(&option) => {
                    return seed.deserialize(name.into_deserializer()).map(Some);
                }
                other => return Err(M::Error::unknown_field(other, &COLUMNS)),
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, M::Error> {
        self.map.next_value_seed(seed)
    }
}

/// Tells what of the body is not as it is described.
pub(crate) fn wrong(what: &dyn fmt::Display) -> PageError {
    PageError::Invalid(format!(
        "the body is not as `/v1/openapi.json` describes it: {what}"
    ))
}

fn invalid(text: &str) -> PageError {
    PageError::Invalid(format!("cannot enqueue: {text}"))
}

fn not_allowed(what: &str) -> PageError {
    PageError::Refused(format!("This token may not enqueue {what}."))
}

// --- `GET /v1/token`: what a token may do ---

/// The path of the request.
pub(crate) const PATH: &str = "/v1/token";

#[derive(Debug, Serialize)]
struct TokenInfo<'a> {
    name: &'a str,
    role: &'static str,
    classes: Option<&'a [String]>,
    queues: Option<&'a [String]>,
    arguments_only: bool,
    events: &'a [String],
}

/// Shows the token of the request.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let none = TokenLimits::default();
    let limits = cx.viewer.limits.as_deref().unwrap_or(&none);
    Ok(Response::json(&TokenInfo {
        name: &cx.viewer.name,
        role: cx.viewer.role.name(),
        classes: limits.classes.as_deref(),
        queues: limits.queues.as_deref(),
        arguments_only: limits.arguments_only,
        events: limits.events.as_deref().unwrap_or_default(),
    }))
}

// --- `GET /v1/jobs/{id}`: what became of a job ---

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(60);

/// A job, as the program that enqueued it sees it: without its arguments.
#[derive(Debug, Serialize)]
struct JobOutcome<'a> {
    id: i64,
    class: &'a str,
    status: TaskStatus,
    attempt: u32,
    finished_at: Option<DateTime<Utc>>,
    retry_at: Option<DateTime<Utc>>,
    progress: Option<&'a Progress>,
    result: Option<&'a Value>,
    error: Option<&'a str>,
}

/// Shows a job, and says whether to wait for its end.
pub(crate) fn show_outcome(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    poll_time(cx.query().get("wait"))?;
    let text = cx.param("id").to_owned();
    let Ok(id) = text.parse::<i64>() else {
        return Err(PageError::Invalid(format!(
            "the id of a job is a number; it is {text:?}"
        )));
    };
    let known = cx.read_newest(|conn| {
        let mut known = job_info::read_one(conn, id)?;
        if let Some(known) = &mut known {
            Secrets::cover(conn, known).during("read which fields are secret")?;
        }
        Ok(known)
    })?;
    let limits = cx.viewer.limits.as_deref();
    let Some(job) = known.filter(|job| limits.is_none_or(|limits| is_shown(limits, job))) else {
        return Err(PageError::NotFound(format!(
            "There is no job {id}, or it is not kept any more, or this token may not see it."
        )));
    };
    let mut response = Response::json(&JobOutcome {
        id,
        class: &job.class_name,
        status: job.status,
        attempt: job.attempt,
        finished_at: job.finished_at,
        retry_at: job.retry_at,
        progress: job.progress.as_ref(),
        result: job.result.as_ref(),
        error: job.error.as_deref(),
    });
    response.polls_for = (!job.status.has_ended()).then_some(id);
    Ok(response)
}

/// A result without its job has no queue any more.
fn is_shown(limits: &TokenLimits, job: &TaskInfo) -> bool {
    let queue = job.queue_name.as_deref();
    limits.has_class(&job.class_name)
        && (limits.queues.is_none() || queue.is_some_and(|queue| limits.has_queue(queue)))
}

/// Returns for how long a request waits: `10s`, `500ms`, or a number of seconds.
///
/// # Errors
/// If it is no such time, or too long.
pub(crate) fn poll_time(text: Option<&str>) -> Result<Duration, PageError> {
    let Some(text) = text else {
        return Ok(Duration::ZERO);
    };
    let seconds = text.parse::<u64>().map(Duration::from_secs);
    let time = seconds.or_else(|_| humantime::parse_duration(text));
    match time {
        Ok(time) if time <= LONGEST => Ok(time),
        _ => Err(PageError::Invalid(format!(
            "`wait` is a time of up to 60 s, such as `10s`; it is {text:?}"
        ))),
    }
}

// --- The thread that sees which jobs have ended: one statement asks for all that are waited for ---

/// The time between two reads of the jobs that are waited for.
const INTERVAL: Duration = Duration::from_millis(50);

/// The same after a failed read.
const REST: Duration = Duration::from_secs(1);

/// Starts the thread that reads them; it ends with the server.
pub(crate) fn start(site: &Arc<Site>) -> Result<JoinHandle<()>> {
    let site = Arc::clone(site);
    stop::spawn("web-waits", move || {
        let mut writers = Writers::new(&site);
        while let Some(jobs) = site.polls.jobs() {
            let mut pause = (!jobs.is_empty()).then_some(INTERVAL);
            for (database, jobs) in jobs {
                if let Err(error) = answer_ended(&site, &mut writers, database, &jobs) {
                    log::debug!("web: cannot see which jobs have ended: {error}");
                    pause = Some(REST);
                }
            }
            // Between two reads, another wait changes nothing.
            match pause {
                Some(pause) => clock::nap(pause),
                None => drop(site.polls.woken.recv()),
            }
        }
    })
}

fn answer_ended(site: &Site, writers: &mut Writers, database: usize, jobs: &[i64]) -> Result<()> {
    let open = writers.read(database, |conn| {
        job_view::not_ended(conn, jobs).during("see which jobs have ended")
    })?;
    let open: BTreeSet<i64> = open.into_iter().collect();
    let ended = jobs.iter().copied().filter(|job| !open.contains(job));
    site.polls.ended(database, ended);
    Ok(())
}
