//! The colours that a viewer has chosen.

use crate::web::http::page_error::PageError;
use crate::web::http::request::{self, Response, Theme};
use crate::web::request::cx::Cx;

/// The name of the cookie.
pub(crate) const COOKIE: &str = "windlass_theme";

/// A year, in seconds.
const KEPT: u32 = 31_536_000;

/// Stores the choice in a cookie.
pub(crate) fn change(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let theme = Theme::named(cx.form().get("theme").unwrap_or_default()).name();
    let back = request::local(cx.form().get("back").unwrap_or("/"));
    let path = cx.site.cookie_path();
    Ok(Response::see_other(cx.link(back)).with_header(
        "set-cookie",
        format!("{COOKIE}={theme}; Path={path}; Max-Age={KEPT}; HttpOnly; SameSite=Strict"),
    ))
}
