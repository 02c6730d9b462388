//! The thread that runs operations: changes of many jobs, a batch at a time.
//!
//! Any number of servers and supervisors may do so. If this one dies within a batch, the batch has no
//! effect, and another process runs it.

use crate::clock;
use crate::db::{Database, DbConnection, own};
use crate::error::Result;
use crate::operation::run::{OperationsRun, run_with};
use crate::operation::turns::OperationTurns;
use crate::process::base::threads;
use crate::web::site::Site;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often operations are looked for that other processes have started.
const LOOK: Duration = Duration::from_secs(2);

/// How long one database is worked on before the next.
const TURN: Duration = Duration::from_millis(500);

/// The time limit for connecting.
const CONNECT: Duration = Duration::from_secs(2);

/// How long to wait after a failure.
const REST: Duration = Duration::from_secs(5);

/// One database, and what is known of it.
struct Operated {
    database: Database,
    connection: Option<DbConnection>,
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
    threads::spawn("web-operations", move || {
        while !*stop.borrow() {
            let mut more = false;
            for (operated, source) in databases.iter_mut().zip(&site.sources) {
                if *stop.borrow() {
                    break;
                }
                let run = operated.turn();
                if run.batches > 0 {
                    source.forget();
                }
                more |= run.more;
            }
            if !more {
                match woken.recv_timeout(LOOK) {
                    Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        }
    })
}

impl Operated {
    /// Runs batches for a while.
    fn turn(&mut self) -> OperationsRun {
        let now = clock::instant();
        if self.rests_until.is_some_and(|until| now < until) {
            return OperationsRun::default();
        }
        match self.run() {
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
                OperationsRun::default()
            }
        }
    }

    fn run(&mut self) -> Result<OperationsRun> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.database.connect_within(CONNECT)?,
        };
        let connection = self.connection.insert(connection);
        run_with(&mut own(connection), &mut self.turns, TURN)
    }
}
