//! Job types for tests.

use super::wait::DEADLINE;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use windlass::jobs::{self, Attempt, JobLog};
use windlass::{AsConn, Context, Job, JobId, JobResult, Result};

/// Returns the attempts at a job that did not succeed, newest first.
pub fn attempts<C: AsConn + ?Sized>(conn: &mut C, job: JobId) -> Result<Vec<Attempt>> {
    let found = jobs::find(conn, job)?;
    let attempts = found.map(|job| job.attempts).unwrap_or_default();
    Ok(attempts.into_iter().rev().collect())
}

/// Returns what the runs of a job logged, the oldest run first.
pub fn logs<C: AsConn + ?Sized>(conn: &mut C, job: JobId) -> Result<Vec<JobLog>> {
    let found = jobs::find(conn, job)?;
    Ok(found.map(|job| job.logs).unwrap_or_default())
}

/// The lines that jobs have written, in order.
#[derive(Debug, Default)]
pub struct Log(Mutex<Vec<String>>);

impl Log {
    pub fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Returns the number of lines that start with this word.
    pub fn count(&self, word: &str) -> usize {
        let lines = self.0.lock().unwrap();
        let first = |line: &&String| line.split(' ').next() == Some(word);
        lines.iter().filter(first).count()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Notes its text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Note {
    pub text: String,
}

impl Note {
    pub fn new(text: impl Into<String>) -> Self {
        Note { text: text.into() }
    }
}

impl Job for Note {
    const NAME: &'static str = "note";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add(self.text);
        Ok(())
    }
}

/// Holds the jobs that come to it until it is opened.
#[derive(Debug, Default)]
pub struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Gate {
    pub fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// Returns the number of jobs that have come to the gate.
    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// Returns the number of jobs that have gone through.
    pub fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }

    pub fn pass(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let is_open = self.is_open.lock().unwrap();
        let wait = self
            .opened
            .wait_timeout_while(is_open, DEADLINE, |is_open| !*is_open);
        assert!(!wait.unwrap().1.timed_out(), "nobody opened the gate");
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs until its gate is opened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Wait;

impl Job for Wait {
    const NAME: &'static str = "wait";
    type State = Gate;
    type Output = ();

    fn perform(self, cx: &Context<'_, Gate>) -> JobResult {
        cx.pass();
        Ok(())
    }
}
