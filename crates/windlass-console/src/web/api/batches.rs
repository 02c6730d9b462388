//! `POST /v1/batches`: enqueues a batch with its jobs and those that follow it. `GET /v1/batches/{id}`: how far it is.

use crate::web::api::enqueue::{self, AcceptedJob, ConflictingJob};
use crate::web::api::job_request::{JobRequest, wrong};
use crate::web::http::{PageError, Response};
use crate::web::request::route::Cx;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass::batches::EnqueuedBatch;
use windlass::internal::db::query::batches;
use windlass::internal::db::transition::enqueue::all_or_none;
use windlass::internal::error::ErrorContext as _;
use windlass::jobs::EnqueueOutcome;
use windlass::{Batch, BatchId, Conn, Enqueued, Error, Result};

/// The path of the request.
pub(crate) const PATH: &str = "/v1/batches";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchRequest<'b> {
    name: String,
    #[serde(borrow)]
    metadata: Option<&'b RawValue>,
    #[serde(default)]
    wait_for_retries: bool,
    jobs: Vec<&'b RawValue>,
    #[serde(default)]
    on_success: Vec<&'b RawValue>,
    #[serde(default)]
    on_failure: Vec<&'b RawValue>,
    #[serde(default)]
    on_finish: Vec<&'b RawValue>,
}

#[derive(Debug, Serialize)]
struct AcceptedBatch {
    id: i64,
    jobs: Vec<AcceptedJob>,
}

/// The reason why the transaction of a batch is rolled back.
enum BatchFailure {
    /// The same request came before, and opened this batch.
    Repeated(i64, Vec<Enqueued>),
    Conflicting(ConflictingJob),
    /// Some of its jobs are there already.
    Partial,
    Failed(Error),
}

impl From<diesel::result::Error> for BatchFailure {
    fn from(source: diesel::result::Error) -> Self {
        let action = "enqueue the batch";
        BatchFailure::Failed(Error::Query { action, source })
    }
}

impl From<Error> for BatchFailure {
    fn from(error: Error) -> Self {
        BatchFailure::Failed(error)
    }
}

/// Enqueues a batch with its jobs, all or nothing. A repeated request with the same key returns the first batch.
pub(crate) fn open(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let body = cx.request.api.body.clone();
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(wrong(&"a batch is an object"));
    }
    let request: BatchRequest<'_> = serde_json::from_slice(&body).map_err(|error| wrong(&error))?;
    let (requests, jobs) = enqueue::checked(cx, &request.jobs, true)?;
    if jobs.is_empty() && cx.request.api.idempotency_key.is_some() {
        return Err(PageError::Invalid(
            "the `Idempotency-Key` of a batch is that of its jobs, and it has none".to_owned(),
        ));
    }
    let batch = described(cx, &request)?.add(jobs);
    // A repeated request has as many jobs.
    let key = cx.request.api.idempotency_key.as_ref();
    let another = key
        .map(|key| format!("{key}/{}", requests.len()))
        .unwrap_or_default();
    let has_keys =
        !requests.is_empty() && requests.iter().all(|job| job.idempotency_key().is_some());
    let limits = cx.viewer.limits.clone();
    let done = cx.add(|conn| {
        let done = all_or_none(conn, |conn| {
            let batch = batch.enqueue(conn)?;
            let pairs: Vec<_> = requests.iter().zip(batch.jobs.iter().copied()).collect();
            match enqueue::conflicting_job(conn, &pairs, limits.as_deref())? {
                Some(conflict) => Err(BatchFailure::Conflicting(conflict)),
                None => unless_repeated(conn, batch, has_keys.then_some(&*another)),
            }
        });
        match done {
            Err(BatchFailure::Failed(error)) => Err(error),
            done => Ok(done),
        }
    })?;
    let (status, id, jobs) = match done {
        Ok((id, jobs)) => (202, id.0, jobs),
        Err(BatchFailure::Repeated(id, jobs)) => (200, id, jobs),
        Err(failure) => return Err(failure.error(&requests)),
    };
    let jobs = jobs.into_iter().map(AcceptedJob::from).collect();
    let location = cx.link(&format!("{PATH}/{id}"));
    let response = Response::json(&AcceptedBatch { id, jobs }).with_status(status);
    Ok(response.with_header("location", location))
}

impl BatchFailure {
    /// Returns the error for the sender of the jobs.
    fn error(self, requests: &[JobRequest]) -> PageError {
        match self {
            BatchFailure::Conflicting(conflict) => conflict.of(requests),
            BatchFailure::Failed(error) => error.into(),
            BatchFailure::Partial | BatchFailure::Repeated(..) => PageError::KeyReused(
                "some of its jobs are there already, by their idempotency keys or unique ids, or were refused by a quota, \
                 and would not join the batch; nothing was enqueued"
                    .to_owned(),
            ),
        }
    }
}

/// Returns the batch without its jobs, with those that follow it.
fn described(cx: &mut Cx<'_>, request: &BatchRequest<'_>) -> Result<Batch, PageError> {
    let mut batch = Batch::new(&request.name);
    if let Some(metadata) = request.metadata {
        batch = batch.metadata(&metadata);
    }
    if request.wait_for_retries {
        batch = batch.wait_for_retries();
    }
    for job in enqueue::checked(cx, &request.on_success, false)?.1 {
        batch = batch.on_success(job);
    }
    for job in enqueue::checked(cx, &request.on_failure, false)?.1 {
        batch = batch.on_failure(job);
    }
    for job in enqueue::checked(cx, &request.on_finish, false)?.1 {
        batch = batch.on_finish(job);
    }
    Ok(batch)
}

/// Returns the batch, unless jobs of it existed before: by their keys, as all jobs of one batch with the same name, if this
/// request came before.
fn unless_repeated(
    conn: &mut Conn<'_>,
    batch: EnqueuedBatch,
    another: Option<&str>,
) -> Result<(BatchId, Vec<Enqueued>), BatchFailure> {
    const ACTION: &str = "look up the batch of the jobs";
    let (id, jobs) = (batch.id, batch.jobs);
    let is_new =
        |job: &Enqueued| matches!(job.outcome, EnqueueOutcome::New | EnqueueOutcome::Again);
    if jobs.iter().all(is_new) {
        return Ok((id, jobs));
    }
    let is_there = |job: &Enqueued| job.outcome == EnqueueOutcome::Existing;
    let Some(another) = another.filter(|_| jobs.iter().all(is_there)) else {
        return Err(BatchFailure::Partial);
    };
    let ids: Vec<i64> = jobs.iter().map(|job| job.id.0).collect();
    match batches::alike(conn, id.0, &ids, another).during(ACTION)? {
        Some(first) => Err(BatchFailure::Repeated(first, jobs)),
        None => Err(BatchFailure::Partial),
    }
}

// --- `GET /v1/batches/{id}` ---

#[derive(Debug, Serialize)]
struct BatchProgress<'a> {
    id: i64,
    name: &'a str,
    is_over: bool,
    total: u64,
    open: u64,
    failures: u64,
    enqueued_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
}

/// Shows how far a batch is. A token with limits cannot: it has the ids of its jobs.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    if cx.viewer.limits.is_some() {
        let text = "This token may not see batches, only jobs of its classes.";
        return Err(PageError::Refused(text.to_owned()));
    }
    let text = cx.param("id").to_owned();
    let Ok(id) = text.parse::<i64>() else {
        return Err(PageError::Invalid(format!(
            "the id of a batch is a number; it is {text:?}"
        )));
    };
    let status = cx.read_newest(|conn| BatchId(id).status(conn))?;
    Ok(Response::json(&BatchProgress {
        id,
        name: &status.name,
        is_over: status.is_over(),
        total: status.total,
        open: status.open,
        failures: status.failures,
        enqueued_at: status.enqueued_at,
        finished_at: status.finished_at,
    }))
}
