//! `POST /v1/jobs` and `POST /v1/jobs:batch`.

use crate::web::access::viewer::TokenLimits;
use crate::web::api::job_request::{JobRequest, wrong};
use crate::web::http::{PageError, Response};
use crate::web::request::route::Cx;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use windlass::internal::db::query::job_view::{self, StoredArguments};
use windlass::internal::db::table::classes;
use windlass::internal::db::transition::enqueue;
use windlass::internal::error::ErrorContext as _;
use windlass::jobs::EnqueueOutcome;
use windlass::{Conn, Enqueued, Error, NewJob, Result, enqueue_all};

/// The path at which a list of jobs is enqueued.
pub(crate) const LIST: &str = "/v1/jobs:batch";

/// The most jobs of a list: one transaction of a second or less.
const MOST: usize = 10_000;

/// The most bytes of the header `Idempotency-Key` of a list: each job adds its place.
const LONGEST_KEY: usize = 250;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListRequest<'b> {
    #[serde(borrow)]
    jobs: Vec<&'b RawValue>,
}

/// The id of a job, and the outcome of its enqueue.
#[derive(Debug, Serialize)]
pub(crate) struct AcceptedJob {
    id: i64,
    outcome: &'static str,
}

#[derive(Debug, Serialize)]
struct AcceptedJobs {
    jobs: Vec<AcceptedJob>,
}

impl From<Enqueued> for AcceptedJob {
    fn from(enqueued: Enqueued) -> Self {
        AcceptedJob {
            id: enqueued.id.0,
            outcome: match enqueued.outcome {
                EnqueueOutcome::New => "new",
                EnqueueOutcome::Existing => "existing",
                EnqueueOutcome::Replaced => "replaced",
                EnqueueOutcome::Again => "again",
                EnqueueOutcome::Refused => "refused",
                EnqueueOutcome::Shed => "shed", // these jobs have no quota
            },
        }
    }
}

/// Enqueues one job.
pub(crate) fn one(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let api = &cx.request.api;
    let body: &RawValue = serde_json::from_slice(&api.body).map_err(|error| wrong(&error))?;
    let mut request = JobRequest::parsed(body)?;
    if let (Some(header), Some(own)) = (api.idempotency_key.as_deref(), request.idempotency_key())
        && header != own
    {
        return Err(PageError::Invalid(
            "`Idempotency-Key` and `idempotency_key` name two keys: send one of them".to_owned(),
        ));
    }
    request.or_headers(api.idempotency_key.clone(), api.traceparent.as_deref());
    name_queues(cx, std::slice::from_mut(&mut request))?;
    request.allowed(cx.viewer)?;
    let job = request.job()?;
    let limits = cx.viewer.limits.clone();
    let (enqueued, conflict) = cx.add(|conn| {
        let enqueued = job.enqueue(conn)?;
        let conflict = conflicting_job(conn, &[(&request, enqueued)], limits.as_deref())?;
        Ok((enqueued, conflict))
    })?;
    if let Some(conflict) = conflict {
        return Err(conflict.error(&request));
    }
    let location = cx.link(&format!("/v1/jobs/{}", enqueued.id));
    let status = status([&enqueued].into_iter());
    let response = Response::json(&AcceptedJob::from(enqueued)).with_status(status);
    Ok(response.with_header("location", location))
}

/// Enqueues a list of jobs: all or none.
pub(crate) fn many(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (requests, jobs) = listed(cx)?;
    let limits = cx.viewer.limits.clone();
    let done = cx.add(|conn| {
        let mut conflict = None;
        let done = enqueue::all_or_none(conn, |conn| {
            let enqueued = enqueue_all(conn, jobs).map_err(ListFailure::Failed)?;
            let pairs: Vec<_> = requests.iter().zip(enqueued.iter().copied()).collect();
            let another = conflicting_job(conn, &pairs, limits.as_deref());
            conflict = another.map_err(ListFailure::Failed)?;
            // Nothing of it stays.
            match conflict {
                Some(_) => Err(ListFailure::Rejected),
                None => Ok(enqueued),
            }
        });
        match (done, conflict) {
            (Err(ListFailure::Rejected), Some(conflict)) => Ok(Err(conflict)),
            (Err(ListFailure::Failed(error)), _) => Err(error),
            (Err(ListFailure::Database(error)), _) => Err(error).during("enqueue the jobs"),
            (Err(ListFailure::Rejected), None) => Ok(Ok(Vec::new())),
            (Ok(enqueued), _) => Ok(Ok(enqueued)),
        }
    })?;
    let enqueued = done.map_err(|conflict: ConflictingJob| conflict.of(&requests))?;
    let status = status(enqueued.iter());
    let jobs = enqueued.into_iter().map(AcceptedJob::from).collect();
    Ok(Response::json(&AcceptedJobs { jobs }).with_status(status))
}

/// Looks up the queues of the classes of jobs that name none, if the token is limited to some queues: it must not reach
/// another by leaving it out.
fn name_queues(cx: &mut Cx<'_>, requests: &mut [JobRequest]) -> Result<(), PageError> {
    let limits = cx.viewer.limits.as_deref();
    if limits.is_none_or(|limits| limits.queues.is_none()) {
        return Ok(());
    }
    let without = requests.iter().filter(|request| !request.has_queue());
    let names: BTreeSet<String> = without.map(|request| request.class().to_owned()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let queues = cx.read_newest(|conn| {
        classes::queues(conn, &names).during("look up the queues of the classes")
    })?;
    for request in requests.iter_mut().filter(|request| !request.has_queue()) {
        let queue = queues.get(request.class());
        request.or_queue(queue.map_or("default", String::as_str).to_owned());
    }
    Ok(())
}

/// Reads and checks the jobs of a list.
fn listed(cx: &mut Cx<'_>) -> Result<(Vec<JobRequest>, Vec<NewJob>), PageError> {
    let api = &cx.request.api;
    if !api.body.trim_ascii_start().starts_with(b"{") {
        return Err(wrong(&"a list is an object with the field `jobs`"));
    }
    let body = api.body.clone();
    let ListRequest { jobs: raw } = serde_json::from_slice(&body).map_err(|error| wrong(&error))?;
    checked(cx, &raw, true)
}

/// Reads and checks jobs. The key of the request, with the place, is that of each if they `have_keys`.
pub(crate) fn checked(
    cx: &mut Cx<'_>,
    raw: &[&RawValue],
    have_keys: bool,
) -> Result<(Vec<JobRequest>, Vec<NewJob>), PageError> {
    let api = &cx.request.api;
    if raw.len() > MOST {
        return Err(PageError::Invalid(format!(
            "a list has at most {MOST} jobs; this one has {}",
            raw.len()
        )));
    }
    let key = api.idempotency_key.as_ref().filter(|_| have_keys);
    if let Some(key) = key.filter(|key| key.is_empty() || key.len() > LONGEST_KEY) {
        return Err(PageError::Invalid(format!(
            "the `Idempotency-Key` of a list has 1 to {LONGEST_KEY} bytes; this one has {}",
            key.len()
        )));
    }
    let read = |position: usize, raw: &RawValue| {
        let mut request = JobRequest::parsed(raw)?;
        let key = key.map(|key| format!("{key}/{position}"));
        request.or_headers(key, api.traceparent.as_deref());
        Ok(request)
    };
    let mut requests = each(raw.iter().copied(), read)?;
    name_queues(cx, &mut requests)?;
    let jobs = each(&requests, |_, request| {
        request.allowed(cx.viewer)?;
        request.job()
    })?;
    Ok((requests, jobs))
}

/// Does something for each job of a list. The first error names its job.
fn each<I, T>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(usize, I) -> Result<T, PageError>,
) -> Result<Vec<T>, PageError> {
    let items = items.into_iter().enumerate();
    let done =
        items.map(|(position, item)| work(position, item).map_err(|error| at(position, error)));
    done.collect()
}

/// Returns `202 Accepted`, or `200 OK` if nothing was enqueued.
fn status<'e>(mut enqueued: impl Iterator<Item = &'e Enqueued>) -> u16 {
    let is_there = |outcome| matches!(outcome, EnqueueOutcome::Existing | EnqueueOutcome::Refused);
    match enqueued.all(|job| is_there(job.outcome)) {
        true => 200,
        false => 202,
    }
}

/// Why the transaction of a list is rolled back.
enum ListFailure {
    Rejected,
    Failed(Error),
    Database(diesel::result::Error),
}

impl From<diesel::result::Error> for ListFailure {
    fn from(error: diesel::result::Error) -> Self {
        ListFailure::Database(error)
    }
}

/// An enqueue returned a job that its sender does not expect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConflictingJob {
    /// Of the request in its list.
    position: usize,
    /// Found by the idempotency key, not by the unique id.
    by_key: bool,
}

impl ConflictingJob {
    /// Returns the error of the request in its list.
    pub(crate) fn of(self, requests: &[JobRequest]) -> PageError {
        match requests.get(self.position) {
            Some(request) => at(self.position, self.error(request)),
            None => PageError::Internal("no request has the place".to_owned()),
        }
    }

    fn error(self, request: &JobRequest) -> PageError {
        if self.by_key {
            let key = request.idempotency_key().unwrap_or_default();
            return PageError::KeyReused(format!(
                "the idempotency key {key:?} belongs to a job of another class or with other arguments; nothing \
                 was enqueued"
            ));
        }
        PageError::Conflict(
            "a job that this token may not see holds the unique id; nothing was enqueued"
                .to_owned(),
        )
    }
}

/// Returns the first request whose key belongs to a job of another class or with other arguments, or
/// whose unique id is held by a job that the token may not see.
pub(crate) fn conflicting_job(
    conn: &mut Conn<'_>,
    enqueued: &[(&JobRequest, Enqueued)],
    limits: Option<&TokenLimits>,
) -> Result<Option<ConflictingJob>> {
    let known = enqueued.iter().filter(|(_, job)| is_known(job));
    let ids: Vec<i64> = known.map(|(_, job)| job.id.0).collect();
    if ids.is_empty() {
        return Ok(None);
    }
    let stored = job_view::arguments(conn, &ids).during("look the known jobs up")?;
    let mut conflicts = enqueued.iter().enumerate().filter_map(|(position, pair)| {
        let (request, job) = pair;
        let stored = stored.iter().find(|stored| stored.job_id == job.id.0)?;
        let by_key = stored.idempotency_key.is_some()
            && stored.idempotency_key.as_deref() == request.idempotency_key();
        let is_another = match by_key {
            true => is_other_request(request, stored),
            false => limits.is_some_and(|limits| !limits.has_class(&stored.class_name)),
        };
        (is_known(job) && is_another).then_some(ConflictingJob { position, by_key })
    });
    Ok(conflicts.next())
}

fn is_known(job: &Enqueued) -> bool {
    matches!(
        job.outcome,
        EnqueueOutcome::Existing | EnqueueOutcome::Refused
    )
}

fn is_other_request(request: &JobRequest, stored: &StoredArguments) -> bool {
    stored.class_name != request.class() || !are_same(&stored.arguments, request.arguments())
}

/// Names the job of a list that is wrong.
fn at(position: usize, error: PageError) -> PageError {
    let named = |text: String| format!("jobs[{position}]: {text}");
    match error {
        PageError::Invalid(text) => PageError::Invalid(named(text)),
        PageError::Refused(text) => PageError::Refused(named(text)),
        PageError::KeyReused(text) => PageError::KeyReused(named(text)),
        PageError::Conflict(text) => PageError::Conflict(named(text)),
        other => other,
    }
}

// --- The comparison of two JSON texts but for spaces ---

/// Returns whether a repeated request may have written one as the other.
pub(crate) fn are_same(one: &str, other: &str) -> bool {
    parts(one).eq(parts(other))
}

/// Returns the characters, without spaces outside of texts.
fn parts(json: &str) -> impl Iterator<Item = char> {
    let (mut in_text, mut is_escaped) = (false, false);
    json.chars().filter(move |&c| {
        let is_part = in_text || !matches!(c, ' ' | '\t' | '\r' | '\n');
        if c == '"' && !is_escaped {
            in_text = !in_text;
        }
        is_escaped = in_text && c == '\\' && !is_escaped;
        is_part
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_spaces_between_parts_may_differ() {
        for (one, other, same) in [
            ("{\"a\": [1, 2]}", "{\"a\":[1,2]}", true),
            ("\n7 ", "7", true),
            ("\"a b\"", "\"ab\"", false),
            ("\"\\\" a\"", "\"\\\"a\"", false),
            ("[\"\\\\\", 1]", "[\"\\\\\",1]", true),
            ("1.0", "1.00", false),
            (
                "100000000000000000000001",
                "100000000000000000000002",
                false,
            ),
            ("{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", false),
            ("\"\\ud800\"", "\"\\udfff\"", false),
        ] {
            assert_eq!(are_same(one, other), same, "{one} and {other}");
        }
    }
}
