//! The thread with the network: accepts connections, and serves each until it ends.

use crate::error::{Error, Result};
use crate::process::base::stop;
use crate::web::net::forward::{Engine, Peer};
use crate::web::net::router;
use crate::web::net::seats::{Seat, Seats, ServedBody};
use crate::web::net::stream::GuardedStream;
use axum::Router;
use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How long a client may take to send the head of a request, also the first byte of the next one.
const HEAD: Duration = Duration::from_secs(15);

/// The most bytes of the head of a request.
const HEAD_BYTES: usize = 32 * 1024;

/// The most connections at once. For more, those that have been idle for longest are closed.
const CONNECTIONS: usize = 512;

/// How many more are open for one request each, and for how long.
const RESERVE: usize = 32;
const BRIEF: Duration = Duration::from_secs(10);

/// How long the end of a connection that gives way may take.
const ROOM: Duration = Duration::from_secs(1);

/// How long responses that are under way may continue after a stop.
const DRAIN: Duration = Duration::from_secs(3);

/// How long to wait after a connection could not be accepted: too many files are open, mostly.
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
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let accepting = Accepting {
        router: router::router(engine),
        places: Arc::clone(&places),
        reserve: Arc::new(Semaphore::new(RESERVE)),
        seats: Arc::default(),
        stop: stop.clone(),
    };
    let accepting = tokio::spawn(accepting.run(listener));
    stopped(stop).await;
    accepting.abort();
    let all = u32::try_from(CONNECTIONS).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(DRAIN, places.acquire_many(all)).await;
    Ok(())
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // A dropped sender is a stop, too.
    let _ = stop.wait_for(|is_stopped| *is_stopped).await;
}

/// What accepts connections.
struct Accepting {
    router: Router,
    places: Arc<Semaphore>,
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

    /// Returns a place for a connection, and whether it is one for one request. If there are too many, the
    /// connection that has been idle for longest ends: a probe is answered, however many are kept open.
    async fn place(&self) -> Option<(OwnedSemaphorePermit, bool)> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some((place, false));
        }
        if self.seats.make_room() {
            let place = Arc::clone(&self.places).acquire_owned();
            if let Ok(Ok(place)) = tokio::time::timeout(ROOM, place).await {
                return Some((place, false));
            }
        }
        let place = Arc::clone(&self.reserve).try_acquire_owned();
        place.ok().map(|place| (place, true))
    }

    async fn serve(&self, stream: tokio::net::TcpStream, peer: Peer) {
        let Some((place, is_reserve)) = self.place().await else {
            log::debug!("web: too many connections, one was closed");
            return;
        };
        let _ = stream.set_nodelay(true);
        let router = self.router.clone().layer(axum::Extension(peer));
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
            drop(place);
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
