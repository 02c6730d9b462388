//! The processes of a run: two supervisors with children, workers without a
//! supervisor, enqueuers. Each is this program again, in a role.

use crate::Options;
use crate::Result;
use crate::check::Violations;
use crate::extras::{self, Amounts};
use crate::jobs::{Log, OnceOnly, TICK, Tick, Timed, Work};
use crate::place::{Place, count};
use crate::{gates, waits};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child as Program, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::{
    Child, Database, DbConnection, Dispatcher, NewJob, RecurringTask, Registry, Scheduler,
    Supervisor, Worker,
};

/// The interval of heartbeats: short, so that a minute holds many deaths.
const HEARTBEAT: Duration = Duration::from_millis(150);
pub const THRESHOLD: Duration = Duration::from_secs(1);
/// The time for a graceful stop: long enough for the longest job, so that nothing is cut short.
const SHUTDOWN: Duration = Duration::from_secs(10);
/// The time for a stop that cuts long jobs short.
const BRISK: Duration = Duration::from_millis(300);
/// The exit code of a process that had to cut something short.
const CUT_SHORT: i32 = 75;

/// The role of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Role {
    kind: RoleKind,
    url: String,
    directory: PathBuf,
    seed: u64,
    mix: Mix,
    shutdown: Duration,
}

/// The mix of jobs.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Mix {
    /// The number of jobs of a thousand that end their process.
    killers: u32,
    /// The number of jobs of a thousand that take seconds.
    long: u32,
    /// The most jobs that are enqueued at once.
    lot: u32,
    /// The most jobs that may be ready at once.
    waiting: u32,
    pub amounts: Amounts,
    /// Nothing may run twice: no job ends its process, no stop cuts one short.
    is_graceful: bool,
}

impl Mix {
    pub fn of(options: &Options, is_graceful: bool) -> Self {
        Mix {
            killers: if is_graceful { 0 } else { options.killers },
            long: options.long,
            lot: options.lot.max(1),
            waiting: options.waiting,
            amounts: options.amounts,
            is_graceful,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoleKind {
    Supervisor,
    /// A supervisor whose stops cut jobs short.
    Brisk,
    Worker,
    Enqueuer,
    /// A supervisor whose threshold is far too short: it prunes the living.
    Hasty,
}

impl Role {
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).expect("a role is written by the run itself")
    }

    fn text(&self) -> String {
        serde_json::to_string(self).expect("a role is plain data")
    }

    pub fn play(&self) -> ExitCode {
        // Each line names its process: see `check::starved`.
        let line = |to: &mut env_logger::fmt::Formatter, record: &log::Record<'_>| {
            writeln!(
                to,
                "{} {} {}",
                std::process::id(),
                record.level(),
                record.args()
            )
        };
        env_logger::builder().format(line).init();
        match self.work() {
            Ok(code) => code,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn work(&self) -> Result<ExitCode> {
        let database = Database::open(&self.url)?;
        match self.kind {
            RoleKind::Supervisor | RoleKind::Brisk => self.supervise(&database),
            RoleKind::Worker => {
                let log = Arc::new(Log::open(&self.directory.join("effects"))?);
                let registry = extras::register(Registry::new(), &log)
                    .register::<Timed>(Arc::clone(&log))
                    .register::<Tick>(Arc::clone(&log))
                    .register::<OnceOnly>(log);
                let worker = Worker::new(&database, registry)
                    .threads(4)
                    .heartbeat_interval(HEARTBEAT)
                    .alive_threshold(THRESHOLD)
                    .shutdown_timeout(self.shutdown)
                    .polling_interval(Duration::from_secs(1));
                Ok(worker.run()?.exit_code())
            }
            RoleKind::Enqueuer => self.enqueue(&database),
            RoleKind::Hasty => Ok(Supervisor::new(&database)
                .heartbeat_interval(Duration::from_millis(5))
                .alive_threshold(Duration::from_millis(100))
                .run()?
                .exit_code()),
        }
    }

    fn supervise(&self, database: &Database) -> Result<ExitCode> {
        let worker = Role {
            kind: RoleKind::Worker,
            ..self.clone()
        };
        let child = Child::this_program(["--role".to_owned(), worker.text()])?.processes(2);
        let dispatcher = Dispatcher::new(database)
            .heartbeat_interval(HEARTBEAT)
            .alive_threshold(THRESHOLD);
        let scheduler = Scheduler::new(database)
            .task(RecurringTask::new(TICK, "every 1s", &Tick)?)
            .heartbeat_interval(HEARTBEAT)
            .alive_threshold(THRESHOLD);
        let stopped = Supervisor::new(database)
            .child(child)
            .dispatcher(dispatcher)
            .scheduler(scheduler)
            .heartbeat_interval(HEARTBEAT)
            .alive_threshold(THRESHOLD)
            .shutdown_timeout(self.shutdown)
            .run()?;
        Ok(stopped.exit_code())
    }

    /// Enqueues until it is ended, repeating what got no answer under the
    /// same key, and notes every answer.
    fn enqueue(&self, database: &Database) -> Result<ExitCode> {
        let acknowledged = Log::open(&self.directory.join("acknowledged"))?;
        fastrand::seed(self.seed);
        let refused = Log::open(&self.directory.join("refused"))?;
        let end = self.directory.join("enough");
        let mut connection = None;
        let mut looked_at = Instant::now();
        let mut number = 0;
        let mut done = [false; 7];
        while !end.exists() {
            let keys: Vec<u64> = (0..fastrand::u64(1..=u64::from(self.mix.lot)))
                .map(|place| self.seed ^ ((number + place) << 20))
                .collect();
            number += keys.len() as u64;
            let jobs = keys.iter().map(|key| draw(*key, self.mix));
            let jobs = jobs.collect::<Result<Vec<NewJob>>>()?;
            while !end.exists() {
                let mut conn = match connection.take().map_or_else(|| database.connect(), Ok) {
                    Ok(conn) => conn,
                    Err(_) => {
                        std::thread::sleep(Duration::from_millis(20));
                        continue;
                    }
                };
                if let Ok(enqueued) = windlass::enqueue_all(&mut conn, jobs.clone()) {
                    for (job, key) in enqueued.iter().zip(&keys) {
                        acknowledged.line(&format!("{} {key:x}", job.id));
                    }
                    connection = Some(conn);
                    break;
                }
            }
            // An enqueue that got no answer is not repeated: it is there with all that belongs to it, or not at all.
            if let Some(mut conn) = connection.take() {
                let enqueued = self.enqueue_extras(&mut conn, &refused, &mut done);
                connection = enqueued.is_ok().then_some(conn);
            }
            if looked_at.elapsed() > Duration::from_secs(1) {
                looked_at = Instant::now();
                self.wait_for_room(database, &end);
            }
            std::thread::sleep(Duration::from_millis(fastrand::u64(1..12)));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Role {
    fn enqueue_extras(
        &self,
        conn: &mut DbConnection,
        refused: &Log,
        done: &mut [bool; 7],
    ) -> Result<()> {
        let Mix {
            amounts, killers, ..
        } = self.mix;
        if fastrand::u32(..20) == 0 {
            gates::enqueue_rationed(conn, amounts.quota, refused)?;
        }
        amounts.enqueue_some(conn, killers, done)?;
        if fastrand::u32(..5) == 0 {
            waits::emit(conn, 5)?;
        }
        Ok(())
    }

    /// Waits while too many jobs are ready.
    fn wait_for_room(&self, database: &Database, end: &std::path::Path) {
        let ready = "SELECT count(*) AS n FROM solid_queue_ready_executions";
        let is_full = || -> Result<bool> {
            let mut connection = database.connect()?;
            Ok(count(&mut connection, ready)? > i64::from(self.mix.waiting))
        };
        while !end.exists() && is_full().unwrap_or(false) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn draw(key: u64, mix: Mix) -> Result<NewJob> {
    let work = Work::draw(key, mix.killers, mix.long);
    let job = match fastrand::u32(..100) {
        0..20 => NewJob::new(&OnceOnly(work))?,
        n if n < 20 + mix.long / 20 => NewJob::new(&Timed::draw(key, !mix.is_graceful))?,
        _ => NewJob::new(&work)?,
    };
    let job = job
        .idempotency_key(format!("{key:x}"))
        .priority(fastrand::i32(0..3));
    Ok(if fastrand::u32(..10) == 0 {
        job.after(Duration::from_millis(fastrand::u64(0..2000)))
    } else {
        job
    })
}

/// A process of the run.
pub struct Member {
    pub kind: RoleKind,
    program: Program,
}

/// All processes that the run has started itself.
pub struct Crew {
    role: Role,
    pub members: Vec<Member>,
    count: u64,
    /// The program of the version before, which plays half of the parts.
    before: Option<PathBuf>,
}

/// Both kinds of supervisors.
pub const SUPERVISORS: [RoleKind; 2] = [RoleKind::Supervisor, RoleKind::Brisk];

impl Mix {
    fn staff(self) -> [(RoleKind, usize); 4] {
        let brisk = usize::from(!self.is_graceful);
        [
            (RoleKind::Supervisor, 2 - brisk),
            (RoleKind::Brisk, brisk),
            (RoleKind::Worker, 2),
            (RoleKind::Enqueuer, 2),
        ]
    }
}

impl Crew {
    pub fn new(place: &Place, seed: u64, mix: Mix, before: Option<PathBuf>) -> Result<Self> {
        let role = Role {
            kind: RoleKind::Worker,
            url: place.url_of_processes.clone(),
            directory: place.directory.clone(),
            seed,
            mix,
            shutdown: SHUTDOWN,
        };
        let mut crew = Crew {
            role,
            members: Vec::new(),
            count: 0,
            before,
        };
        crew.keep_staffed()?;
        Ok(crew)
    }

    /// Replaces processes that have ended, as systemd would.
    pub fn keep_staffed(&mut self) -> Result<()> {
        self.members
            .retain_mut(|member| !matches!(member.program.try_wait(), Ok(Some(_))));
        for (kind, wanted) in self.role.mix.staff() {
            let enough = kind == RoleKind::Enqueuer && self.role.directory.join("enough").exists();
            while !enough
                && self
                    .members
                    .iter()
                    .filter(|member| member.kind == kind)
                    .count()
                    < wanted
            {
                self.start(kind)?;
            }
        }
        Ok(())
    }

    /// Starts a supervisor that prunes living processes, until it is killed.
    pub fn be_hasty(&mut self) -> Result<u32> {
        self.start(RoleKind::Hasty)
    }

    fn start(&mut self, kind: RoleKind) -> Result<u32> {
        self.count += 1;
        let role = Role {
            kind,
            seed: self.role.seed.wrapping_add(self.count << 40),
            shutdown: if kind == RoleKind::Brisk {
                BRISK
            } else {
                SHUTDOWN
            },
            ..self.role.clone()
        };
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.role.directory.join("log"))?;
        let program = match &self.before {
            Some(before) if fastrand::bool() => before.clone(),
            _ => std::env::current_exe()?,
        };
        let program = Command::new(program)
            .args(["--role", &role.text()])
            .env("RUST_LOG", "warn,windlass=info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let pid = program.id();
        self.members.push(Member { kind, program });
        Ok(pid)
    }

    /// The processes of these kinds that the run started itself.
    pub fn pids(&self, kinds: &[RoleKind]) -> Vec<u32> {
        let members = self.members.iter();
        let members = members.filter(|member| kinds.contains(&member.kind));
        members.map(|member| member.program.id()).collect()
    }

    /// Signals a random process of these kinds that the run started itself.
    pub fn signal(&self, kinds: &[RoleKind], signal: Signal) -> Option<u32> {
        let pid = fastrand::choice(self.pids(kinds))?;
        send(pid, signal).then_some(pid)
    }

    /// Ends the enqueuers and the recurring task.
    pub fn end_enqueuing(&mut self, place: &Place) {
        if let Err(error) = std::fs::write(self.role.directory.join("enough"), "") {
            eprintln!("error: cannot end the enqueuers: {error}");
        }
        for _ in 0..100 {
            let pause = |mut conn| windlass::recurring::pause(&mut conn, TICK);
            match place.database.connect().and_then(pause) {
                Ok(()) => return,
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
        eprintln!("error: cannot pause the recurring task");
    }

    /// Waits until nothing waits and nothing runs.
    pub fn drain(&mut self, place: &Place, patience: Duration) -> Result<bool> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            self.keep_staffed()?;
            // After a crash jobs wait for a while; the run does not.
            let hurry = "UPDATE solid_queue_scheduled_executions SET scheduled_at = created_at";
            let late = |()| waits::emit(&mut place.connect()?, 500);
            let left = place.execute(&[hurry]).and_then(late).and_then(|()| {
                place.count(
                    "SELECT (SELECT count(*) FROM solid_queue_ready_executions) \
                     + (SELECT count(*) FROM solid_queue_scheduled_executions) \
                     + (SELECT count(*) FROM solid_queue_claimed_executions) \
                     + (SELECT count(*) FROM solid_queue_batches WHERE finished_at IS NULL) \
                     + (SELECT count(*) FROM windlass_wanted_keys) \
                     + (SELECT count(*) FROM solid_queue_blocked_executions) AS n",
                )
            });
            let enqueuing = self
                .members
                .iter()
                .any(|member| member.kind == RoleKind::Enqueuer);
            if left.is_ok_and(|left| left == 0) && !enqueuing {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(false)
    }

    /// TERM for all; every process must end by itself and drained.
    pub fn stop_all(&mut self, violations: &mut Violations) -> Result<()> {
        for member in &self.members {
            send(member.program.id(), Signal::TERM);
        }
        // Beyond what a process allows its own stop, which may wait for a slow disk.
        let deadline = Instant::now() + SHUTDOWN + Duration::from_secs(60);
        for member in &mut self.members {
            let status = loop {
                match member.program.try_wait()? {
                    Some(status) => break Some(status),
                    None if Instant::now() >= deadline => break None,
                    None => std::thread::sleep(Duration::from_millis(10)),
                }
            };
            let may_cut = |code| member.kind == RoleKind::Brisk && code == Some(CUT_SHORT);
            if !status.is_some_and(|status| status.success() || may_cut(status.code())) {
                violations.add(
                    "I14",
                    format!("a {:?} did not stop in order: {status:?}", member.kind),
                );
                let _ = member.program.kill();
                let _ = member.program.wait();
            }
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.program.kill();
            let _ = member.program.wait();
        }
    }
}

/// Only processes of the run are signalled: their command line names it.
pub fn send(pid: u32, signal: Signal) -> bool {
    let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if !command.contains("--role") {
        return false;
    }
    Pid::from_raw(pid.cast_signed()).is_some_and(|pid| kill_process(pid, signal).is_ok())
}
