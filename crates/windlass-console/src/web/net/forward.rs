//! The way of a request to the SQL threads, and of its response back.

use crate::web::access::secret::SecretDigest;
use crate::web::access::viewer::Viewer;
use crate::web::api::{self, job_request};
use crate::web::dispatch::queue::{self, RequestAnswer, Work};
use crate::web::http::{PageError, Request, Response, Verb};
use crate::web::net::intake;
use crate::web::site::Site;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use crossbeam_channel::{Sender, TrySendError};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};
use windlass::internal::clock;

/// The time limit for the body of a request.
const BODY: Duration = Duration::from_secs(10);

/// The most bytes of a form: a thousand selected jobs, with much room.
const BODY_BYTES: usize = 256 * 1024;

/// The time limit for a response, from the queue to the last panel.
const ANSWER: Duration = Duration::from_secs(20);

/// The most bytes of a list of jobs.
const LIST_BYTES: usize = 4 * 1024 * 1024;

/// The most lists that are read and enqueued at once.
const LISTS: usize = 32;

/// The most requests that ask again at once after a wait: the queue needs slots for others, too.
const ASKS: usize = 16;

/// The most searches in arguments at once: each takes a thread for some time.
const SEARCHES: usize = 1;

/// The pause of a woken request before it asks once more, if the job was still open: at first, and
/// at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// The state of the network thread: the site, the queue of requests, and the limits.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) site: Arc<Site>,
    pub(crate) queue: Sender<Work>,
    lists: Semaphore,
    asks: Semaphore,
    /// Searches in arguments that run at once.
    searches: Semaphore,
}

impl Engine {
    pub(crate) fn new(site: Arc<Site>, queue: Sender<Work>) -> Self {
        Engine {
            site,
            queue,
            lists: Semaphore::new(LISTS),
            asks: Semaphore::new(ASKS),
            searches: Semaphore::new(SEARCHES),
        }
    }

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

pub(crate) type HttpResponse = axum::http::Response<Body>;

/// Sends a request to the SQL threads, and waits for its response.
pub(crate) async fn page(
    State(engine): State<Arc<Engine>>,
    Extension(Peer(peer)): Extension<Peer>,
    request: axum::http::Request<Body>,
) -> HttpResponse {
    let is_api = request.uri().path().contains("/v1/");
    match respond(&engine, peer, request).await {
        Ok(response) => response,
        Err(refused) if is_api => sent(api::of_text(refused)),
        Err(refused) => sent(refused),
    }
}

async fn respond(
    engine: &Engine,
    peer: SocketAddr,
    request: axum::http::Request<Body>,
) -> Result<HttpResponse, Response> {
    let (parts, body) = request.into_parts();
    let mut request = intake::screen(&engine.site, &parts, peer.ip())?;
    let signs_in = request.verb == Verb::Post && request.path == "/login";
    // A token that was proven lately is no attempt, whatever others of its address try.
    let bearer = request.credentials.bearer.as_deref();
    let is_known = bearer.is_some_and(|token| engine.is_known(token));
    let is_attempt = bearer.is_some() && !is_known || signs_in;
    let limiter = &engine.site.access.limiter;
    if is_attempt && let Some(wait) = limiter.refuses(request.client, clock::instant()) {
        let viewer = Viewer::outsider(request.client);
        let error = PageError::TooMany(wait);
        return Err(queue::page(&engine.site, &request, &viewer, error));
    }
    let takes_a_list = api::takes_a_list(&request.path);
    if takes_a_list && !is_known {
        prove(engine, &request).await?;
    }
    let (most, _slot) = match takes_a_list {
        true => (LIST_BYTES, Some(free_slot(&engine.lists).await?)),
        false => (BODY_BYTES, None),
    };
    let read = tokio::time::timeout(BODY, axum::body::to_bytes(body, most)).await;
    match read {
        Ok(Ok(body)) => intake::fill(&mut request, body),
        Ok(Err(_)) => {
            let text = format!("The body has more than {most} bytes, or did not come whole.\n");
            return Err(Response::text(text).with_status(413));
        }
        Err(_) => return Err(Response::text("The request took too long.\n").with_status(408)),
    }
    match request.query.get("wait").map(str::to_owned) {
        Some(wait) if api::is_api(&request.path) => ended(engine, request, &wait).await,
        _ => answer(engine, request).await,
    }
}

/// Finds out whom a request is from, before its body is read: that may be large.
async fn prove(engine: &Engine, request: &Request) -> Result<(), Response> {
    let asked = Request {
        verb: Verb::Get,
        path: job_request::PATH.to_owned(),
        ..request.clone()
    };
    match ask(engine, asked).await? {
        RequestAnswer::Response(response) if response.status == 200 => Ok(()),
        RequestAnswer::Response(refused) => Err(refused),
        RequestAnswer::Live(_) => Err(busy("This is no page.\n")),
    }
}

/// Returns one of the slots, when it is free.
async fn free_slot(slots: &Semaphore) -> Result<SemaphorePermit<'_>, Response> {
    match tokio::time::timeout(BODY, slots.acquire()).await {
        Ok(Ok(slot)) => Ok(slot),
        _ => Err(busy("This server is busy. Try again in a moment.\n")),
    }
}

/// Returns whether a request searches the arguments of jobs, which takes much processor time.
fn is_search(request: &Request) -> bool {
    let text = request.query.get("args").unwrap_or_default();
    request.verb == Verb::Get && !text.trim().is_empty()
}

async fn answer(engine: &Engine, request: Request) -> Result<HttpResponse, Response> {
    // The others wait here, and leave the SQL threads to other pages.
    let _slot = match is_search(&request) {
        true => Some(free_slot(&engine.searches).await?),
        false => None,
    };
    ask(engine, request).await.map(|answer| match answer {
        RequestAnswer::Response(response) => sent(response),
        RequestAnswer::Live(messages) => stream(messages),
    })
}

async fn ask(engine: &Engine, request: Request) -> Result<RequestAnswer, Response> {
    let (reply, answer) = oneshot::channel();
    let work = Work {
        request,
        queued_at: clock::instant(),
        reply,
    };
    match engine.queue.try_send(work) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => {
            return Err(busy("This server is busy. Try again in a moment.\n"));
        }
        Err(TrySendError::Disconnected(_)) => return Err(busy("This server is stopping.\n")),
    }
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        _ => Err(busy("The response took too long. Try again in a moment.\n")),
    }
}

/// Answers when the job has ended, or the time is over.
async fn ended(engine: &Engine, request: Request, wait: &str) -> Result<HttpResponse, Response> {
    // A wrong time is refused by the page.
    let time = job_request::poll_time(Some(wait)).unwrap_or_default();
    let deadline = clock::deadline(time);
    let [mut pause, longest] = PAUSES;
    let mut response = again(engine, &request).await?;
    loop {
        let left = deadline.saturating_duration_since(clock::instant());
        let job = response.polls_for.filter(|_| !left.is_zero());
        let poll = job.and_then(|job| engine.site.polls.of(request.database, job));
        let Some(poll) = poll else {
            return Ok(sent(response));
        };
        let is_woken = tokio::time::timeout(left, poll).await.is_ok();
        // If it cannot be asked for again now, what was seen before is an answer, too.
        response = again(engine, &request).await.unwrap_or(response);
        // The job may be read from a replica, which is behind the database that has its end.
        if is_woken && response.polls_for.is_some() {
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(longest);
        }
    }
}

/// Asks for the job, beside a few others at once.
async fn again(engine: &Engine, request: &Request) -> Result<Response, Response> {
    let _slot = free_slot(&engine.asks).await?;
    match ask(engine, request.clone()).await? {
        RequestAnswer::Response(response) => Ok(response),
        RequestAnswer::Live(_) => Err(busy("This is no page.\n")),
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
        polls_for: _,
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
