//! Signing in with a token, and out.

use crate::clock;
use crate::db::table::web::sessions::{self, NewWebSession};
use crate::db::table::web::tokens;
use crate::db::transition::web;
use crate::error::Doing as _;
use crate::web::access::secret::{Secret, SecretDigest};
use crate::web::access::viewer::{Need, Proof, Role, Viewer};
use crate::web::http::page_error::PageError;
use crate::web::http::request::{self, Request, Response};
use crate::web::reads::connections::Writers;
use crate::web::site::Site;

/// Starts a session with the token of a form.
///
/// # Errors
/// If the token is wrong, or may not be used for pages.
pub(crate) fn sign_in(
    site: &Site,
    request: &Request,
    writers: &mut Writers,
) -> Result<Response, PageError> {
    let now = clock::instant();
    if let Some(wait) = site.access.limiter.refuses(request.client, now) {
        return Err(PageError::TooMany(wait));
    }
    let token = request.form.get("token").unwrap_or_default().trim();
    let digest = SecretDigest::of(token);
    let found = writers.look(0, |conn| {
        tokens::find(conn, digest.lookup()).doing("look for the token")
    })?;
    let Some(found) = found.filter(|found| digest.is(&found.digest)) else {
        site.access.limiter.failed(request.client, now);
        return Err(PageError::WrongToken);
    };
    if !Role::named(&found.role).is_some_and(|role| Need::Viewer.is_met_by(role)) {
        return Err(PageError::Refused(
            "This token is for programs that enqueue jobs. It shows no pages.".to_owned(),
        ));
    }
    let secret = Secret::generate()?;
    let lifetime = site.access.settings.session_lifetime;
    let digest = SecretDigest::of(secret.cookie());
    writers.write(0, |conn| {
        let session = NewWebSession {
            token: found.id,
            lookup: digest.lookup(),
            digest: digest.as_str(),
            origin: &request.client.to_string(),
            lifetime,
        };
        web::sign_in(conn, &session).doing("start a session")
    })?;
    let back = request::local(request.form.get("back").unwrap_or("/"));
    let to = site.link(request.database, back);
    let cookie = cookie(site, request, secret.cookie(), lifetime.as_secs());
    Ok(Response::see_other(to).with_header("set-cookie", cookie))
}

/// Ends the session.
///
/// # Errors
/// If the database does not answer: then it has not ended.
pub(crate) fn sign_out(
    site: &Site,
    request: &Request,
    viewer: &Viewer,
    writers: &mut Writers,
) -> Result<Response, PageError> {
    match viewer.proof {
        Proof::Session(id) => writers.write(0, |conn| {
            sessions::delete(conn, id).doing("end the session")
        })?,
        Proof::Recalled => return Err(PageError::Away),
        _ => {}
    }
    if let Some(secret) = &request.credentials.session {
        site.access.known.forget(SecretDigest::of(secret).as_str());
    }
    let response = Response::see_other(site.link(0, "/login"));
    Ok(response.with_header("set-cookie", cookie(site, request, "", 0)))
}

fn cookie(site: &Site, request: &Request, value: &str, seconds: u64) -> String {
    let (name, path) = (&site.session_cookie, site.cookie_path());
    let secure = if request.is_https { "; Secure" } else { "" };
    format!("{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}
