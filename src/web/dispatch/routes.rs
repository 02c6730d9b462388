//! The table of all pages, changes and requests of programs.

use crate::web::access::viewer::Need;
use crate::web::api::{enqueue, openapi, outcome, token};
use crate::web::pages::job::{self, change, confirm};
use crate::web::pages::{
    audit, batches, bulk, doctor, failed, flow, jobs, limits, login, operations, overview,
    processes, queue, queues, recurring,
};
use crate::web::request::route::Route;
use crate::web::request::theme;
use crate::web::{metrics, readiness};

/// All routes. The first that fits counts.
pub(crate) const ROUTES: &[Route] = &[
    Route::get("/", overview::show).live(),
    Route::get("/jobs", jobs::list::show),
    Route::get("/metrics", metrics::show).needs(Need::Nothing),
    Route::get("/readyz", readiness::ready).needs(Need::Nothing),
    Route::get("/jobs/{id}", job::show::show).live(),
    Route::get("/jobs/{id}/flow", flow::show::of_job).live(),
    Route::get("/jobs/{id}/cancel", confirm::cancel),
    Route::get("/jobs/{id}/discard", confirm::discard),
    Route::get("/jobs/{id}/retry", confirm::retry),
    Route::post("/jobs/{id}/cancel", change::cancel),
    Route::post("/jobs/{id}/discard", change::discard),
    Route::post("/jobs/{id}/retry", change::retry),
    Route::post("/jobs/{id}/run", change::run),
    Route::post("/jobs/{id}/change", change::change),
    Route::get("/preview", bulk::preview::show),
    Route::post("/preview", bulk::start::start),
    Route::get("/failed", failed::list::show),
    Route::get("/batches", batches::list::show).live(),
    Route::get("/batches/{id}", batches::one::show).live(),
    Route::get("/batches/{id}/flow", flow::show::of_batch).live(),
    Route::get("/batches/{id}/cancel", batches::confirm::cancel),
    Route::get("/batches/{id}/retry", batches::confirm::retry),
    Route::post("/batches/{id}/cancel", batches::change::cancel),
    Route::post("/batches/{id}/retry", batches::change::retry),
    Route::get("/operations", operations::list::show).live(),
    Route::get("/operations/{id}", operations::one::show).live(),
    Route::post("/operations/{id}/stop", operations::one::stop),
    Route::get("/audit", audit::list::show),
    Route::get("/queues", queues::show).live(),
    Route::get("/queues/{name}", queue::show).live(),
    Route::post("/queues/{name}/pause", queues::changes::pause),
    Route::post("/queues/{name}/resume", queues::changes::resume),
    Route::get("/recurring", recurring::show).live(),
    Route::post("/recurring/{key}/run", recurring::changes::run),
    Route::post("/recurring/{key}/pause", recurring::changes::pause),
    Route::post("/recurring/{key}/resume", recurring::changes::resume),
    Route::get("/processes", processes::show).live(),
    Route::get("/limits", limits::show).live(),
    Route::post("/limits/set", limits::changes::set),
    Route::post("/limits/clear", limits::changes::clear),
    Route::get("/doctor", doctor::show).live(),
    Route::post("/classes/pause", queues::changes::pause_class),
    Route::post("/classes/{name}/resume", queues::changes::resume_class),
    Route::post("/v1/jobs", enqueue::one).needs(Need::Enqueuer),
    Route::post(enqueue::LIST, enqueue::many).needs(Need::Enqueuer),
    Route::get("/v1/jobs/{id}", outcome::show).needs(Need::Anyone),
    Route::get(token::PATH, token::show).needs(Need::Anyone),
    Route::get("/v1/openapi.json", openapi::show).needs(Need::Nothing),
    Route::get("/login", login::show).needs(Need::Nothing),
    Route::post("/theme", theme::change).needs(Need::Nothing),
];
