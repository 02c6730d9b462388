//! The thread with the network: accepts connections, and serves each until it ends.

use crate::web::assets::Asset;
use crate::web::http::Response;
use crate::web::net::forward::{Engine, HttpResponse, Peer, page, sent};
use crate::web::net::intake;
use crate::web::net::stream::GuardedStream;
use crate::web::readiness;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::routing::{any, get};
use axum::{Extension, Router};
use hyper::body::{Bytes, Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::future::Future as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use windlass::internal::process::base::stop;
use windlass::processes::HealthCheck;
use windlass::{Error, Result};

/// The time limit for the head of a request, also for the first byte of the next one.
const HEAD: Duration = Duration::from_secs(15);

/// The most bytes of the head of a request.
const HEAD_BYTES: usize = 32 * 1024;

/// The most connections at once. For more, those that have been idle for longest are closed.
const CONNECTIONS: usize = 512;

/// The number of further connections, for one request each, and the time limit of each.
const RESERVE: usize = 32;
const BRIEF: Duration = Duration::from_secs(10);

/// The longest wait for the end of an idle connection, which leaves its slot to a new one.
const ROOM: Duration = Duration::from_secs(1);

/// The time that responses under way may still take after a stop.
const DRAIN: Duration = Duration::from_secs(3);

/// The pause after a connection could not be accepted, mostly because too many files are open.
const REST: Duration = Duration::from_millis(100);

/// Starts the thread; it ends when `stop` becomes `true`.
pub(crate) fn start(
    engine: Arc<Engine>,
    listener: TcpListener,
    stop: watch::Receiver<bool>,
) -> Result<JoinHandle<()>> {
    let failed = |source| Error::Io {
        action: "serve on",
        path: PathBuf::from("the network"),
        source,
    };
    listener.set_nonblocking(true).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(failed)?;
    stop::spawn("web", move || {
        if let Err(error) = runtime.block_on(serve(engine, listener, stop)) {
            log::error!("web: cannot serve: {error}");
        }
        runtime.shutdown_background();
    })
}

async fn serve(
    engine: Arc<Engine>,
    listener: TcpListener,
    stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let accepting = Accepting {
        router: router(engine),
        slots: Arc::clone(&slots),
        reserve: Arc::new(Semaphore::new(RESERVE)),
        seats: Arc::default(),
        stop: stop.clone(),
    };
    let accepting = tokio::spawn(accepting.run(listener));
    stopped(stop).await;
    accepting.abort();
    let all = u32::try_from(CONNECTIONS).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(DRAIN, slots.acquire_many(all)).await;
    Ok(())
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // A dropped sender is a stop, too.
    let _ = stop.wait_for(|is_stopped| *is_stopped).await;
}

/// The state of the loop that accepts connections.
struct Accepting {
    router: Router,
    slots: Arc<Semaphore>,
    /// Places for one request each, when all others are busy.
    reserve: Arc<Semaphore>,
    seats: Arc<Seats>,
    stop: watch::Receiver<bool>,
}

impl Accepting {
    async fn run(self, listener: tokio::net::TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.serve(stream, Peer(peer)).await,
                // Such as too many open files: it ends when other connections do.
                Err(error) => {
                    log::debug!("web: cannot accept a connection: {error}");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    /// Returns a slot for a connection, and whether it is one for one request. If there are too many, the
    /// connection that has been idle for longest ends: a probe is answered, however many are kept open.
    async fn slot(&self) -> Option<(OwnedSemaphorePermit, bool)> {
        if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
            return Some((slot, false));
        }
        if self.seats.make_room() {
            let slot = Arc::clone(&self.slots).acquire_owned();
            if let Ok(Ok(slot)) = tokio::time::timeout(ROOM, slot).await {
                return Some((slot, false));
            }
        }
        let slot = Arc::clone(&self.reserve).try_acquire_owned();
        slot.ok().map(|slot| (slot, true))
    }

    async fn serve(&self, stream: tokio::net::TcpStream, peer: Peer) {
        let Some((slot, is_reserve)) = self.slot().await else {
            log::debug!("web: too many connections, one was closed");
            return;
        };
        let _ = stream.set_nodelay(true);
        let router = self.router.clone().layer(Extension(peer));
        let stop = self.stop.clone();
        // From now on, it may have to give way.
        let seat = (!is_reserve).then(|| Arc::new(self.seats.take()));
        tokio::spawn(async move {
            let is_kept = seat.is_some();
            let served = connection(GuardedStream::new(stream), router, stop, seat);
            if is_kept {
                served.await;
            } else {
                let _ = tokio::time::timeout(BRIEF, served).await;
            }
            drop(slot);
        });
    }
}

/// Serves a connection until it ends, or is to give way. Without a seat, it has one request.
async fn connection(
    stream: GuardedStream,
    router: Router,
    stop: watch::Receiver<bool>,
    seat: Option<Arc<Seat>>,
) {
    let is_kept = seat.is_some();
    let service = TowerToHyperService::new(router);
    let of = seat.clone();
    let service = service_fn(move |request| {
        let serving = of.as_ref().map(|seat| seat.serve());
        let answer = service.call(request);
        async move {
            let answer = answer.await?;
            Ok::<_, std::convert::Infallible>(match serving {
                Some(serving) => answer.map(|body| Body::new(ServedBody::new(body, serving))),
                None => answer,
            })
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(is_kept)
        .serve_connection(TokioIo::new(stream), service);
    let gives_way = async {
        match &seat {
            Some(seat) => seat.gives_way().await,
            None => std::future::pending().await,
        }
    };
    let (mut served, mut stopping) = (pin!(served), pin!(stopped(stop)));
    let mut gives_way = pin!(gives_way);
    let mut is_stopping = false;
    let ended = std::future::poll_fn(|cx| {
        if !is_stopping && stopping.as_mut().poll(cx) == Poll::Ready(()) {
            is_stopping = true;
            served.as_mut().graceful_shutdown();
        }
        if gives_way.as_mut().poll(cx) == Poll::Ready(()) {
            return Poll::Ready(Ok(()));
        }
        served.as_mut().poll(cx)
    });
    if let Err(error) = ended.await {
        log::debug!("web: a connection ended: {error}");
    }
}

// --- Answers on the thread of the network itself ---

/// Nothing but this site, no inline script or style.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

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
    sent(readiness::from_memory(&engine.site.processes, check))
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

// --- The connections without a request, of which one gives way when there are too many ---

/// The connections that are idle, the longest first.
#[derive(Debug, Default)]
pub(crate) struct Seats(Mutex<IdleSeats>);

#[derive(Debug, Default)]
struct IdleSeats {
    /// The number of the next one.
    next: u64,
    idle: BTreeMap<u64, Arc<Notify>>,
}

impl Seats {
    fn idle(&self) -> MutexGuard<'_, IdleSeats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, which has no request yet.
    pub(crate) fn take(self: &Arc<Self>) -> Seat {
        let seat = Seat {
            seats: Arc::clone(self),
            position: Mutex::new(None),
            gives_way: Arc::new(Notify::new()),
        };
        seat.rest();
        seat
    }

    /// Ends the connection that has been idle for longest. Returns `false` if none is.
    pub(crate) fn make_room(&self) -> bool {
        let first = self.idle().idle.pop_first();
        first.is_some_and(|(_, gives_way)| {
            gives_way.notify_one();
            true
        })
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    /// Its number while it is idle.
    position: Mutex<Option<u64>>,
    gives_way: Arc<Notify>,
}

impl Seat {
    fn rest(&self) {
        let mut idle = self.seats.idle();
        let number = idle.next;
        idle.next += 1;
        idle.idle.insert(number, Arc::clone(&self.gives_way));
        *self.position.lock().unwrap_or_else(PoisonError::into_inner) = Some(number);
    }

    fn work(&self) {
        let position = self
            .position
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(number) = position {
            self.seats.idle().idle.remove(&number);
        }
    }

    /// Marks the connection as busy, until what is returned is dropped.
    pub(crate) fn serve(self: &Arc<Self>) -> Serving {
        self.work();
        Serving(Arc::clone(self))
    }

    /// Ends when the connection is to give way.
    pub(crate) async fn gives_way(&self) {
        self.gives_way.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.work();
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Serving(Arc<Seat>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.rest();
    }
}

/// The body of an answer, until whose end the connection is busy.
pub(crate) struct ServedBody {
    body: Body,
    _serving: Serving,
}

impl ServedBody {
    pub(crate) fn new(body: Body, serving: Serving) -> Self {
        ServedBody {
            body,
            _serving: serving,
        }
    }
}

impl hyper::body::Body for ServedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_has_been_idle_for_longest_gives_way() {
        let seats = Arc::new(Seats::default());
        assert!(!seats.make_room());
        let (one, two) = (Arc::new(seats.take()), Arc::new(seats.take()));
        let serving = one.serve();
        assert!(
            seats.make_room() && !seats.make_room(),
            "one is busy, two gives way"
        );
        drop(serving);
        drop(two);
        assert!(seats.make_room(), "one is idle again");
        drop(one);
        assert!(!seats.make_room());
    }
}
