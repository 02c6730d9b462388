//! The threads, and the queue before them.

use crate::clock;
use crate::error::Result;
use crate::process::base::stop;
use crate::web::dispatch::queue::PageDispatcher;
use crate::web::http::request::Request;
use crate::web::http::response::Response;
use crate::web::reads::shared::Renewal;
use crate::web::request::route::Route;
use crate::web::site::Site;
use axum::body::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// How many requests wait at most; more are refused at once.
pub(crate) const QUEUE: usize = 64;

/// How long a request waits at most for a thread.
pub(crate) const QUEUED: Duration = Duration::from_secs(5);

/// A request for the threads.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) request: Request,
    pub(crate) queued_at: Instant,
    pub(crate) reply: oneshot::Sender<RequestAnswer>,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum RequestAnswer {
    Response(Response),
    /// The messages of live updates, for as long as the page is open.
    Live(mpsc::Receiver<Bytes>),
}

/// Starts the threads. They end when all senders are dropped.
pub(crate) fn start(
    site: &Arc<Site>,
    routes: &'static [Route],
    count: usize,
    renewals: &Sender<Renewal>,
) -> Result<(Sender<Work>, Vec<JoinHandle<()>>)> {
    let (sender, queue) = bounded(QUEUE);
    let mut handles = Vec::new();
    for _ in 0..count.max(1) {
        let dispatcher = PageDispatcher::new(site, routes, renewals.clone());
        let queue = queue.clone();
        handles.push(stop::spawn("web-sql", move || work(dispatcher, &queue))?);
    }
    Ok((sender, handles))
}

fn work(mut dispatcher: PageDispatcher, queue: &Receiver<Work>) {
    while let Ok(work) = queue.recv() {
        let waited = clock::instant().saturating_duration_since(work.queued_at);
        // The client has gone, or was refused already.
        if work.reply.is_closed() || waited > QUEUED {
            continue;
        }
        let answer = match dispatcher.open_page(&work.request) {
            Some(messages) => RequestAnswer::Live(messages),
            None => RequestAnswer::Response(dispatcher.answer(&work.request)),
        };
        let _ = work.reply.send(answer);
    }
}
