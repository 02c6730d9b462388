//! The append-only journal of what the workers did: the witness.

use crate::hash_file::Digest;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use windlass::JobId;

/// Who did what.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pid: u32,
    job: i64,
    event: Event,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    Begin,
    End(Digest),
}

fn path(home: &Path) -> PathBuf {
    home.join("journal")
}

/// A worker's end of it.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
}

impl Journal {
    pub(crate) fn create(home: &Path) -> io::Result<()> {
        File::create_new(path(home)).map(drop)
    }

    pub(crate) fn open(home: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path(home))?;
        Ok(Journal { file })
    }

    pub(crate) fn begin(&self, job: JobId) -> io::Result<()> {
        self.append(job, Event::Begin)
    }

    pub(crate) fn end(&self, job: JobId, digest: Digest) -> io::Result<()> {
        self.append(job, Event::End(digest))
    }

    /// One write a record, so that those of two threads or processes never
    /// mix. The line feed comes first: should a kill cut a record short, the
    /// next one still begins a line.
    fn append(&self, job: JobId, event: Event) -> io::Result<()> {
        let record = Record {
            pid: std::process::id(),
            job: job.0,
            event,
        };
        let line = format!("\n{}", serde_json::to_string(&record)?);
        let written = (&self.file).write(line.as_bytes())?;
        if written < line.len() {
            return Err(io::Error::other("the journal took a part of a record only"));
        }
        Ok(())
    }
}

/// The contents of the journal so far.
#[derive(Debug)]
pub(crate) struct Story {
    file: File,
    /// Up to where it was read.
    offset: u64,
    /// The workers that began a job, in order.
    begun: BTreeMap<i64, Vec<u32>>,
    /// The workers that ended it, with what they computed.
    ended: BTreeMap<i64, Vec<(u32, Digest)>>,
    /// `(worker, job)`.
    running: BTreeSet<(u32, i64)>,
}

impl Story {
    pub(crate) fn open(home: &Path) -> io::Result<Self> {
        Ok(Story {
            file: File::open(path(home))?,
            offset: 0,
            begun: BTreeMap::new(),
            ended: BTreeMap::new(),
            running: BTreeSet::new(),
        })
    }

    /// Reads what was appended meanwhile.
    pub(crate) fn catch_up(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.offset))?;
        let mut news = Vec::new();
        self.file.read_to_end(&mut news)?;
        let mut lines = news.split(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            let is_last = lines.peek().is_none();
            match serde_json::from_slice(line) {
                Ok(record) => self.note(record),
                // Still being written, so read again the next time.
                Err(_) if is_last => return Ok(()),
                // Empty, or cut short by the kill: it tells nothing.
                Err(_) => {}
            }
            self.offset += line.len() as u64 + u64::from(!is_last);
        }
        Ok(())
    }

    fn note(&mut self, Record { pid, job, event }: Record) {
        match event {
            Event::Begin => {
                self.begun.entry(job).or_default().push(pid);
                self.running.insert((pid, job));
            }
            Event::End(digest) => {
                self.ended.entry(job).or_default().push((pid, digest));
                self.running.remove(&(pid, job));
            }
        }
    }

    /// Returns the number of jobs that have ended.
    pub(crate) fn ended(&self) -> usize {
        self.ended.len()
    }

    /// A worker in the middle of a job.
    pub(crate) fn busy_worker(&self) -> Option<u32> {
        self.running.first().map(|(pid, _)| *pid)
    }

    /// The jobs that a worker has begun and not ended.
    pub(crate) fn running_on(&self, pid: u32) -> Vec<i64> {
        let of_worker = self.running.range((pid, i64::MIN)..=(pid, i64::MAX));
        of_worker.map(|(_, job)| *job).collect()
    }

    /// Returns the digests that were computed for a job, one for each time it ended.
    pub(crate) fn digests(&self, job: i64) -> impl Iterator<Item = &Digest> {
        let ends = self.ended.get(&job).into_iter().flatten();
        ends.map(|(_, digest)| digest)
    }

    /// The jobs that a worker began and that another one ended after it.
    pub(crate) fn recovered_from(&self, pid: u32) -> usize {
        let taken_over = |job: &i64| {
            let ends = self.ended.get(job).into_iter().flatten();
            ends.last().is_some_and(|(last, _)| *last != pid)
        };
        let begun = self.begun.iter().filter(|(_, pids)| pids.contains(&pid));
        begun.filter(|(job, _)| taken_over(job)).count()
    }
}
