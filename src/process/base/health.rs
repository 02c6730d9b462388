//! The health of a process, for probes and load balancers.

use crate::clock;
use crate::error::Result;
use crate::process::base::liveness::Liveness;
use crate::process::base::stop::Stop;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

// --- A server of probes beside a process ---

/// It is prepared before the process starts, so that an address that is in use fails before any job is
/// claimed.
pub trait RunsBeside: Debug + Send + Sync {
    /// # Errors
    /// If it cannot run.
    fn prepare(&self) -> Result<Box<dyn PreparedBeside>>;
}

/// It runs until what [`start`](Self::start) returns is dropped.
pub trait PreparedBeside {
    /// # Errors
    /// If it cannot run.
    fn start(self: Box<Self>, health: Health) -> Result<Box<dyn RunningBeside>>;
}

/// It ends when it is dropped.
pub trait RunningBeside: Debug + Send + Sync {}

// --- The notes of a process about its health ---

/// The facts that the threads of a process note about its health.
#[derive(Debug, Clone, Default)]
pub(crate) struct HealthState {
    pub(crate) loops: Loops,
    noted: Arc<Mutex<Noted>>,
}

#[derive(Debug, Default)]
struct Noted {
    /// True if the process was registered at least once.
    has_started: bool,
    /// True if it has a registration that it trusts.
    is_registered: bool,
    /// The time of its last successful heartbeat.
    reached_at: Option<Instant>,
    /// Since when its heartbeats fail, if the last one did.
    failing_since: Option<Instant>,
    /// The greatest age that the last heartbeat may have.
    patience: Duration,
    /// The processes on threads of this one.
    parts: Vec<Health>,
    has_ended: bool,
}

impl HealthState {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how old the last heartbeat may be before the database counts as out of reach.
    pub(crate) fn trusts_heartbeats_for(&self, patience: Duration) {
        self.noted().patience = patience;
    }

    /// Notes whether the process has a registration that it trusts.
    pub(crate) fn registered(&self, is_registered: bool) {
        let mut noted = self.noted();
        noted.is_registered = is_registered;
        noted.has_started |= is_registered;
    }

    /// Notes that a heartbeat succeeded.
    pub(crate) fn reached(&self) {
        let mut noted = self.noted();
        noted.reached_at = Some(clock::instant());
        noted.failing_since = None;
    }

    /// Notes that a heartbeat, or a registration, failed.
    pub(crate) fn failed(&self) {
        let mut noted = self.noted();
        noted.failing_since.get_or_insert_with(clock::instant);
    }

    /// Notes that another process runs on threads of this one.
    pub(crate) fn has_part(&self, part: Health) {
        self.noted().parts.push(part);
    }

    /// Notes that all threads of the process have ended.
    pub(crate) fn ended(&self) {
        self.noted().has_ended = true;
    }
}

/// A question about the health of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HealthCheck {
    /// Checks whether its loops move. If not, only a restart helps. A database that is away, a late
    /// queue and a job that takes long are no reason for a restart, so this check ignores them.
    Live,
    /// Checks whether it reaches the database, is registered there and may claim jobs.
    Ready,
    /// Checks whether it was registered at least once.
    Started,
}

/// The health of a running process, as of the moment of each call. It asks the process only, never
/// the database, and returns at once.
///
/// [`Handle::health`](crate::Handle::health) returns it. Use it to answer probes from an HTTP server
/// of your own:
///
/// ```no_run
/// # fn main() -> windlass::Result<()> {
/// # let database = windlass::Database::open("jobs.db")?;
/// # let registry = windlass::Registry::new();
/// let worker = windlass::Worker::new(&database, registry).start()?;
/// let health = worker.health();
/// // In the handler of /readyz:
/// let status = if health.is_ready() { 200 } else { 503 };
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Health {
    kind: &'static str,
    state: HealthState,
    stop: Stop,
    liveness: Liveness,
}

impl Health {
    pub(crate) fn new(
        kind: &'static str,
        state: &HealthState,
        stop: &Stop,
        liveness: &Liveness,
    ) -> Self {
        Health {
            kind,
            state: state.clone(),
            stop: stop.clone(),
            liveness: liveness.clone(),
        }
    }

    #[cfg(all(test, feature = "internal-tests"))]
    pub(crate) fn loops(&self) -> Loops {
        self.state.loops.clone()
    }

    /// Returns `worker`, `dispatcher`, `scheduler` or `supervisor`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns whether the process passes [`HealthCheck::Live`].
    pub fn is_live(&self) -> bool {
        self.problems(HealthCheck::Live).is_empty()
    }

    /// Returns whether the process passes [`HealthCheck::Ready`].
    pub fn is_ready(&self) -> bool {
        self.problems(HealthCheck::Ready).is_empty()
    }

    /// Returns whether the process passes [`HealthCheck::Started`].
    pub fn is_started(&self) -> bool {
        self.problems(HealthCheck::Started).is_empty()
    }

    /// Returns why the process, or one that runs on its threads, does not pass a check: sentences
    /// for operators, without secrets. Empty if it passes.
    pub fn problems(&self, check: HealthCheck) -> Vec<String> {
        let mut problems = match check {
            HealthCheck::Live => self.not_live(),
            HealthCheck::Ready => [self.not_live(), self.not_ready()].concat(),
            HealthCheck::Started => self.not_started(),
        };
        let kind = self.kind;
        problems
            .iter_mut()
            .for_each(|problem| problem.insert_str(0, &format!("{kind}: ")));
        let parts = self.state.noted().parts.clone();
        problems.extend(parts.iter().flat_map(|part| part.problems(check)));
        problems
    }

    fn not_live(&self) -> Vec<String> {
        if self.stop.is_broken() {
            let says = "it broke down: a thread panicked, or the database was permanently lost";
            return vec![says.to_owned()];
        }
        // A stop has deadlines of its own.
        if self.stop.is_stopped() {
            return Vec::new();
        }
        let hanging = self.state.loops.hanging(HANGS).into_iter();
        let says = |(name, still): (&str, Duration)| {
            format!("its loop `{name}` has not moved for {} s", still.as_secs())
        };
        hanging.map(says).collect()
    }

    fn not_ready(&self) -> Vec<String> {
        let noted = self.state.noted();
        if noted.has_ended {
            return vec!["it has ended".to_owned()];
        }
        if self.stop.is_stopped() {
            return vec!["it is stopping".to_owned()];
        }
        let mut problems = Vec::new();
        match (noted.reached_at, noted.failing_since) {
            (None, None) => problems.push("it has not reached the database yet".to_owned()),
            (_, Some(since)) => problems.push(format!(
                "its heartbeats have failed for {} s",
                (clock::instant() - since).as_secs()
            )),
            (Some(at), None) if at.elapsed() > noted.patience => problems.push(format!(
                "its last heartbeat succeeded {} s ago",
                at.elapsed().as_secs()
            )),
            _ if !noted.is_registered => problems.push("it is not registered".to_owned()),
            _ => {}
        }
        let claims = ["worker", "supervisor"].contains(&self.kind);
        if claims && self.stop.is_quiet() {
            problems.push("it is quiet: it claims nothing until SIGCONT".to_owned());
        }
        if let (0, slots @ 1..) = self.liveness.children() {
            problems.push(format!("none of its {slots} child programs runs"));
        }
        problems
    }

    fn not_started(&self) -> Vec<String> {
        let has_started = self.state.noted().has_started;
        let says = "it has not been registered in the database yet";
        (!has_started)
            .then(|| says.to_owned())
            .into_iter()
            .collect()
    }
}

// --- The turns of the loops of a process ---

/// A loop that works for longer without a turn hangs. Every statement ends earlier, whatever the
/// database does.
pub(crate) const HANGS: Duration = Duration::from_secs(120);

/// The loops of a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loops(Arc<Mutex<Vec<Weak<LoopState>>>>);

#[derive(Debug)]
struct LoopState {
    name: &'static str,
    /// The time at which the loop last moved, or `None` while it waits for something to do.
    moved_at: Mutex<Option<Instant>>,
}

/// The place where one loop notes that it moves. The loop has ended when this is dropped.
#[derive(Debug, Clone)]
pub(crate) struct LoopTurns(Arc<LoopState>);

impl Loops {
    /// Adds a loop, which waits for something to do.
    pub(crate) fn add(&self, name: &'static str) -> LoopTurns {
        let state = Arc::new(LoopState {
            name,
            moved_at: Mutex::new(None),
        });
        let mut loops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loops.retain(|one| one.strong_count() > 0);
        loops.push(Arc::downgrade(&state));
        LoopTurns(state)
    }

    /// Returns the loops that have worked for at least `limit` without a turn, and for how long.
    pub(crate) fn hanging(&self, limit: Duration) -> Vec<(&'static str, Duration)> {
        let loops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |one: &LoopState| {
            let moved_at = one.moved_at.lock().unwrap_or_else(PoisonError::into_inner);
            Some((one.name, clock::instant() - (*moved_at)?))
        };
        let working = loops.iter().filter_map(Weak::upgrade);
        working
            .filter_map(|one| since(&one))
            .filter(|(_, still)| *still >= limit)
            .collect()
    }
}

impl LoopTurns {
    /// Notes that the loop works, and has just moved.
    pub(crate) fn moves(&self) {
        self.set(Some(clock::instant()));
    }

    /// Notes that the loop waits for something to do, or for a pause to end.
    pub(crate) fn rests(&self) {
        self.set(None);
    }

    fn set(&self, moved_at: Option<Instant>) {
        let mut place = self.0.moved_at.lock();
        **place.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut()) = moved_at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_hangs_when_it_works_and_does_not_move() {
        let loops = Loops::default();
        let (one, other) = (loops.add("one"), loops.add("other"));
        let names = |limit| {
            let hanging = loops.hanging(limit);
            hanging
                .into_iter()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(Duration::ZERO), [""; 0], "they wait");
        one.moves();
        assert_eq!(names(Duration::ZERO), ["one"]);
        assert_eq!(names(Duration::from_secs(60)), [""; 0], "it has just moved");
        other.moves();
        one.rests();
        assert_eq!(names(Duration::ZERO), ["other"]);
        drop(other);
        assert_eq!(names(Duration::ZERO), [""; 0], "it has ended");
    }
}
