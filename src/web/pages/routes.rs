//! The table of all pages and changes.

use crate::web::access::viewer::Need;
use crate::web::pages::route::Route;
use crate::web::pages::{login, overview, theme};

/// All routes. The first that fits counts.
pub(crate) const ROUTES: &[Route] = &[
    Route::get("/", overview::show).live(),
    Route::get("/login", login::show).needs(Need::Nothing),
    Route::post("/theme", theme::change).needs(Need::Nothing),
];
