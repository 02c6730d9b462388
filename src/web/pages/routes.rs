//! The table of all pages and changes.

use crate::web::access::viewer::Need;
use crate::web::pages::route::Route;
use crate::web::pages::{
    doctor, limits, login, overview, processes, queue, queues, recurring, theme,
};

/// All routes. The first that fits counts.
pub(crate) const ROUTES: &[Route] = &[
    Route::get("/", overview::show).live(),
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
    Route::get("/login", login::show).needs(Need::Nothing),
    Route::post("/theme", theme::change).needs(Need::Nothing),
];
