//! The table of all pages and changes.

use crate::web::access::viewer::Need;
use crate::web::pages::job::{change, confirm};
use crate::web::pages::route::Route;
use crate::web::pages::{job, jobs, overview, theme};

/// All routes. The first that fits counts.
pub(crate) const ROUTES: &[Route] = &[
    Route::get("/", overview::show).live(),
    Route::get("/jobs", jobs::list::show),
    Route::get("/jobs/{id}", job::show::show).live(),
    Route::get("/jobs/{id}/cancel", confirm::cancel),
    Route::get("/jobs/{id}/discard", confirm::discard),
    Route::get("/jobs/{id}/retry", confirm::retry),
    Route::post("/jobs/{id}/cancel", change::cancel),
    Route::post("/jobs/{id}/discard", change::discard),
    Route::post("/jobs/{id}/retry", change::retry),
    Route::post("/jobs/{id}/run", change::run),
    Route::post("/jobs/{id}/change", change::change),
    Route::post("/theme", theme::change).needs(Need::Nothing),
];
