//! The thread that runs operations: changes of many jobs, a chunk at a time.
//!
//! Any number of servers and supervisors may do so. If this one dies within a chunk, the chunk has no
//! effect, and another process runs it.

use crate::web::reads::Writers;
use crate::web::site::{Site, Source};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use windlass::Result;
use windlass::internal::clock;
use windlass::internal::error::ErrorContext as _;
use windlass::internal::operation::OperationTurns;
use windlass::internal::process::base::stop;

/// The time between two searches for operations that other processes have started.
const INTERVAL: Duration = Duration::from_secs(2);

/// The bounds of the pause after a chunk, which is half as long as the chunk.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// The pause after a failure.
const REST: Duration = Duration::from_secs(5);

/// The operations of one database.
#[derive(Default)]
struct Operated {
    turns: OperationTurns,
    /// After a failure: until when they are left alone.
    rests_until: Option<Instant>,
}

/// Starts the thread; it ends when `stop` becomes `true`.
pub(crate) fn start(
    site: &Arc<Site>,
    woken: Receiver<()>,
    stop: watch::Receiver<bool>,
) -> Result<JoinHandle<()>> {
    let site = Arc::clone(site);
    stop::spawn("web-operations", move || {
        let mut writers = Writers::new(&site);
        let mut all: Vec<Operated> = site.sources.iter().map(|_| Operated::default()).collect();
        while !*stop.borrow() {
            let (start, mut is_more) = (clock::instant(), false);
            for (database, (operated, source)) in all.iter_mut().zip(&site.sources).enumerate() {
                is_more |= !*stop.borrow() && operated.turn(&mut writers, (database, source));
            }
            // Otherwise other writers of a SQLite file, such as a stop of the operation, would wait
            // until it has ended. A wake ends the pause, also that of a stop.
            let pause = match is_more {
                true => (start.elapsed() / 2).clamp(PAUSE.0, PAUSE.1),
                false => INTERVAL,
            };
            if woken.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                break;
            }
        }
    })
}

impl Operated {
    /// Runs a chunk of the next operation. Returns whether there is more to run at once.
    fn turn(&mut self, writers: &mut Writers, (database, source): (usize, &Source)) -> bool {
        let now = clock::instant();
        if self.rests_until.is_some_and(|until| now < until) {
            return false;
        }
        let turn = writers.write(database, |conn| {
            self.turns.turn(conn).during("run an operation")
        });
        match turn {
            Ok(turn) => {
                self.rests_until = None;
                if turn.changed.is_some() {
                    source.forget();
                }
                turn.is_more
            }
            Err(error) => {
                // Once for each outage: the pages report it to viewers.
                let level = match self.rests_until {
                    None => log::Level::Warn,
                    Some(_) => log::Level::Debug,
                };
                log::log!(level, "web: cannot run operations, trying again: {error}");
                self.rests_until = now.checked_add(REST);
                false
            }
        }
    }
}
