//! The row of a process, and the intervals of its heartbeat.

use crate::error::Result;
use crate::job::lease::Lease;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// One registered process. A process that lost its registration takes a new
/// one, under a new name: nothing of the old one is trusted again.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) lease: Arc<Lease>,
}

/// When processes beat, and when they are taken for dead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pulse {
    pub(crate) interval: Duration,
    pub(crate) threshold: Duration,
}

impl Default for Pulse {
    fn default() -> Self {
        Pulse {
            interval: Duration::from_secs(10),
            threshold: Duration::from_secs(60),
        }
    }
}

/// A living server may be slow.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);

/// After a heartbeat without an answer, how long its session may hold the lock
/// of the row before the process takes a new one.
pub(crate) const PATIENCE_FOR_A_LOCK: Duration = Duration::from_secs(2);

impl Pulse {
    /// How long a process trusts its claims after a heartbeat: it must stop
    /// before anybody may take it for dead.
    pub(crate) fn trust(self) -> Duration {
        self.threshold.saturating_sub(self.interval)
    }

    /// How long a heartbeat is waited for: so short that another one, over a
    /// fresh connection, still comes in time.
    pub(crate) fn patience(self) -> Duration {
        let patience = self.interval.saturating_mul(2).min(self.threshold / 3);
        patience.max(LEAST_PATIENCE)
    }

    /// # Errors
    /// When a process would be taken for dead between two of its beats.
    pub(crate) fn check(self) -> Result<()> {
        let three = self.interval.checked_mul(3);
        if self.interval.is_zero() || three.is_none_or(|three| self.threshold < three) {
            return Err(crate::error::Error::Settings(format!(
                "the alive threshold ({:?}) must be at least three heartbeat intervals ({:?})",
                self.threshold, self.interval
            )));
        }
        Ok(())
    }
}

/// What a process is, apart from its row.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub(crate) kind: &'static str,
    /// JSON for people and for `windlass status`.
    pub(crate) metadata: String,
    /// The channel of Postgres on which it is notified of new work, if it is.
    pub(crate) channel: Option<String>,
}

impl Who {
    /// What its row says of it.
    pub(crate) fn says(&self, is_quiet: bool) -> String {
        let object = serde_json::from_str(&self.metadata);
        match object {
            Ok(serde_json::Value::Object(mut object)) if is_quiet => {
                object.insert("quiet".to_owned(), true.into());
                serde_json::Value::Object(object).to_string()
            }
            _ => self.metadata.clone(),
        }
    }
}

/// `worker-<token>.<number>`: the token is the program's, the number is
/// counted within it, so that no name comes twice.
pub(crate) fn name(kind: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!(
        "{}-{}.{number}",
        kind.to_lowercase(),
        crate::process::base::parent::token()
    )
}

pub(crate) fn hostname() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}
