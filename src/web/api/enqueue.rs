//! `POST /v1/jobs` and `POST /v1/jobs:batch`.

use crate::db::Conn;
use crate::db::model::new_row::EnqueueOutcome;
use crate::db::query::pages::sent::{self, SentJob};
use crate::db::transition::enqueue;
use crate::error::Doing as _;
use crate::job::enqueue_all::enqueue_all;
use crate::job::enqueued::Enqueued;
use crate::job::new_job::NewJob;
use crate::web::api::job_request::JobRequest;
use crate::web::http::response::Response;
use crate::web::sql::cx::Cx;
use crate::web::sql::page_error::PageError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where a list of jobs is enqueued.
pub(crate) const LIST: &str = "/v1/jobs:batch";

/// The most jobs of a list: one transaction of a second or less.
const MOST: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListRequest {
    jobs: Vec<JobRequest>,
}

/// What became of a job.
#[derive(Debug, Serialize)]
struct AcceptedJob {
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
                EnqueueOutcome::Shed => "shed",
            },
        }
    }
}

/// Enqueues one job.
pub(crate) fn one(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let mut request: JobRequest = parsed(cx)?;
    let api = &cx.request.api;
    if let (Some(header), Some(own)) = (&api.idempotency_key, &request.idempotency_key)
        && header != own
    {
        return Err(PageError::Invalid(
            "`Idempotency-Key` and `idempotency_key` name two keys: send one of them".to_owned(),
        ));
    }
    request.or_headers(api.idempotency_key.clone(), api.traceparent.as_deref());
    request.allowed(cx.viewer)?;
    let job = request.job()?;
    let enqueued = cx.add(|conn| {
        let enqueued = job.enqueue(conn)?;
        let reused = reused(conn, &[(&request, enqueued)])?;
        Ok((enqueued, reused))
    })?;
    let (enqueued, None) = enqueued else {
        return Err(key_reused(&request));
    };
    let location = cx.link(&format!("/v1/jobs/{}", enqueued.id));
    let status = status([&enqueued].into_iter());
    let response = Response::json(&AcceptedJob::from(enqueued)).with_status(status);
    Ok(response.with_header("location", location))
}

/// Enqueues a list of jobs: all or none.
pub(crate) fn many(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let ListRequest { jobs: mut requests } = parsed(cx)?;
    if requests.len() > MOST {
        return Err(PageError::Invalid(format!(
            "a list has at most {MOST} jobs; this one has {}",
            requests.len()
        )));
    }
    let api = &cx.request.api;
    let mut jobs: Vec<NewJob> = Vec::with_capacity(requests.len());
    for (place, request) in requests.iter_mut().enumerate() {
        let key = api.idempotency_key.as_ref();
        let key = key.map(|key| format!("{key}/{place}"));
        request.or_headers(key, api.traceparent.as_deref());
        let job = request.allowed(cx.viewer).and_then(|()| request.job());
        jobs.push(job.map_err(|error| at(place, error))?);
    }
    let done = cx.add(|conn| {
        let mut found = None;
        let done = enqueue::whole(conn, |conn| {
            let enqueued = enqueue_all(conn, jobs).map_err(ListFailure::Failed)?;
            let pairs: Vec<_> = requests.iter().zip(enqueued.iter().copied()).collect();
            found = reused(conn, &pairs).map_err(ListFailure::Failed)?;
            // Nothing of it stays.
            if found.is_some() {
                return Err(ListFailure::Rejected);
            }
            Ok(enqueued)
        });
        match done {
            Ok(enqueued) => Ok(Ok(enqueued)),
            Err(ListFailure::Rejected) => Ok(Err(found.unwrap_or_default())),
            Err(ListFailure::Failed(error)) => Err(error),
            Err(ListFailure::Database(error)) => Err(error).doing("enqueue the jobs"),
        }
    })?;
    let enqueued = done.map_err(|place| match requests.get(place) {
        Some(request) => at(place, key_reused(request)),
        None => PageError::Internal("no request has the place".to_owned()),
    })?;
    let status = status(enqueued.iter());
    let jobs = enqueued.into_iter().map(AcceptedJob::from).collect();
    Ok(Response::json(&AcceptedJobs { jobs }).with_status(status))
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
    Failed(crate::error::Error),
    Database(diesel::result::Error),
}

impl From<diesel::result::Error> for ListFailure {
    fn from(error: diesel::result::Error) -> Self {
        ListFailure::Database(error)
    }
}

/// Reads the body.
fn parsed<T: DeserializeOwned>(cx: &Cx<'_>) -> Result<T, PageError> {
    serde_json::from_slice(&cx.request.api.body).map_err(|error| {
        PageError::Invalid(format!(
            "the body is not as `/v1/openapi.json` describes it: {error}"
        ))
    })
}

/// Returns the place of the first request whose idempotency key belongs to a job that was enqueued
/// with another class or other arguments: that one is not enqueued, and its sender must know.
fn reused(
    conn: &mut Conn<'_>,
    enqueued: &[(&JobRequest, Enqueued)],
) -> crate::error::Result<Option<usize>> {
    let known = enqueued
        .iter()
        .filter(|(request, job)| is_known(job) && request.idempotency_key.is_some());
    let ids: Vec<i64> = known.map(|(_, job)| job.id.0).collect();
    if ids.is_empty() {
        return Ok(None);
    }
    let stored = sent::sent(conn, &ids).doing("look the known jobs up")?;
    Ok(enqueued.iter().position(|(request, job)| {
        let stored = stored.iter().find(|stored| stored.id == job.id.0);
        is_known(job) && stored.is_some_and(|stored| is_another(request, stored))
    }))
}

fn is_known(job: &Enqueued) -> bool {
    job.outcome == EnqueueOutcome::Existing
}

fn is_another(request: &JobRequest, stored: &SentJob) -> bool {
    if stored.idempotency_key.is_none() || stored.idempotency_key != request.idempotency_key {
        return false; // found by its unique id
    }
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    let arguments = stored.arguments.as_deref().unwrap_or("null");
    stored.class_name != request.class()
        || (arguments != request.arguments() && value(arguments) != value(request.arguments()))
}

fn key_reused(request: &JobRequest) -> PageError {
    PageError::KeyReused(format!(
        "the idempotency key {:?} belongs to a job of another class or with other arguments; nothing was enqueued",
        request.idempotency_key.as_deref().unwrap_or_default()
    ))
}

/// Names the job of a list that is wrong.
fn at(place: usize, error: PageError) -> PageError {
    let named = |text: String| format!("jobs[{place}]: {text}");
    match error {
        PageError::Invalid(text) => PageError::Invalid(named(text)),
        PageError::Refused(text) => PageError::Refused(named(text)),
        PageError::KeyReused(text) => PageError::KeyReused(named(text)),
        other => other,
    }
}
