//! The faults of a run, drawn from its seed.

use crate::place::Place;
use crate::proxy::Mode;
use crate::roles::{Crew, RoleKind, SUPERVISORS, THRESHOLD, send};
use crate::{Options, lock};
use clap::ValueEnum;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// SIGKILL to a worker.
    Kill,
    /// SIGKILL to a supervisor: its children must notice.
    KillSupervisor,
    /// SIGKILL to an enqueuer.
    KillEnqueuer,
    /// SIGSTOP to a worker, SIGCONT before or after the threshold.
    Stop,
    /// SIGSTOP to a supervisor.
    StopSupervisor,
    /// SIGTERM to a worker.
    Term,
    /// SIGTERM to a supervisor.
    TermSupervisor,
    /// A supervisor with a threshold that is far too short prunes processes
    /// that live.
    Hasty,
    /// Answers of a Postgres server get lost on their way.
    LostAnswers,
    /// Connections to a Postgres server are dead without a word for a while.
    HalfOpen,
    /// A Postgres server's side acknowledges everything for a while and
    /// answers nothing; connections stay.
    BlackHole,
    /// A stranger's transaction holds rows or a table; on SQLite, the file.
    ForeignLock,
    /// Ends some of the sessions of a Postgres server.
    Sessions,
    /// Restarts the server at once, without a checkpoint.
    Restart,
}

const WEIGHTS: [(Fault, u32); 14] = [
    (Fault::Kill, 40),
    (Fault::KillSupervisor, 6),
    (Fault::KillEnqueuer, 4),
    (Fault::Stop, 25),
    (Fault::StopSupervisor, 4),
    (Fault::Term, 10),
    (Fault::TermSupervisor, 3),
    (Fault::Hasty, 25),
    (Fault::LostAnswers, 12),
    (Fault::HalfOpen, 3),
    (Fault::BlackHole, 2),
    (Fault::ForeignLock, 8),
    (Fault::Sessions, 10),
    (Fault::Restart, 4),
];

/// The client's deadline for a statement, and a little more.
const LONGEST_DEADLINE: Duration = Duration::from_secs(45);

/// The faults that may be given in this run, and those that were.
pub struct Faults<'a> {
    place: &'a Place,
    weights: Vec<(Fault, u32)>,
    restart_command: Option<String>,
    stopped: Vec<(u32, Instant)>,
    /// Supervisors that prune the living, until then.
    hasty: Vec<(u32, Instant)>,
    /// Since when, or until when, no answer comes.
    black_hole: Option<Instant>,
    /// Whoever was asked to end: a second time would mean at once.
    asked: BTreeSet<u32>,
    pub given: BTreeMap<Fault, u64>,
}

impl<'a> Faults<'a> {
    pub fn new(place: &'a Place, options: &Options) -> Self {
        let (only, restart_command) = (&options.only, options.restart_command.clone());
        let possible = |fault: &Fault| match fault {
            Fault::Sessions => place.is_postgres(),
            Fault::LostAnswers | Fault::HalfOpen => place.proxy.is_some(),
            // A statement that hangs in it hangs until its deadline: too long for a short run.
            Fault::BlackHole => place.proxy.is_some() && options.seconds >= 60,
            Fault::Restart => place.is_postgres() && restart_command.is_some(),
            _ => true,
        };
        // Each seed has its own preferences: some faults are many, some few.
        let weights = WEIGHTS
            .into_iter()
            .filter(|(fault, _)| possible(fault) && (only.is_empty() || only.contains(fault)))
            .map(|(fault, weight)| (fault, weight * fastrand::u32(1..5)))
            .collect();
        Faults {
            place,
            weights,
            restart_command,
            stopped: Vec::new(),
            hasty: Vec::new(),
            black_hole: None,
            asked: BTreeSet::new(),
            given: BTreeMap::new(),
        }
    }

    pub fn describe(&self) -> String {
        let names: Vec<String> = self
            .weights
            .iter()
            .map(|(fault, weight)| format!("{fault:?}:{weight}"))
            .collect();
        names.join(" ")
    }

    /// Returns true if only graceful faults are given, after which nothing at all
    /// may run twice.
    pub fn are_graceful(&self) -> bool {
        self.weights
            .iter()
            .all(|(fault, _)| matches!(fault, Fault::Term | Fault::TermSupervisor))
    }

    /// Gives one fault.
    pub fn give(&mut self, crew: &mut Crew) {
        self.resume(false);
        let total: u32 = self.weights.iter().map(|(_, weight)| weight).sum();
        if total == 0 {
            return;
        }
        let mut drawn = fastrand::u32(..total);
        for (fault, weight) in self.weights.clone() {
            if drawn < weight {
                if self.give_one(fault, crew) {
                    *self.given.entry(fault).or_default() += 1;
                }
                return;
            }
            drawn -= weight;
        }
    }

    fn give_one(&mut self, fault: Fault, crew: &mut Crew) -> bool {
        match fault {
            Fault::Kill => self.signal_worker(Signal::KILL).is_some(),
            Fault::KillSupervisor => crew.signal(&SUPERVISORS, Signal::KILL).is_some(),
            Fault::KillEnqueuer => crew.signal(&[RoleKind::Enqueuer], Signal::KILL).is_some(),
            Fault::Stop => self.freeze(self.signal_worker(Signal::STOP)),
            Fault::StopSupervisor => self.freeze(crew.signal(&SUPERVISORS, Signal::STOP)),
            Fault::Term => {
                let workers = self.workers();
                self.ask(workers)
            }
            Fault::TermSupervisor => self.ask(crew.pids(&SUPERVISORS)),
            Fault::Hasty => self.be_hasty(crew),
            Fault::LostAnswers => self.lose(Mode::LoseAnswers, 5..60),
            Fault::HalfOpen => self.lose(Mode::LoseAll, 200..2000),
            Fault::BlackHole => self.swallow(),
            Fault::ForeignLock => lock::hold(self.place),
            Fault::Sessions => self.end_sessions(),
            Fault::Restart => self.restart(),
        }
    }

    /// Workers are found in the process table: most are children of the
    /// supervisors. A frozen SQLite writer blocks this look, so it may fail.
    fn workers(&self) -> Vec<u32> {
        let pids = self.place.texts(
            "SELECT CAST(pid AS text) AS t FROM solid_queue_processes WHERE kind = 'Worker'",
        );
        let pids = pids.unwrap_or_default();
        pids.iter().filter_map(|pid| pid.parse().ok()).collect()
    }

    fn signal_worker(&self, signal: Signal) -> Option<u32> {
        let pid = fastrand::choice(self.workers())?;
        send(pid, signal).then_some(pid)
    }

    /// TERM to one that was not asked before.
    fn ask(&mut self, mut pids: Vec<u32>) -> bool {
        pids.retain(|pid| !self.asked.contains(pid));
        let Some(pid) = fastrand::choice(pids) else {
            return false;
        };
        self.asked.insert(pid);
        send(pid, Signal::TERM)
    }

    fn freeze(&mut self, pid: Option<u32>) -> bool {
        let Some(pid) = pid else { return false };
        let least = THRESHOLD.as_millis() as u64 * 2 / 5;
        let pause = Duration::from_millis(fastrand::u64(least..least * 7));
        self.stopped.push((pid, Instant::now() + pause));
        true
    }

    fn be_hasty(&mut self, crew: &mut Crew) -> bool {
        let Ok(pid) = crew.be_hasty() else {
            return false;
        };
        let time = Duration::from_millis(fastrand::u64(300..900));
        self.hasty.push((pid, Instant::now() + time));
        true
    }

    fn resume(&mut self, all: bool) {
        let end = |list: &mut Vec<(u32, Instant)>, signal| {
            list.retain(|(pid, until)| {
                let due = all || Instant::now() >= *until;
                if due {
                    send(*pid, signal);
                }
                !due
            });
        };
        end(&mut self.stopped, Signal::CONT);
        end(&mut self.hasty, Signal::KILL);
        if self
            .black_hole
            .is_some_and(|end| all || Instant::now() >= end)
        {
            self.end_black_hole();
        }
    }

    fn swallow(&mut self) -> bool {
        let Some(proxy) = &self.place.proxy else {
            return false;
        };
        let modes = [Mode::LoseAnswers, Mode::LoseAll];
        proxy.set(modes[fastrand::usize(..modes.len())]);
        let time = Duration::from_millis(fastrand::u64(500..6000));
        self.black_hole = Some(Instant::now() + time);
        true
    }

    fn end_black_hole(&self) {
        if let Some(proxy) = &self.place.proxy {
            proxy.set(Mode::Pass);
        }
    }

    /// After a black hole, what hung in it ends by its deadline.
    pub fn await_deadlines(&self) {
        if let Some(end) = self.black_hole {
            let over = end + LONGEST_DEADLINE;
            std::thread::sleep(over.saturating_duration_since(Instant::now()));
        }
    }

    fn end_sessions(&self) -> bool {
        let Some(schema) = self.place.schema() else {
            return false;
        };
        self.place
            .texts(&format!(
                "SELECT CAST(pg_terminate_backend(a.pid) AS text) AS t FROM pg_stat_activity a \
                 WHERE a.application_name = 'windlass' AND a.datname = current_database() \
                 AND a.pid <> pg_backend_pid() AND random() < 0.4 \
                 AND EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = '{schema}')"
            ))
            .is_ok()
    }

    fn lose(&self, mode: Mode, millis: std::ops::Range<u64>) -> bool {
        let Some(proxy) = &self.place.proxy else {
            return false;
        };
        proxy.lose(mode, Duration::from_millis(fastrand::u64(millis)));
        true
    }

    fn restart(&self) -> bool {
        let Some(command) = &self.restart_command else {
            return false;
        };
        Command::new("sh")
            .args(["-c", command])
            .output()
            .is_ok_and(|output| output.status.success())
    }

    /// Undoes what can be undone; nobody is frozen afterwards.
    pub fn heal(&mut self, _crew: &mut Crew) {
        self.resume(true);
    }
}
