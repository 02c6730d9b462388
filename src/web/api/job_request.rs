//! A job as a request describes it.
//!
//! The names are those of the columns of the view `windlass_enqueue`, and so are the rules.

use crate::admin::job_info::{self, TaskInfo, TaskStatus};
use crate::admin::secrets::Secrets;
use crate::clock;
use crate::db::model::new_row::{OnConflict, UniqueScope};
use crate::db::query::job_view;
use crate::db::table::claimed::Progress;
use crate::error::{ErrorContext as _, Result};
use crate::job::concurrency::{Concurrency, LimitConflict};
use crate::job::new_job::NewJob;
use crate::job::policy::{Delivery, Policy};
use crate::process::base::stop;
use crate::web::access::viewer::{TokenLimits, Viewer};
use crate::web::http::{PageError, Response};
use crate::web::reads::Writers;
use crate::web::request::route::Cx;
use crate::web::site::Site;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A job to enqueue.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobRequest {
    class: String,
    /// As they are: numbers and the order of keys stay.
    arguments: Option<Box<RawValue>>,
    queue: Option<String>,
    priority: Option<i32>,
    run_at: Option<DateTime<Utc>>,
    delay_seconds: Option<f64>,
    unique_id: Option<String>,
    unique_scope: Option<UniqueScope>,
    on_conflict: Option<OnConflict>,
    pub(crate) idempotency_key: Option<String>,
    concurrency_key: Option<String>,
    concurrency_group: Option<String>,
    concurrency_limit: Option<u32>,
    concurrency_on_conflict: Option<LimitWord>,
    max_attempts: Option<u32>,
    max_crashes: Option<u32>,
    at_most_once: Option<bool>,
    traceparent: Option<String>,
}

/// The policy for a job whose key has no free slot.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LimitWord {
    Block,
    Discard,
    Ordered,
}

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

    /// Sets what the headers say, where the job itself does not.
    pub(crate) fn or_headers(&mut self, key: Option<String>, traceparent: Option<&str>) {
        self.idempotency_key = self.idempotency_key.take().or(key);
        let traceparent = traceparent.map(str::to_owned);
        self.traceparent = self.traceparent.take().or(traceparent);
    }

    /// Checks that the viewer may enqueue it.
    ///
    /// # Errors
    /// If the token is limited to others.
    pub(crate) fn allowed(&self, viewer: &Viewer) -> Result<(), PageError> {
        let Some(limits) = viewer.limits.as_deref() else {
            return Ok(());
        };
        let queue = self.queue.as_deref().unwrap_or("default");
        let refused = if !limits.has_class(&self.class) {
            format!("the class {:?}", self.class)
        } else if !limits.has_queue(queue) {
            format!("the queue {queue:?}")
        } else if let Some(option) = self.first_option().filter(|_| limits.arguments_only) {
            format!(
                "with `{option}`: it passes the class and its arguments, and an idempotency key"
            )
        } else if let Some(OnConflict::Replace | OnConflict::RunAgain) = self.on_conflict {
            "with this `on_conflict`, which could change what a job of another class holds: use a token without limits"
                .to_owned()
        } else {
            return self.takes_own_slots(limits);
        };
        Err(not_allowed(&refused))
    }

    /// Returns the name of the first option that is set. A key that makes a repeated request harmless is none.
    fn first_option(&self) -> Option<&'static str> {
        let options = [
            ("queue", self.queue.is_some()),
            ("priority", self.priority.is_some()),
            ("run_at", self.run_at.is_some()),
            ("delay_seconds", self.delay_seconds.is_some()),
            ("unique_id", self.unique_id.is_some()),
            ("unique_scope", self.unique_scope.is_some()),
            ("on_conflict", self.on_conflict.is_some()),
            ("concurrency_key", self.concurrency_key.is_some()),
            ("concurrency_group", self.concurrency_group.is_some()),
            ("concurrency_limit", self.concurrency_limit.is_some()),
            (
                "concurrency_on_conflict",
                self.concurrency_on_conflict.is_some(),
            ),
            ("max_attempts", self.max_attempts.is_some()),
            ("max_crashes", self.max_crashes.is_some()),
            ("at_most_once", self.at_most_once.is_some()),
        ];
        let mut set = options.into_iter().filter(|(_, is_set)| *is_set);
        set.next().map(|(name, _)| name)
    }

    /// The slots of another class would hold back its jobs. They are named `GROUP/KEY`, so `mail` and
    /// `receipt/7` are those of `mail/receipt` and `7`, too.
    fn takes_own_slots(&self, limits: &TokenLimits) -> Result<(), PageError> {
        let Some(key) = &self.concurrency_key else {
            return Ok(());
        };
        let group = self.concurrency_group.as_deref().unwrap_or(&self.class);
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
        if self.max_attempts == Some(0) {
            return Err(invalid("`max_attempts` is 1 or more"));
        }
        // The key would name the replaced job, whose arguments are others by now.
        if self.idempotency_key.is_some() && self.on_conflict == Some(OnConflict::Replace) {
            return Err(invalid(
                "with `on_conflict` `replace`, an idempotency key could not tell a repeated request from an \
                 older one: leave the key out, since a repeated replacement replaces the job by the same one",
            ));
        }
        let mut job = NewJob::of_class(&*self.class, self.arguments());
        if let Some(queue) = &self.queue {
            job = job.queue(queue);
        }
        if let Some(priority) = self.priority {
            job = job.priority(priority);
        }
        if let Some(key) = &self.idempotency_key {
            job = job.idempotency_key(key);
        }
        if let Some(id) = &self.unique_id {
            job = job.unique_id(id);
        }
        if let Some(header) = &self.traceparent {
            job = job.traceparent(header);
        }
        job = self.limited(self.timed(job)?)?.policy(self.policy());
        job.check()?;
        Ok(job)
    }

    fn timed(&self, job: NewJob) -> Result<NewJob, PageError> {
        match (self.run_at, self.delay_seconds) {
            (Some(_), Some(_)) => Err(invalid(
                "`run_at` and `delay_seconds` are two times for one job: send one of them",
            )),
            (Some(time), None) => Ok(job.at(time)),
            (None, Some(seconds)) => match Duration::try_from_secs_f64(seconds) {
                Ok(delay) => Ok(job.after(delay)),
                Err(_) => Err(invalid(&format!(
                    "`delay_seconds` is a number of seconds from now, 0 or more; it is {seconds}"
                ))),
            },
            (None, None) => Ok(job),
        }
    }

    fn limited(&self, job: NewJob) -> Result<NewJob, PageError> {
        let Some(key) = &self.concurrency_key else {
            let is_alone = self.concurrency_group.is_some()
                || self.concurrency_limit.is_some()
                || self.concurrency_on_conflict.is_some();
            return if is_alone {
                Err(invalid("a concurrency limit needs a `concurrency_key`"))
            } else {
                Ok(job)
            };
        };
        let mut limit = Concurrency::new(key);
        if let Some(group) = &self.concurrency_group {
            limit = limit.group(group);
        }
        if let Some(slots) = self.concurrency_limit {
            limit = limit.limit(slots);
        }
        limit = match self.concurrency_on_conflict {
            None | Some(LimitWord::Block) => limit,
            Some(LimitWord::Discard) => limit.on_conflict(LimitConflict::Discard),
            Some(LimitWord::Ordered) => limit.ordered(),
        };
        Ok(job.concurrency(limit))
    }

    fn policy(&self) -> Policy {
        let mut policy = Policy::new();
        if let Some(scope) = self.unique_scope {
            policy = policy.unique_scope(scope);
        }
        if let Some(conflict) = self.on_conflict {
            policy = policy.on_conflict(conflict);
        }
        if let Some(attempts) = self.max_attempts {
            policy = policy.max_attempts(attempts);
        }
        if let Some(crashes) = self.max_crashes {
            policy = policy.max_crashes(crashes);
        }
        if self.at_most_once == Some(true) {
            policy = policy.delivery(Delivery::AtMostOnce);
        }
        policy
    }
}

/// Tells what of the body is not as it is described.
pub(crate) fn wrong(what: &dyn std::fmt::Display) -> PageError {
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
        let mut known = job_info::look(conn, id)?;
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

/// The time between two looks at the jobs that are waited for.
const LOOK: Duration = Duration::from_millis(50);

/// After a failed look.
const REST: Duration = Duration::from_secs(1);

/// Starts the thread that looks; it ends with the server.
pub(crate) fn start(site: &Arc<Site>) -> Result<JoinHandle<()>> {
    let site = Arc::clone(site);
    stop::spawn("web-waits", move || {
        let mut writers = Writers::new(&site);
        while let Some(jobs) = site.polls.jobs() {
            let mut pause = (!jobs.is_empty()).then_some(LOOK);
            for (database, jobs) in jobs {
                if let Err(error) = look(&site, &mut writers, database, &jobs) {
                    log::debug!("web: cannot see which jobs have ended: {error}");
                    pause = Some(REST);
                }
            }
            // Between two looks, another wait changes nothing.
            match pause {
                Some(pause) => clock::nap(pause),
                None => drop(site.polls.woken.recv()),
            }
        }
    })
}

fn look(site: &Site, writers: &mut Writers, database: usize, jobs: &[i64]) -> Result<()> {
    let open = writers.look(database, |conn| {
        job_view::not_ended(conn, jobs).during("see which jobs have ended")
    })?;
    let open: BTreeSet<i64> = open.into_iter().collect();
    let ended = jobs.iter().copied().filter(|job| !open.contains(job));
    site.polls.ended(database, ended);
    Ok(())
}
