//! The authentication of a viewer: by a token, a trusted proxy, a session, or from this host.

use crate::web::access::secret::{Secret, SecretDigest};
use crate::web::access::viewer::{Need, Proof, Role, TokenLimits, Viewer};
use crate::web::http::{self, PageError, Request, Response};
use crate::web::reads::{Readers, Writers};
use crate::web::site::Site;
use diesel::QueryResult;
use std::sync::Arc;
use std::time::Duration;
use windlass::internal::clock;
use windlass::internal::db::conn::reading::ReadFailure;
use windlass::internal::db::table::web::sessions::{self, NewWebSession};
use windlass::internal::db::table::web::tokens;
use windlass::internal::db::transition::web;
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Error};

// --- Finds out whom a request is from ---

/// The time limit for reading whether there are tokens.
const READ: Duration = Duration::from_secs(1);

/// Returns the viewer of a request, an outsider if nothing proves another.
///
/// # Errors
/// If a token is wrong, or it cannot be found out.
pub(crate) fn viewer(
    site: &Site,
    request: &Request,
    readers: &mut Readers,
    writers: &mut Writers,
) -> Result<Viewer, PageError> {
    let mut viewer = proven(site, request, readers, writers)?;
    if site.access.settings.read_only {
        viewer.role = viewer.role.min(Role::Viewer);
    }
    Ok(viewer)
}

fn proven(
    site: &Site,
    request: &Request,
    readers: &mut Readers,
    writers: &mut Writers,
) -> Result<Viewer, PageError> {
    let credentials = &request.credentials;
    if let Some(token) = &credentials.bearer {
        return by_token(site, request, writers, token);
    }
    if let Some(name) = &credentials.proxied {
        let operators = &site.access.settings.operators;
        let is_operator = operators.iter().any(|other| other == name || other == "*");
        return Ok(Viewer {
            name: name.clone(),
            role: if is_operator {
                Role::Operator
            } else {
                Role::Viewer
            },
            client: request.client,
            proof: Proof::Proxy,
            limits: None,
        });
    }
    if let Some(secret) = &credentials.session
        && let Some(viewer) = by_session(site, request, writers, secret)?
    {
        return Ok(viewer);
    }
    local(site, request, readers)
}

/// Returns the viewer with this token.
fn by_token(
    site: &Site,
    request: &Request,
    writers: &mut Writers,
    token: &str,
) -> Result<Viewer, PageError> {
    let now = clock::instant();
    let digest = SecretDigest::of(token);
    let found = writers.read(0, |conn| {
        tokens::find(conn, digest.lookup()).during("look for the token")
    });
    let found = match found {
        Ok(found) => found.filter(|found| digest.is(&found.digest)),
        Err(error) => return recalled(site, &digest, error),
    };
    let Some(found) = found else {
        site.access.limiter.failed(request.client, now);
        site.access.known.forget(digest.as_str());
        return Err(PageError::WrongToken);
    };
    if found.is_stale {
        note(site, writers, |conn| tokens::touch(conn, found.id));
    }
    let limits = found.limits.as_deref().map(TokenLimits::of_column);
    let viewer = Viewer {
        name: found.name,
        role: Role::named(&found.role).unwrap_or(Role::Outsider),
        client: request.client,
        proof: Proof::Token(found.id),
        limits: limits.map(Arc::new),
    };
    site.access.known.remember(digest.as_str(), &viewer, now);
    Ok(viewer)
}

/// Returns the viewer with this session, if it has not ended.
fn by_session(
    site: &Site,
    request: &Request,
    writers: &mut Writers,
    secret: &str,
) -> Result<Option<Viewer>, PageError> {
    let now = clock::instant();
    let digest = SecretDigest::of(secret);
    let idle = site.access.settings.session_idle;
    let found = writers.read(0, |conn| {
        sessions::find(conn, digest.lookup(), idle).during("look for the session")
    });
    let found = match found {
        Ok(found) => found.filter(|found| digest.is(&found.digest)),
        Err(error) => return recalled(site, &digest, error).map(Some),
    };
    let Some(found) = found else {
        site.access.known.forget(digest.as_str());
        return Ok(None);
    };
    if found.is_stale {
        note(site, writers, |conn| {
            sessions::touch(conn, &[found.id])?;
            tokens::touch(conn, found.token_id)
        });
    }
    let viewer = Viewer {
        name: found.name,
        role: Role::named(&found.role).unwrap_or(Role::Outsider),
        client: request.client,
        proof: Proof::Session(found.id),
        limits: None, // a token with limits signs no one in
    };
    site.access.known.remember(digest.as_str(), &viewer, now);
    Ok(Some(viewer))
}

/// Returns who it was lately, if the database is away: they see what was last seen.
fn recalled(site: &Site, digest: &SecretDigest, error: Error) -> Result<Viewer, PageError> {
    let recalled = site.access.known.recall(digest.as_str(), clock::instant());
    recalled.ok_or_else(|| error.into())
}

/// Notes a use. One that could not be noted is noted with a later one: while the database does not
/// accept changes, the other requests do not wait for that too.
fn note(site: &Site, writers: &mut Writers, touch: impl FnOnce(&mut Conn<'_>) -> QueryResult<()>) {
    if !site.access.may_note(clock::instant()) {
        return;
    }
    if let Err(error) = writers.write(0, |conn| touch(conn).during("note the use")) {
        log::debug!("web: the use of a token was not noted: {error}");
        site.access.could_not_note(clock::instant());
    }
}

/// Returns the viewer on this host who need not sign in, or an outsider.
fn local(site: &Site, request: &Request, readers: &mut Readers) -> Result<Viewer, PageError> {
    let outsider = Viewer::outsider(request.client);
    if !site.access.may_be_local() || tokens_exist(site, readers)? {
        return Ok(outsider);
    }
    if request.credentials.is_forwarded {
        return Err(PageError::Refused(
            "A proxy has passed this request on, and this server is not set up for one: \
             it would take everyone for a user of its own host. Make a token with \
             `windlass web tokens add`, or name the proxy in `trusted_proxies`."
                .to_owned(),
        ));
    }
    Ok(Viewer {
        name: site.access.settings.local_name.clone(),
        role: Role::Operator,
        client: request.client,
        proof: Proof::Local,
        limits: None,
    })
}

/// Returns whether there are tokens: then everyone must sign in.
pub(crate) fn tokens_exist(site: &Site, readers: &mut Readers) -> Result<bool, PageError> {
    if let Some(exist) = site.access.fresh_tokens(clock::instant()) {
        return Ok(exist);
    }
    let read = readers.read(0, READ, |conn| {
        tokens::exist(conn).during("look for tokens")
    });
    match read {
        Ok(exist) => {
            site.access.set_tokens(exist, clock::instant());
            Ok(exist)
        }
        Err(failure) => match (failure, site.access.last_tokens()) {
            (ReadFailure::Lost(_) | ReadFailure::Late | ReadFailure::Cut, Some(exist)) => Ok(exist),
            (failure, _) => Err(failure.into()),
        },
    }
}

// --- Signing in with a token, and out ---

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
    let found = writers.read(0, |conn| {
        tokens::find(conn, digest.lookup()).during("look for the token")
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
        web::sign_in(conn, &session).during("start a session")
    })?;
    let back = http::local(request.form.get("back").unwrap_or("/"));
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
            sessions::delete(conn, id).during("end the session")
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
