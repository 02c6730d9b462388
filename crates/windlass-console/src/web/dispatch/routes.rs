//! The table of all pages, changes and requests of programs.

use crate::web::access::viewer::Need;
use crate::web::api::{self, emit, enqueue, job_request};
use crate::web::pages::job::{self, change, confirm};
use crate::web::pages::{
    audit, batches, doctor, failed, flow, jobs, limits, login, operations, overview, processes,
    queue, queues, rates, recurring,
};
use crate::web::request::route::{self, Route};
use crate::web::{metrics, readiness};

/// All routes. The first that fits counts.
pub(crate) const ROUTES: &[Route] = &[
    Route::get("/", overview::show).live(),
    Route::get("/jobs", jobs::show),
    Route::get("/metrics", metrics::show).needs(Need::Nothing),
    Route::get("/readyz", readiness::ready).needs(Need::Nothing),
    Route::get("/jobs/{id}", job::show).live(),
    Route::get("/jobs/{id}/flow", flow::of_job).live(),
    Route::get("/jobs/{id}/cancel", confirm::cancel),
    Route::get("/jobs/{id}/discard", confirm::discard),
    Route::get("/jobs/{id}/retry", confirm::retry),
    Route::post("/jobs/{id}/cancel", change::cancel),
    Route::post("/jobs/{id}/discard", change::discard),
    Route::post("/jobs/{id}/retry", change::retry),
    Route::post("/jobs/{id}/run", change::run),
    Route::post("/jobs/{id}/change", change::change),
    Route::get("/preview", operations::preview::show),
    Route::post("/preview", operations::preview::start),
    Route::get("/failed", failed::show),
    Route::get("/batches", batches::show).live(),
    Route::get("/batches/{id}", batches::one::show).live(),
    Route::get("/batches/{id}/flow", flow::of_batch).live(),
    Route::get("/batches/{id}/cancel", batches::confirm::cancel),
    Route::get("/batches/{id}/retry", batches::confirm::retry),
    Route::post("/batches/{id}/cancel", batches::cancel),
    Route::post("/batches/{id}/retry", batches::retry),
    Route::get("/operations", operations::show).live(),
    Route::get("/operations/{id}", operations::show_one).live(),
    Route::post("/operations/{id}/stop", operations::stop),
    Route::get("/audit", audit::show),
    Route::get("/queues", queues::show).live(),
    Route::get("/queues/{name}", queue::show).live(),
    Route::post("/queues/{name}/pause", queues::pause),
    Route::post("/queues/{name}/resume", queues::resume),
    Route::get("/recurring", recurring::show).live(),
    Route::post("/recurring/{key}/run", recurring::run),
    Route::post("/recurring/{key}/pause", recurring::pause),
    Route::post("/recurring/{key}/resume", recurring::resume),
    Route::get("/processes", processes::show).live(),
    Route::get("/limits", limits::show).live(),
    Route::post("/limits/set", limits::set),
    Route::post("/limits/clear", limits::clear),
    Route::post("/limits/reopen", rates::reopen),
    Route::get("/doctor", doctor::show).live(),
    Route::post("/classes/pause", queues::pause_class),
    Route::post("/classes/{name}/resume", queues::resume_class),
    Route::post("/v1/jobs", enqueue::one).needs(Need::Enqueuer),
    Route::post(enqueue::LIST, enqueue::many).needs(Need::Enqueuer),
    Route::post(api::batches::PATH, api::batches::open).needs(Need::Enqueuer),
    Route::get("/v1/batches/{id}", api::batches::show).needs(Need::Anyone),
    Route::post(emit::PATH, emit::emit).needs(Need::Enqueuer),
    Route::get("/v1/jobs/{id}", job_request::show_outcome).needs(Need::Anyone),
    Route::get(job_request::PATH, job_request::show).needs(Need::Anyone),
    Route::get("/v1/openapi.json", api::show).needs(Need::Nothing),
    Route::get("/login", login::show).needs(Need::Nothing),
    Route::post("/theme", route::change).needs(Need::Nothing),
];
