//! Real processes: this test binary again, in another role.

use super::TestDb;
use super::dispositions::command;
use super::wait::until;
use crate::policies::steps::{FinishAndWait, Hoard, Walk};
use crate::waits::processes::Order;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child as Program, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use windlass::hooks::Subscriber;
use windlass::{
    Child, Context, Database, Delivery, Dispatcher, Interrupted, Job, JobError, JobResult, Policy,
    Registry, Supervisor, Worker,
};

const ROLE: &str = "WINDLASS_TEST_ROLE";

pub const HEARTBEAT: Duration = Duration::from_millis(100);

/// For tests that wait until a dead process is noticed. A machine that is busy
/// with other tests must not let a living process appear dead so soon.
pub const THRESHOLD: Duration = Duration::from_secs(5);

/// For all other tests: no process is taken for dead, however slow it is.
const NEVER: Duration = Duration::from_secs(600);

/// The role of another process, with its settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Role {
    pub url: String,
    pub log: PathBuf,
    /// Child workers of a supervisor; `None` for a worker.
    pub workers: Option<usize>,
    pub threads: usize,
    pub shutdown_ms: u64,
    pub alive_threshold: Duration,
    /// A worker's subscriber panics at every such event.
    pub panics_at: Option<String>,
    /// The time that a statement of a loop may take, if not 40 s.
    pub statement_ms: Option<u64>,
    /// A worker does nothing by the clock: it waits until it is woken.
    pub is_only_woken: bool,
}

/// The entry of all roles: a test like any other, that does nothing unless
/// the environment says which role it plays.
#[test]
fn role() {
    if let Ok(role) = std::env::var(ROLE) {
        env_logger::init();
        let role: Role = serde_json::from_str(&role).unwrap();
        std::process::exit(role.play());
    }
}

impl Role {
    fn play(&self) -> i32 {
        let mut database = Database::open(&self.url).unwrap();
        if let Some(limit) = self.statement_ms {
            database = database.with_statement_limit(Duration::from_millis(limit));
        }
        let stopped = match self.workers {
            None => self.worker(&database).run(),
            Some(workers) => self.supervisor(&database, workers).run(),
        };
        match stopped {
            Ok(stopped) if stopped.is_broken() => 70,
            Ok(stopped) if stopped.is_drained() => 0,
            Ok(_) => 75,
            Err(error) => {
                eprintln!("{error}");
                1
            }
        }
    }

    fn worker(&self, database: &Database) -> Worker {
        let effects = Arc::new(Effects::open(&self.log));
        let worker = Worker::new(
            database,
            Registry::new()
                .register::<Work>(effects.clone())
                .register::<Walk>(effects.clone())
                .register::<FinishAndWait>(effects.clone())
                .register::<Hoard>(effects.clone())
                .register::<Order>(effects.clone())
                .register::<Once>(effects),
        );
        let worker = if self.is_only_woken {
            worker
                .heartbeat_interval(self.alive_threshold / 3)
                .polling_interval(Duration::from_secs(3600))
        } else {
            worker.heartbeat_interval(HEARTBEAT)
        };
        worker
            .threads(self.threads)
            .alive_threshold(self.alive_threshold)
            .shutdown_timeout(Duration::from_millis(self.shutdown_ms))
            .subscriber(self.subscriber())
    }

    fn subscriber(&self) -> Subscriber {
        let kind = self.panics_at.clone();
        Subscriber::new(move |event| {
            let is_it = |kind: &String| format!("{event:?}").starts_with(kind);
            assert!(!kind.as_ref().is_some_and(is_it), "as told");
        })
    }

    fn supervisor(&self, database: &Database, workers: usize) -> Supervisor {
        let role = Role {
            workers: None,
            ..self.clone()
        };
        // The environment is inherited; the child's role replaces ours.
        let program = Child::program(
            "env",
            [
                format!("{ROLE}={}", serde_json::to_string(&role).unwrap()),
                std::env::current_exe().unwrap().display().to_string(),
                "support::process::role".to_owned(),
                "--exact".to_owned(),
                "--nocapture".to_owned(),
            ],
        );
        Supervisor::new(database)
            .child(program.processes(workers))
            .dispatcher(
                Dispatcher::new(database)
                    .heartbeat_interval(HEARTBEAT)
                    .alive_threshold(self.alive_threshold),
            )
            .heartbeat_interval(HEARTBEAT)
            .alive_threshold(self.alive_threshold)
            .shutdown_timeout(Duration::from_millis(self.shutdown_ms))
    }
}

/// A scene: a database, a log of effects, and processes.
pub struct Scene<'a> {
    pub db: &'a TestDb,
    directory: tempfile::TempDir,
    alive_threshold: Duration,
}

impl<'a> Scene<'a> {
    pub fn new(db: &'a TestDb) -> Self {
        Scene {
            db,
            directory: tempfile::tempdir().unwrap(),
            alive_threshold: NEVER,
        }
    }

    /// One where processes without a heartbeat are found dead after
    /// [`THRESHOLD`].
    pub fn with_deaths(db: &'a TestDb) -> Self {
        Scene {
            alive_threshold: THRESHOLD,
            ..Scene::new(db)
        }
    }

    fn role(&self) -> Role {
        Role {
            url: self.db.url.clone(),
            log: self.directory.path().join("effects"),
            workers: None,
            threads: 2,
            shutdown_ms: 20_000,
            alive_threshold: self.alive_threshold,
            panics_at: None,
            statement_ms: None,
            is_only_woken: false,
        }
    }

    pub fn worker(&self) -> Process {
        self.start(&self.role())
    }

    pub fn worker_with(&self, change: impl FnOnce(&mut Role)) -> Process {
        let mut role = self.role();
        change(&mut role);
        self.start(&role)
    }

    pub fn supervisor(&self, workers: usize) -> Process {
        self.worker_with(|role| role.workers = Some(workers))
    }

    /// A supervisor of one worker that is started with a signal ignored.
    pub fn supervisor_ignoring(&self, signal: &str) -> Process {
        let role = Role {
            workers: Some(1),
            ..self.role()
        };
        let mut program = command("env");
        program
            .arg(format!("--ignore-signal={signal}"))
            .arg(std::env::current_exe().unwrap());
        self.spawn(program, "support::process::role", |command| {
            command.env(ROLE, serde_json::to_string(&role).unwrap());
        })
    }

    /// A worker of the database at `url` with these in its environment.
    pub fn worker_told(&self, url: &str, variables: &[(&str, &str)]) -> Process {
        let url = url.to_owned();
        let role = Role { url, ..self.role() };
        let role = serde_json::to_string(&role).unwrap();
        self.run("support::process::role", |command| {
            command.env(ROLE, role).envs(variables.iter().copied());
        })
    }

    /// A supervisor, or a worker whose supervisor is the test. It is in a process group of its own,
    /// and the test holds its standard input.
    pub fn leader(&self, workers: Option<usize>, shutdown_ms: u64) -> Process {
        let role = Role {
            workers,
            shutdown_ms,
            ..self.role()
        };
        self.run("support::process::role", |command| {
            command
                .env(ROLE, serde_json::to_string(&role).unwrap())
                .stdin(Stdio::piped())
                .process_group(0);
            if workers.is_none() {
                let token = format!("{:032x}", fastrand::u128(..));
                command.env("WINDLASS_CHILD_TOKEN", token);
            }
        })
    }

    fn start(&self, role: &Role) -> Process {
        self.run("support::process::role", |command| {
            command.env(ROLE, serde_json::to_string(role).unwrap());
        })
    }

    /// Runs a test of this binary, which is a role, as a process of its own.
    pub fn run(&self, test: &str, change: impl FnOnce(&mut Command)) -> Process {
        self.spawn(command(std::env::current_exe().unwrap()), test, change)
    }

    fn spawn(
        &self,
        mut command: Command,
        test: &str,
        change: impl FnOnce(&mut Command),
    ) -> Process {
        let name = format!("process-{:08x}.log", fastrand::u32(..));
        let path = self.directory.path().join(name);
        let output = File::create(&path).unwrap();
        command
            .args([test, "--exact", "--nocapture"])
            .env("RUST_LOG", "info")
            .env_remove("WINDLASS_CHILD_TOKEN")
            .stdin(Stdio::null());
        change(&mut command);
        let program = command
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Process { program, log: path }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the file to which jobs are to write their effects.
    pub fn effects_file(&self) -> PathBuf {
        self.directory.path().join("effects")
    }

    /// The lines `start|end name pid claim` that jobs have written so far.
    pub fn effects(&self) -> Vec<Effect> {
        let text =
            std::fs::read_to_string(self.directory.path().join("effects")).unwrap_or_default();
        text.lines()
            .map(|line| {
                let parts: Vec<&str> = line.split(' ').collect();
                Effect {
                    what: parts[0].to_owned(),
                    name: parts[1].to_owned(),
                    pid: parts[2].parse().unwrap(),
                    claim: parts[3].parse().unwrap(),
                }
            })
            .collect()
    }

    pub fn count(&self, what: &str, name: &str) -> usize {
        self.effects()
            .iter()
            .filter(|effect| effect.what == what && effect.name == name)
            .count()
    }

    /// Waits for a job's next start, and returns it.
    pub fn started(&self, name: &str, times: usize) -> Effect {
        super::wait::eventually(&format!("{name} starts {times} times"), || {
            let mut starts = self
                .effects()
                .into_iter()
                .filter(|effect| effect.what == "start" && effect.name == name);
            starts.nth(times - 1)
        })
    }

    pub fn ended(&self, name: &str, times: usize) {
        until(&format!("{name} ends {times} times"), || {
            self.count("end", name) == times
        });
    }

    /// Waits until no execution is left and every job has finished.
    pub fn drained(&self) {
        until("every job has finished", || {
            self.db
                .count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NULL")
                == 0
        });
    }

    /// Waits until a supervisor has found a process dead that sends no
    /// heartbeat: it has watched all others for a threshold as well.
    pub fn are_watched_for_a_threshold(&self) {
        self.db.execute(
            "INSERT INTO solid_queue_processes (kind, name, pid, heartbeat_seq, created_at, last_heartbeat_at) \
             VALUES ('Worker', 'worker-dead', 1, 3, '2026-11-20 10:00:00.000000', '2026-11-20 10:00:00.000000')",
        );
        until("the dead process is pruned", || {
            let dead = "SELECT count(*) AS n FROM solid_queue_processes WHERE name = 'worker-dead'";
            self.db.count(dead) == 0
        });
    }

    /// Lets a job that waits for it go on.
    pub fn open(&self, gate: &str) {
        File::create(self.directory.path().join(gate)).unwrap();
    }

    /// The path of a gate that a job waits for.
    pub fn gate(&self, gate: &str) -> String {
        self.directory.path().join(gate).display().to_string()
    }
}

/// A line of the effects.
#[derive(Debug, Clone)]
pub struct Effect {
    pub what: String,
    pub name: String,
    pub pid: i32,
    pub claim: i64,
}

/// A running process; killed when dropped.
pub struct Process {
    program: Program,
    log: PathBuf,
}

impl Process {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.program.id()).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        self::signal(self.pid(), signal);
    }

    /// Its standard input, if the test holds it.
    pub fn input(&mut self) -> &mut Option<ChildStdin> {
        &mut self.program.stdin
    }

    /// Stops it as SIGSTOP does, but not while it holds SQLite's write lock,
    /// for which everybody else would wait with it.
    pub fn freeze(&self, db: &TestDb) {
        suspend(db, self.pid());
    }

    /// Waits for its end.
    pub fn exit(&mut self) -> ExitStatus {
        super::wait::eventually("the process exits", || self.program.try_wait().unwrap())
    }

    pub fn is_running(&mut self) -> bool {
        self.program.try_wait().unwrap().is_none()
    }

    /// Waits until it has logged a text.
    pub fn logs(&self, text: &str) {
        until(&format!("it logs `{text}`"), || self.log().contains(text));
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

/// The same as [`Process::freeze`].
pub fn suspend(db: &TestDb, pid: i32) {
    let mut lock = (!db.is_postgres()).then(|| db.connect());
    if let Some(lock) = &mut lock {
        super::db::execute(lock, "BEGIN IMMEDIATE");
    }
    signal(pid, Signal::STOP);
    let stat = format!("/proc/{pid}/stat");
    until("the process stands still", || {
        let stat = std::fs::read_to_string(&stat).unwrap();
        stat.rsplit(')').next().unwrap().starts_with(" T")
    });
    if let Some(lock) = &mut lock {
        super::db::execute(lock, "ROLLBACK");
    }
}

/// For one that may have ended meanwhile.
pub fn signal_if_there(pid: i32, signal: Signal) {
    match kill_process(Pid::from_raw(pid).unwrap(), signal) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => panic!("cannot signal {pid}: {error}"),
    }
}

pub fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
        if std::thread::panicking() {
            eprintln!("--- log of {}\n{}", self.program.id(), self.log());
        }
    }
}

/// The file to which jobs write their actions, one append a line.
#[derive(Debug)]
pub struct Effects(File);

impl Effects {
    pub fn open(path: &Path) -> Self {
        Effects(
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .unwrap(),
        )
    }

    pub fn write(&self, what: &str, name: &str, claim: i64) {
        let line = format!("{what} {name} {} {claim}\n", std::process::id());
        (&self.0).write_all(line.as_bytes()).unwrap();
    }
}

/// The action of a test's job between its two lines.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Do {
    Nothing,
    /// Waits until the file exists.
    WaitFor(String),
    /// Waits until it exists or the claim is lost.
    WaitForOrLost(String),
    /// Waits until it exists, and ends with whatever interrupts it.
    Ask(String),
    /// Ends with an interruption, raised or not.
    Return(Raised),
    /// Waits for a stop, and ends with it before it is interrupted.
    ReturnOnceStopping,
    /// Makes the file and never ends, unless it exists.
    StickOnce(String),
    Sleep(u64),
    /// Keeps a core busy until the file exists.
    SpinUntil(String),
    Abort,
    Exit(i32),
    Panic,
    /// Leaves the process no file descriptor, and waits until the file exists.
    Starve(String),
    /// Starts another process in the role of this one, and leaves it alone.
    StartAnother,
    /// Runs a program that reads the standard input which it inherits to its end.
    ReadInput,
}

/// The interruptions, for arguments of jobs.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Raised {
    Lost,
    Cancelled,
    TimedOut,
    Stopping,
}

impl Raised {
    fn interrupted(self) -> Interrupted {
        match self {
            Raised::Lost => Interrupted::Lost,
            Raised::Cancelled => Interrupted::Cancelled,
            Raised::TimedOut => Interrupted::TimedOut,
            Raised::Stopping => Interrupted::Stopping,
        }
    }
}

impl Do {
    fn run<S>(&self, cx: &Context<'_, S>) -> JobResult {
        match self {
            Do::Nothing => {}
            Do::WaitFor(path) => until("the gate opens", || Path::new(path).exists()),
            Do::WaitForOrLost(path) => until("the gate opens", || {
                Path::new(path).exists() || cx.is_lost()
            }),
            Do::Ask(path) => {
                while !Path::new(path).exists() {
                    cx.sleep(Duration::from_millis(5))?;
                }
            }
            Do::Return(raised) => return Err(raised.interrupted().into()),
            Do::ReturnOnceStopping => {
                until("the process stops", || cx.is_stopping());
                return Err(Interrupted::Stopping.into());
            }
            Do::StickOnce(path) => {
                if File::create_new(path).is_ok() {
                    loop {
                        std::thread::park();
                    }
                }
            }
            Do::Sleep(ms) => std::thread::sleep(Duration::from_millis(*ms)),
            Do::SpinUntil(path) => {
                while !Path::new(path).exists() {
                    (0..10_000).for_each(|_| std::hint::spin_loop());
                }
            }
            Do::Abort => std::process::abort(),
            Do::Exit(code) => std::process::exit(*code),
            Do::Panic => panic!("as told"),
            Do::Starve(path) => {
                let resource = rustix::process::Resource::Nofile;
                let mut limit = rustix::process::getrlimit(resource);
                limit.current = Some(3);
                rustix::process::setrlimit(resource, limit).unwrap();
                until("the gate opens", || Path::new(path).exists());
            }
            Do::StartAnother => {
                let mut program = Command::new(std::env::current_exe()?);
                program.args(["support::process::role", "--exact", "--nocapture"]);
                program.stdin(Stdio::null()).spawn()?;
            }
            Do::ReadInput => {
                Command::new("cat").stdout(Stdio::null()).status()?;
            }
        }
        Ok(())
    }
}

/// Writes a line, does something, writes another: `end`, or the kind of its
/// error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Work {
    pub name: String,
    pub what: Do,
}

impl Work {
    pub fn new(name: &str, what: Do) -> Self {
        Work {
            name: name.to_owned(),
            what,
        }
    }
}

impl Job for Work {
    const NAME: &'static str = "work";
    type State = Effects;
    type Output = ();

    fn perform(self, cx: &Context<'_, Effects>) -> JobResult {
        cx.write("start", &self.name, cx.claim_id());
        let ended = self.what.run(cx);
        let what = ended.as_ref().map_or_else(JobError::kind, |()| "end");
        cx.write(what, &self.name, cx.claim_id());
        ended
    }
}

/// The same, at most once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Once(pub Work);

impl Job for Once {
    const NAME: &'static str = "once";
    type State = Effects;
    type Output = ();

    fn policy() -> Policy {
        Policy::new().delivery(Delivery::AtMostOnce)
    }

    fn perform(self, cx: &Context<'_, Effects>) -> JobResult {
        self.0.perform(cx)
    }
}
