//! The row of a process, and the intervals of its heartbeat.

use crate::clock;
use crate::db::table::processes::{self, NewProcess};
use crate::error::{Error, Result};
use crate::event::hooks::{Hooks, ProcessInfo};
use crate::job::running::Lease;
use crate::process::base::session::Session;
use crate::process::base::stop::{self, Stop};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// One registered process. A process that lost its registration gets a new one under a new name;
/// the old one is never trusted again.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) lease: Arc<Lease>,
}

/// The registrations of a process.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    pub(crate) current: Option<Arc<Registration>>,
    /// Lost registrations whose jobs still run. While their row exists it gets heartbeats, so that
    /// no other worker runs those jobs meanwhile.
    pub(crate) retired: Vec<Arc<Registration>>,
}

impl Registrations {
    /// Returns the current registration, and the lost ones that still have a row.
    pub(crate) fn all(&self) -> Vec<Arc<Registration>> {
        self.current.iter().chain(&self.retired).cloned().collect()
    }

    /// Moves a registration to the lost ones, if it is the current one.
    pub(crate) fn retire(&mut self, registration: &Registration) {
        let lost = self
            .current
            .take_if(|current| current.id == registration.id);
        self.retired.extend(lost);
    }

    /// Removes a registration whose row is gone.
    pub(crate) fn forget(&mut self, registration: &Registration) {
        self.retired.retain(|retired| retired.id != registration.id);
        self.current
            .take_if(|current| current.id == registration.id);
    }
}

/// The interval of heartbeats, and the time without one after which a process counts as dead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeartbeatSettings {
    pub(crate) interval: Duration,
    pub(crate) threshold: Duration,
}

impl Default for HeartbeatSettings {
    fn default() -> Self {
        HeartbeatSettings {
            interval: Duration::from_secs(10),
            threshold: Duration::from_secs(60),
        }
    }
}

/// A running server may be slow, so a heartbeat is always given this long.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);

/// After a heartbeat without an answer, how long its session may hold the lock of the row before
/// the process registers again.
pub(crate) const PATIENCE_FOR_A_LOCK: Duration = Duration::from_secs(2);

/// The shortest time between two heartbeats.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);

impl HeartbeatSettings {
    /// Returns how long a process trusts its claims after a heartbeat: it must stop before a
    /// supervisor may treat it as dead.
    pub(crate) fn trust(self) -> Duration {
        self.threshold.saturating_sub(self.interval)
    }

    /// Returns how long to wait for a heartbeat: short enough that another attempt, over a new
    /// connection, is in time.
    pub(crate) fn patience(self) -> Duration {
        let patience = self.interval.saturating_mul(2).min(self.threshold / 3);
        patience.max(LEAST_PATIENCE)
    }

    /// Checks the interval of a process that a supervisor with these settings runs.
    ///
    /// # Errors
    /// Returns an error if the supervisor could treat it as dead between two of its heartbeats.
    pub(crate) fn check_part(self, part: &str, its: HeartbeatSettings) -> Result<(), Error> {
        let three = its.interval.checked_mul(3);
        if three.is_none_or(|three| self.threshold < three) {
            return Err(Error::Settings(format!(
                "the supervisor's alive threshold ({}) must be at least three heartbeat intervals of its {part} ({}): \
                 it would treat it as dead again and again",
                clock::in_units(self.threshold),
                clock::in_units(its.interval)
            )));
        }
        Ok(())
    }

    /// # Errors
    /// Returns an error if a process could be treated as dead between two of its heartbeats.
    pub(crate) fn check(self) -> Result<(), Error> {
        if self.interval < LEAST_INTERVAL {
            return Err(Error::Settings(format!(
                "the heartbeat interval ({}) must be at least {LEAST_INTERVAL:?}: each heartbeat writes to the database; \
                 and the alive threshold at least three heartbeat intervals",
                clock::in_units(self.interval)
            )));
        }
        let three = self.interval.checked_mul(3);
        if three.is_none_or(|three| self.threshold < three) {
            return Err(Error::Settings(format!(
                "the alive threshold ({}) must be at least three heartbeat intervals ({})",
                clock::in_units(self.threshold),
                clock::in_units(self.interval)
            )));
        }
        Ok(())
    }
}

/// The contents of a process' row besides its name.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) kind: &'static str,
    /// JSON, shown by `windlass status`.
    pub(crate) metadata: String,
    /// The Postgres channel on which the process is notified of new work, if it listens.
    pub(crate) channel: Option<String>,
}

impl Identity {
    /// Registers a process under a new name. It trusts the registration for `trust` after each
    /// heartbeat.
    pub(crate) fn register(
        &self,
        session: &mut Session,
        metadata: &str,
        trust: Duration,
    ) -> Result<Registration, Duration> {
        let (name, hostname) = (name(self.kind), hostname());
        let sent = clock::since_boot();
        let database = session.database();
        let id = session.run("register", |conn| {
            processes::register(
                conn,
                &NewProcess {
                    name: &name,
                    kind: self.kind,
                    pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
                    hostname: &hostname,
                    supervisor_id: stop::supervisor_id(),
                    metadata,
                    // With the connection it is known whether it can listen.
                    channel: self.channel.as_deref().filter(|_| database.can_listen()),
                },
            )
        })?;
        let lease = Arc::new(Lease::new(trust));
        lease.renew(sent);
        Ok(Registration { id, name, lease })
    }

    /// Returns the metadata for its row, with the turns of its duties.
    pub(crate) fn metadata(&self, is_quiet: bool, duties: Option<serde_json::Value>) -> String {
        let object = serde_json::from_str(&self.metadata);
        match object {
            Ok(serde_json::Value::Object(mut object)) if is_quiet || duties.is_some() => {
                let quiet = is_quiet.then_some(("quiet", true.into()));
                let duties = duties.map(|duties| ("duties", duties));
                let more = quiet.into_iter().chain(duties);
                object.extend(more.map(|(name, value)| (name.to_owned(), value)));
                serde_json::Value::Object(object).to_string()
            }
            _ => self.metadata.clone(),
        }
    }
}

/// Returns `worker-<token>.<number>`. The token is the program's, and the number is counted within
/// the program, so that no name is used twice.
fn name(kind: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{}-{}.{number}", kind.to_lowercase(), stop::token())
}

#[doc(hidden)]
pub fn hostname() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

// --- Calls the hooks of a process ---

/// The longest time that the end of a process waits for its hooks.
const PATIENCE: Duration = Duration::from_secs(5);

/// The hooks of one process.
#[derive(Debug, Clone)]
pub(crate) struct Hooked {
    hooks: Hooks,
    process: ProcessInfo,
}

impl Hooked {
    pub(crate) fn new(hooks: &Hooks, kind: &'static str) -> Self {
        Hooked {
            hooks: hooks.clone(),
            process: ProcessInfo {
                kind,
                hostname: hostname(),
                pid: std::process::id(),
            },
        }
    }

    pub(crate) fn start(&self) -> Result<()> {
        self.hooks.run_start(&self.process)
    }

    /// Starts a thread that waits for the stop and then calls the stop hooks.
    pub(crate) fn await_stop(&self, stop: &Stop) -> Option<JoinHandle<()>> {
        if !self.hooks.has_stop() {
            return None;
        }
        self.aside("stop-hooks", {
            let (own, stop) = (self.clone(), stop.clone());
            move || {
                let _ = stop.channel().recv();
                own.hooks.run_stop(&own.process);
            }
        })
    }

    /// Calls the exit hooks, when everything else has ended.
    pub(crate) fn exit(&self, awaiting: Option<JoinHandle<()>>, stop: &Stop) {
        self.wait_for(awaiting, stop);
        if self.hooks.has_exit() {
            let own = self.clone();
            let exit = self.aside("exit-hooks", move || own.hooks.run_exit(&own.process));
            self.wait_for(exit, stop);
        }
    }

    fn aside(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
        let kind = self.process.kind;
        stop::spawn(name, work)
            .inspect_err(|error| log::error!(kind; "hooks of the {kind} are not called: {error}"))
            .ok()
    }

    fn wait_for(&self, hooks: Option<JoinHandle<()>>, stop: &Stop) {
        let deadline = clock::deadline(PATIENCE);
        let kind = self.process.kind;
        if !stop::join_until(&mut hooks.into_iter().collect(), deadline, stop, || false) {
            log::error!(kind; "hooks of the {kind} have not returned; it ends without them");
        }
    }
}
