//! The table of all pages and changes.

use crate::web::access::viewer::Need;
use crate::web::pages::route::Route;
use crate::web::pages::{overview, theme};

/// All routes. The first that fits counts.
pub(crate) const ROUTES: &[Route] = &[
    Route::get("/", overview::show).live(),
    Route::post("/theme", theme::change).needs(Need::Nothing),
];
