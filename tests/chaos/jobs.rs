//! The jobs of a run, and the log that they write.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use windlass::{Concurrency, Context, Delivery, Job, JobResult, Policy};

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

/// What a job does between its start and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Short,
    Long,
    Fails,
    Panics,
    /// Ends its process, always.
    Aborts,
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

/// How many jobs of a concurrency key may be under way at once.
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
        let (job, claim) = (cx.job_id(), cx.claim_id());
        cx.line(&format!("start {job} {claim} {}", std::process::id()));
        let begun = Instant::now();
        // A long one never asks: the books must be right without its help.
        let asks = self.kind != Kind::Long;
        while begun.elapsed() < Duration::from_millis(self.millis) && !(asks && cx.is_lost()) {
            std::thread::sleep(Duration::from_millis(self.millis.min(5)));
        }
        match self.kind {
            Kind::Short | Kind::Long => {}
            Kind::Fails => return Err("it fails by design, with a NUL \0 in its text".into()),
            Kind::Panics => panic!("it panics by design"),
            Kind::Aborts => std::process::abort(),
        }
        cx.line(&format!("end {job} {claim} {}", std::process::id()));
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

impl Work {
    /// The mix: mostly short, some of everything.
    pub fn draw(key: u64, killers: u32) -> Self {
        let (kind, millis) = match fastrand::u32(..1000) {
            n if n < killers => (Kind::Aborts, 0),
            0..40 => (Kind::Fails, 2),
            40..70 => (Kind::Panics, 2),
            70..130 => (Kind::Long, fastrand::u64(1500..2500)),
            _ => (Kind::Short, fastrand::u64(0..8)),
        };
        Work { key, kind, millis }
    }
}
