//! What is answered on the thread of the network itself, and the way of everything else to the SQL
//! threads.

use crate::clock;
use crate::process::base::health::state::HealthCheck;
use crate::web::access::secret::SecretDigest;
use crate::web::access::viewer::Viewer;
use crate::web::assets::Asset;
use crate::web::http::intake;
use crate::web::http::request::{Request, Verb};
use crate::web::http::response::Response;
use crate::web::pages::error;
use crate::web::probes::answer;
use crate::web::site::Site;
use crate::web::sql::page_error::PageError;
use crate::web::sql::workers::{RequestAnswer, Work};
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::routing::{any, get};
use axum::{Extension, Router};
use crossbeam_channel::{Sender, TrySendError};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long the body of a request may take.
const BODY: Duration = Duration::from_secs(10);

/// The most bytes of a form: a thousand selected jobs, with much room.
const BODY_BYTES: usize = 256 * 1024;

/// How long a response may take, from the queue to the last panel.
const ANSWER: Duration = Duration::from_secs(20);

/// Nothing but this site, no inline script or style.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What the thread of the network uses.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) site: Arc<Site>,
    pub(crate) queue: Sender<Work>,
}

impl Engine {
    /// Returns whether this token was proven lately.
    fn is_known(&self, token: &str) -> bool {
        let digest = SecretDigest::of(token);
        let known = &self.site.access.known;
        known.recall(digest.as_str(), clock::instant()).is_some()
    }
}

/// The address of the client's end of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

type HttpResponse = axum::http::Response<Body>;

/// Returns the routes of the network's thread, with and without the base path: a proxy may remove
/// it or not.
pub(crate) fn router(engine: Arc<Engine>) -> Router {
    let inner = Router::new()
        .route("/livez", get(livez))
        .route("/startedz", get(startedz))
        .route("/readyz", get(readyz))
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
        .route("/assets/{name}", get(asset))
        .fallback(page)
        .with_state(Arc::clone(&engine));
    let base = engine.site.settings.base_path.clone();
    let outer = if base.is_empty() {
        inner
    } else {
        // `nest` leaves this one out.
        let root = Router::new().route(&format!("{base}/"), any(page));
        root.with_state(engine)
            .nest(&base, inner.clone())
            .fallback_service(inner)
    };
    outer.layer(map_response(secured))
}

/// Adds the headers that all responses have.
async fn secured(mut response: HttpResponse) -> HttpResponse {
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        // `no-referrer` would make browsers send `Origin: null` with forms.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-frame-options", "DENY"),
    ] {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Answered here, because the threads of the database may all wait for it.
async fn livez(State(engine): State<Arc<Engine>>) -> HttpResponse {
    probed(&engine, HealthCheck::Live)
}

async fn startedz(State(engine): State<Arc<Engine>>) -> HttpResponse {
    probed(&engine, HealthCheck::Started)
}

/// Without processes of its own, the server asks the database.
async fn readyz(
    State(engine): State<Arc<Engine>>,
    peer: Extension<Peer>,
    request: axum::http::Request<Body>,
) -> HttpResponse {
    if engine.site.processes.is_empty() {
        page(State(engine), peer, request).await
    } else {
        probed(&engine, HealthCheck::Ready)
    }
}

fn probed(engine: &Engine, check: HealthCheck) -> HttpResponse {
    sent(answer::from_memory(&engine.site.processes, check))
}

async fn asset(
    State(engine): State<Arc<Engine>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> HttpResponse {
    let Some(asset) = engine.site.assets.named(&name) else {
        return sent(Response::text("There is no such file.\n").with_status(404));
    };
    let Asset {
        content_type,
        plain,
        gzipped,
        ..
    } = asset;
    let cached = |response: Response| {
        sent(
            response
                .with_header("cache-control", "public, max-age=31536000, immutable")
                .with_header("vary", "accept-encoding"),
        )
    };
    if intake::accepts_gzip(&headers) && !gzipped.is_empty() {
        let compressed = Response::of_type(content_type, gzipped.clone());
        cached(compressed.with_header("content-encoding", "gzip"))
    } else {
        cached(Response::of_type(content_type, plain.to_vec()))
    }
}

/// Sends a request to the SQL threads, and waits for its response.
async fn page(
    State(engine): State<Arc<Engine>>,
    Extension(Peer(peer)): Extension<Peer>,
    request: axum::http::Request<Body>,
) -> HttpResponse {
    let (parts, body) = request.into_parts();
    let mut request = match intake::screen(&engine.site, &parts, peer.ip()) {
        Ok(request) => request,
        Err(refused) => return sent(refused),
    };
    let signs_in = request.verb == Verb::Post && request.path == "/login";
    // A token that was proven lately is no attempt, whatever others of its address try.
    let bearer = request.credentials.bearer.as_deref();
    let is_attempt = bearer.is_some_and(|token| !engine.is_known(token)) || signs_in;
    let limiter = &engine.site.access.limiter;
    if is_attempt && let Some(wait) = limiter.refuses(request.client, clock::instant()) {
        let viewer = Viewer::outsider(request.client);
        let error = PageError::TooMany(wait);
        return sent(error::page(&engine.site, &request, &viewer, error));
    }
    let read = tokio::time::timeout(BODY, axum::body::to_bytes(body, BODY_BYTES)).await;
    match read {
        Ok(Ok(body)) => intake::fill(&mut request, &body),
        Ok(Err(_)) => return sent(Response::text("The form is too large.\n").with_status(413)),
        Err(_) => return sent(Response::text("The request took too long.\n").with_status(408)),
    }
    answer(&engine, request).await
}

async fn answer(engine: &Engine, request: Request) -> HttpResponse {
    let (reply, answer) = oneshot::channel();
    let work = Work {
        request,
        queued_at: clock::instant(),
        reply,
    };
    let refused = match engine.queue.try_send(work) {
        Ok(()) => None,
        Err(TrySendError::Full(_)) => Some("This server is busy. Try again in a moment.\n"),
        Err(TrySendError::Disconnected(_)) => Some("This server is stopping.\n"),
    };
    if let Some(refused) = refused {
        return sent(busy(refused));
    }
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(Ok(RequestAnswer::Response(response))) => sent(response),
        Ok(Ok(RequestAnswer::Live(messages))) => stream(messages),
        _ => sent(busy("The response took too long. Try again in a moment.\n")),
    }
}

/// Returns the response of live updates, which lasts as long as the page is open.
fn stream(messages: mpsc::Receiver<Bytes>) -> HttpResponse {
    let mut response = axum::http::Response::new(Body::from_stream(Messages(messages)));
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        // Makes nginx pass on each message at once.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// The messages of live updates as a stream.
struct Messages(mpsc::Receiver<Bytes>);

impl futures_core::Stream for Messages {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|message| message.map(Ok))
    }
}

fn busy(text: &str) -> Response {
    Response::text(text)
        .with_status(503)
        .with_header("retry-after", "1")
}

/// Returns a response in the type of the network's thread.
pub(crate) fn sent(response: Response) -> HttpResponse {
    let Response {
        status,
        headers,
        body,
    } = response;
    let mut sent = axum::http::Response::new(Body::from(Bytes::from(body)));
    *sent.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        // A value with a control character would be a defect; it is left out.
        if let Ok(value) = HeaderValue::from_str(&value) {
            sent.headers_mut()
                .append(HeaderName::from_static(name), value);
        }
    }
    sent
}
