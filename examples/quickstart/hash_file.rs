//! The job: the SHA-256 and the number of lines of one file.

use crate::journal::Journal;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass::{Context, Job, JobResult};

/// Hashes a file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HashFile {
    path: FileName,
}

/// A path in JSON: text where it is UTF-8, which a path need not be, and its
/// bytes otherwise.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum FileName {
    Text(String),
    Bytes(Vec<u8>),
}

impl HashFile {
    pub(crate) fn new(path: &Path) -> Self {
        let path = match path.as_os_str().to_owned().into_string() {
            Ok(text) => FileName::Text(text),
            Err(other) => FileName::Bytes(other.into_vec()),
        };
        HashFile { path }
    }

    fn path(self) -> PathBuf {
        match self.path {
            FileName::Text(text) => PathBuf::from(text),
            FileName::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        }
    }
}

/// The state that the worker passes to its jobs.
pub(crate) struct Desk {
    pub(crate) journal: Journal,
    /// See `pause_for`.
    pub(crate) pause: Duration,
}

impl Job for HashFile {
    const NAME: &'static str = "hash_file";
    type State = Desk;
    type Output = ();

    fn perform(self, cx: &Context<'_, Desk>) -> JobResult {
        cx.journal.begin(cx.job_id())?;
        let digest = Digest::of(&self.path())?;
        #[expect(
            clippy::disallowed_methods,
            reason = "it stands for work, which takes time"
        )]
        std::thread::sleep(cx.pause);
        cx.journal.end(cx.job_id(), digest)?;
        Ok(())
    }
}

/// The values that are computed of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digest {
    sha256: String,
    /// A last line that no line feed ends counts too.
    lines: u64,
}

impl Digest {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut hasher = Sha256::new();
        let mut lines = 0;
        let mut last = b'\n';
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => &buffer[..read],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            hasher.update(read);
            lines += read.iter().filter(|byte| **byte == b'\n').count() as u64;
            last = read[read.len() - 1];
        }
        Ok(Digest {
            sha256: hex(&hasher.finalize()),
            lines: lines + u64::from(last != b'\n'),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
