//! The thread that runs operations: changes of many jobs, a batch at a time.
//!
//! Any number of servers and supervisors may do so. If this one dies within a batch, the batch has no
//! effect, and another process runs it.

use crate::clock;
use crate::db::{Database, own};
use crate::error::{ErrorContext as _, Result};
use crate::operation::{OperationTurns, pause_after};
use crate::process::base::stop;
use crate::web::reads::ChangeConnection;
use crate::web::site::Site;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The time between two looks for operations that other processes have started.
const LOOK: Duration = Duration::from_secs(2);

/// The time limit of one database's turn, before that of the next.
const TURN: Duration = Duration::from_millis(500);

/// The time limit for connecting.
const CONNECT: Duration = Duration::from_secs(2);

/// The pause after a failure.
const REST: Duration = Duration::from_secs(5);

/// One database, and what is known of it.
struct Operated {
    database: Database,
    connection: Option<ChangeConnection>,
    turns: OperationTurns,
    /// After a failure: until when it is left alone.
    rests_until: Option<Instant>,
}

/// Starts the thread; it ends when `stop` becomes `true`.
pub(crate) fn start(
    site: &Arc<Site>,
    woken: Receiver<()>,
    stop: watch::Receiver<bool>,
) -> Result<JoinHandle<()>> {
    let sources = site.sources.iter();
    let mut databases: Vec<Operated> = sources
        .map(|source| Operated {
            database: source.database.clone(),
            connection: None,
            turns: OperationTurns::default(),
            rests_until: None,
        })
        .collect();
    let site = Arc::clone(site);
    stop::spawn("web-operations", move || {
        while !*stop.borrow() {
            let mut has_more = false;
            for (operated, source) in databases.iter_mut().zip(&site.sources) {
                if *stop.borrow() {
                    break;
                }
                let run = operated.turn(&woken);
                if run.batches > 0 {
                    source.forget();
                }
                has_more |= run.has_more;
            }
            if !has_more {
                match woken.recv_timeout(LOOK) {
                    Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        }
    })
}

/// The result of the turn of a database.
#[derive(Debug, Default)]
struct TurnResult {
    batches: u64,
    /// True if there may be more to run at once.
    has_more: bool,
}

impl Operated {
    /// Runs up to one batch of each open operation.
    fn turn(&mut self, woken: &Receiver<()>) -> TurnResult {
        let now = clock::instant();
        if self.rests_until.is_some_and(|until| now < until) {
            return TurnResult::default();
        }
        match self.run(woken) {
            Ok(run) => {
                self.rests_until = None;
                run
            }
            Err(error) => {
                // Once for each outage: the pages report it to viewers.
                let level = match self.rests_until {
                    None => log::Level::Warn,
                    Some(_) => log::Level::Debug,
                };
                log::log!(level, "web: cannot run operations, trying again: {error}");
                self.connection = None;
                self.rests_until = now.checked_add(REST);
                TurnResult::default()
            }
        }
    }

    fn run(&mut self, woken: &Receiver<()>) -> Result<TurnResult> {
        let kept = match self.connection.take().filter(ChangeConnection::is_current) {
            Some(kept) => kept,
            None => ChangeConnection::open(&self.database, CONNECT)?,
        };
        let connection = &mut self.connection.insert(kept).connection;
        let (start, turns) = (clock::instant(), &mut self.turns);
        let passed_over = turns.passed_over();
        let open = turns
            .open(&mut own(connection))
            .during("look for operations")?;
        let mut batches = 0;
        for id in open {
            let batch_start = clock::instant();
            let write_turn = connection.write_turn();
            let advance = turns
                .step(&mut own(connection), id)
                .during("run an operation")?;
            drop(write_turn);
            batches += u64::from(advance.is_some());
            // Otherwise other writers of a SQLite file, such as a stop of the operation, would wait
            // until it has ended. A wake ends the pause, also that of a stop.
            let _ = woken.recv_timeout(pause_after(batch_start.elapsed()));
            if start.elapsed() >= TURN {
                return Ok(TurnResult {
                    batches,
                    has_more: true,
                });
            }
        }
        // Behind those that are passed over from now on, there may be others.
        let has_more = batches > 0 || turns.passed_over() != passed_over;
        Ok(TurnResult { batches, has_more })
    }
}
