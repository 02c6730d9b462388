//! Requests at a steady rate, whatever the responses take.

use crate::clock;
use crate::laboratory::web::addresses::BenchPage;
use crate::laboratory::web::client;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// So many responses may be under way.
const CLIENTS: usize = 16;

/// The results of the requests of a page.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard {
    /// In ms, from the moment at which each was to be sent.
    pub(crate) millis: Vec<f64>,
    /// Requests without a complete page, and what was wrong with the last one.
    pub(crate) errors: usize,
    pub(crate) wrong: String,
    /// Panels that were not read in time.
    pub(crate) late: usize,
}

impl Heard {
    /// Adds what was heard elsewhere.
    pub(crate) fn add(&mut self, other: Heard) {
        self.millis.extend(other.millis);
        self.errors += other.errors;
        self.late += other.late;
        if !other.wrong.is_empty() {
            self.wrong = other.wrong;
        }
    }
}

/// Requests of all pages in turn.
#[derive(Debug)]
pub(crate) struct Traffic {
    address: SocketAddr,
    pages: Vec<BenchPage>,
    /// Between two requests.
    pause: Duration,
    is_on: AtomicBool,
    is_over: AtomicBool,
    sent: AtomicUsize,
    heard: Mutex<Vec<Heard>>,
}

impl Traffic {
    pub(crate) fn new(address: SocketAddr, pages: Vec<BenchPage>, rate: f64) -> Self {
        Traffic {
            address,
            heard: Mutex::new(vec![Heard::default(); pages.len()]),
            pages,
            pause: Duration::from_secs_f64(1.0 / rate.max(0.001)),
            is_on: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            sent: AtomicUsize::new(0),
        }
    }

    /// Starts the threads, which wait until it is switched on.
    pub(crate) fn start<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let (sender, due) = bounded(CLIENTS * 64);
        for _ in 0..CLIENTS {
            let due = due.clone();
            scope.spawn(move || self.request(&due));
        }
        scope.spawn(move || self.tick(&sender));
    }

    /// Sends requests from now on, or none.
    pub(crate) fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// Ends the threads.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns how often each page was requested at least.
    pub(crate) fn requests(&self) -> usize {
        self.sent.load(Ordering::Relaxed) / self.pages.len().max(1)
    }

    fn tick(&self, sender: &Sender<(usize, Instant)>) {
        let mut next = clock::instant();
        while !self.is_over.load(Ordering::Relaxed) {
            let now = clock::instant();
            if !self.is_on.load(Ordering::Relaxed) {
                next = now;
                clock::nap(Duration::from_millis(1));
            } else if now < next {
                clock::nap((next - now).min(Duration::from_millis(20)));
            } else {
                let number = self.sent.fetch_add(1, Ordering::Relaxed);
                if sender.send((number, next)).is_err() {
                    return;
                }
                next += self.pause;
            }
        }
    }

    fn request(&self, due: &Receiver<(usize, Instant)>) {
        for (number, due) in due {
            let page = number % self.pages.len();
            let paths = &self.pages[page].paths;
            let path = &paths[number / self.pages.len() % paths.len()];
            let answer = client::get(self.address, path);
            let took = clock::instant().saturating_duration_since(due);
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            let heard = &mut heard[page];
            heard.millis.push(took.as_secs_f64() * 1e3);
            match answer {
                Ok(answer) => {
                    let late = answer.text.matches(LATE).count();
                    heard.late += late;
                    if answer.status != 200 || answer.text.contains(FAILED) {
                        heard.errors += 1;
                        heard.wrong = format!("{path}: {}", answer.status);
                    } else if late > 0 {
                        heard.wrong = format!("{path}: a panel is late");
                    }
                }
                Err(error) => {
                    heard.errors += 1;
                    heard.wrong = error.to_string();
                }
            }
        }
    }

    /// Returns what came of the requests, page by page.
    pub(crate) fn heard(&self) -> Vec<(String, Heard)> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let names = self.pages.iter().map(|page| page.name.clone());
        names.zip(heard.iter().cloned()).collect()
    }
}

/// In the place of a panel that was not read in time.
const LATE: &str = "This panel was not ready within";

/// In the place of a panel that failed.
const FAILED: &str = "This panel is missing:";
