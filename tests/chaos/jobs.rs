//! The jobs of a run, and the log that they write.

use diesel::RunQueryDsl;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use windlass::{AsConn, Backoff, Concurrency, Conn, Context, Delivery, Job, JobResult, Policy};

/// An append-only log: one write a line, which the kernel keeps whole and in
/// order, also when the writer is killed right after.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    pub fn open(path: &Path) -> std::io::Result<Self> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map(Log)
    }

    pub fn line(&self, text: &str) {
        if let Err(error) = (&self.0).write_all(format!("{text}\n").as_bytes()) {
            eprintln!("error: cannot write the log: {error}");
            std::process::abort();
        }
    }
}

/// Returns a line about what a job has done, under which claim and in which process.
pub fn line(what: &str, cx: &Context<'_, Log>) -> String {
    let (job, claim) = (cx.job_id(), cx.claim_id());
    format!("{what} {job} {claim} {}", std::process::id())
}

/// The work of a job between its start and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Short,
    Long,
    Fails,
    Panics,
    /// Ends its process, always.
    Aborts,
    /// Asks whether it should end, and passes the answer on.
    Polite,
}

/// A job at least once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Work {
    pub key: u64,
    pub kind: Kind,
    pub millis: u64,
}

/// A job at most once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnceOnly(pub Work);

/// A job with a timeout, which asks the database while it works.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Timed {
    pub work: Work,
    /// Overruns its timeout and does not ask: its process is ended for it.
    pub is_deaf: bool,
}

/// The job of the recurring task [`TICK`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tick;

/// The key of the recurring task, which fires each second.
pub const TICK: &str = "tick";

/// The most jobs of a concurrency key that may be under way at once.
pub const SLOTS: u32 = 2;

impl Job for Work {
    const NAME: &'static str = "chaos_work";
    type State = Log;
    type Output = ();

    /// One short job in five, with one of three keys.
    fn concurrency(&self) -> Option<Concurrency> {
        let is_limited = self.kind == Kind::Short && self.key.is_multiple_of(5);
        is_limited.then(|| Concurrency::new(self.key / 5 % 3).limit(SLOTS))
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.line(&line("start", cx));
        if self.kind == Kind::Polite {
            cx.check()?;
            cx.sleep(Duration::from_millis(self.millis))?;
        }
        let begun = Instant::now();
        // A long one never asks: the books must be right without its help.
        let asks = self.kind != Kind::Long;
        let waits = self.kind != Kind::Polite;
        while waits
            && begun.elapsed() < Duration::from_millis(self.millis)
            && !(asks && cx.is_lost())
        {
            std::thread::sleep(Duration::from_millis(self.millis.min(5)));
        }
        match self.kind {
            Kind::Short | Kind::Long | Kind::Polite => {}
            Kind::Fails => return Err("it fails by design, with a NUL \0 in its text".into()),
            Kind::Panics => panic!("it panics by design"),
            Kind::Aborts => std::process::abort(),
        }
        cx.line(&line("end", cx));
        Ok(())
    }
}

impl Job for OnceOnly {
    const NAME: &'static str = "chaos_once";
    type State = Log;
    type Output = ();

    fn policy() -> Policy {
        Policy::new().delivery(Delivery::AtMostOnce)
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        self.0.perform(cx)
    }
}

impl Job for Timed {
    const NAME: &'static str = "chaos_timed";
    type State = Log;
    type Output = ();

    fn policy() -> Policy {
        Policy::new()
            .max_attempts(2)
            .backoff(Backoff::Fixed(Duration::from_millis(100)))
            .timeout(Duration::from_millis(300))
            .timeout_grace(Duration::from_millis(500))
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.line(&line("start", cx));
        if self.is_deaf {
            std::thread::sleep(Duration::from_secs(2));
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(self.work.millis) {
            cx.check()?;
            let mut connection = cx.connection()?;
            match connection.as_conn() {
                #[cfg(feature = "sqlite")]
                Conn::Sqlite(conn) => diesel::sql_query(QUESTION).execute(conn)?,
                #[cfg(feature = "postgres")]
                Conn::Postgres(conn) => diesel::sql_query(QUESTION).execute(conn)?,
                _ => 0,
            };
            cx.sleep(Duration::from_millis(20))?;
        }
        cx.line(&line("end", cx));
        Ok(())
    }
}

const QUESTION: &str = "SELECT count(*) FROM solid_queue_ready_executions";

impl Job for Tick {
    const NAME: &'static str = "chaos_tick";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        let job = cx.job_id();
        let tick = cx.tick().map_or(0, |tick| tick.timestamp_micros());
        cx.line(&format!("tick {job} {tick}"));
        cx.line(&line("start", cx));
        cx.line(&line("end", cx));
        Ok(())
    }
}

impl Timed {
    /// Some end in time and some do not; one in thirty does not ask, where
    /// processes may end by force.
    pub fn draw(key: u64, may_be_deaf: bool) -> Self {
        let is_deaf = may_be_deaf && fastrand::u32(..30) == 0;
        let millis = if is_deaf { 0 } else { fastrand::u64(0..600) };
        let kind = Kind::Short;
        Timed {
            work: Work { key, kind, millis },
            is_deaf,
        }
    }
}

impl Work {
    /// The mix: mostly short, some of everything, and of a thousand `long`
    /// that take seconds.
    pub fn draw(key: u64, killers: u32, long: u32) -> Self {
        let (kind, millis) = match fastrand::u32(..1000) {
            n if n < killers => (Kind::Aborts, 0),
            0..40 => (Kind::Fails, 2),
            40..70 => (Kind::Panics, 2),
            n if n < 70 + long / 2 => (Kind::Long, fastrand::u64(1500..2500)),
            n if n < 70 + long => (Kind::Polite, fastrand::u64(500..2500)),
            _ => (Kind::Short, fastrand::u64(0..8)),
        };
        Work { key, kind, millis }
    }
}
