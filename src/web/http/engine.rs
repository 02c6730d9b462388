//! The thread with the network: accepts connections, and serves each until it ends.

use crate::error::{Error, Result};
use crate::process::base::threads;
use crate::web::http::forward::{Engine, Peer};
use crate::web::http::router;
use crate::web::http::stream::GuardedStream;
use axum::Router;
use hyper::server::conn::http1;
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
use tokio::sync::{Semaphore, watch};

/// How long a client may take to send the head of a request, also the first byte of the next one.
const HEAD: Duration = Duration::from_secs(15);

/// The most bytes of the head of a request.
const HEAD_BYTES: usize = 32 * 1024;

/// The most connections at once; more are closed at once.
const CONNECTIONS: usize = 512;

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
    threads::spawn("web", move || {
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
    let router = router::router(engine);
    let accepting = tokio::spawn(accept(listener, router, Arc::clone(&places), stop.clone()));
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

async fn accept(
    listener: tokio::net::TcpListener,
    router: Router,
    places: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    log::debug!("web: too many connections, one was closed");
                    continue;
                };
                let _ = stream.set_nodelay(true);
                let router = router.clone().layer(axum::Extension(Peer(peer)));
                let stop = stop.clone();
                tokio::spawn(async move {
                    connection(GuardedStream::new(stream), router, stop).await;
                    drop(place);
                });
            }
            Err(error) => {
                log::debug!("web: cannot accept a connection: {error}");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// Serves one connection. After a stop, the response that is under way is completed.
async fn connection(stream: GuardedStream, router: Router, stop: watch::Receiver<bool>) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let (mut served, mut stopping) = (pin!(served), pin!(stopped(stop)));
    let mut is_stopping = false;
    let ended = std::future::poll_fn(|cx| {
        if !is_stopping && stopping.as_mut().poll(cx) == Poll::Ready(()) {
            is_stopping = true;
            served.as_mut().graceful_shutdown();
        }
        served.as_mut().poll(cx)
    });
    if let Err(error) = ended.await {
        log::debug!("web: a connection ended: {error}");
    }
}
