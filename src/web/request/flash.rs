//! What a change reports: shown once, on the next page.
//!
//! It is kept in a cookie of the viewer's own, so that it also works with several servers.

use crate::web::http::link::{decoded, encoded};
use crate::web::http::request::Request;
use crate::web::http::response::Response;
use crate::web::site::Site;

/// The name of the cookie.
pub(crate) const COOKIE: &str = "windlass_flash";

/// The most characters of a message.
const LONGEST: usize = 300;

/// Adds a message to a response that leads to another page.
pub(crate) fn set(response: Response, site: &Site, message: &str) -> Response {
    let message: String = message.chars().take(LONGEST).collect();
    cookie(response, site, &encoded(&message), 30)
}

/// Takes the message away with the first page that has shown it.
pub(crate) fn shown(response: Response, site: &Site, request: &Request) -> Response {
    let is_page = response.status == 200;
    if request.flash.is_some() && is_page {
        cookie(response, site, "", 0)
    } else {
        response
    }
}

/// Returns the message in a cookie's value.
pub(crate) fn read(value: &str) -> Option<String> {
    let message: String = decoded(value).chars().take(LONGEST).collect();
    Some(message).filter(|message| !message.trim().is_empty())
}

fn cookie(response: Response, site: &Site, value: &str, seconds: u32) -> Response {
    let path = site.cookie_path();
    response.with_header(
        "set-cookie",
        format!("{COOKIE}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict"),
    )
}
