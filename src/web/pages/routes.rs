//! The table of all pages and changes.

use crate::web::access::viewer::Need;
use crate::web::metrics;
use crate::web::pages::route::Route;
use crate::web::pages::{jobs, login, overview, theme};
use crate::web::probes::answer;

/// All routes. The first that fits counts.
pub(crate) const ROUTES: &[Route] = &[
    Route::get("/", overview::show).live(),
    Route::get("/jobs", jobs::list::show),
    Route::get("/login", login::show).needs(Need::Nothing),
    Route::get("/metrics", metrics::show).needs(Need::Nothing),
    Route::get("/readyz", answer::ready).needs(Need::Nothing),
    Route::post("/theme", theme::change).needs(Need::Nothing),
];
