//! Changes the settings of a running worker.

use crate::error::{Error, Result};
use crate::process::base::adjust::Adjust;
use crate::process::base::heartbeat::Heartbeat;
use crate::process::worker::adjust::job_threads::JobThreads;
use crate::process::worker::settings::{self, WorkerSetup};
use crate::queue::QueueSelector;
use crossbeam_channel::Sender;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The settings of a running worker that may change, and what has to hear of a change.
#[derive(Default)]
pub(crate) struct Tuning {
    /// `None` before the start.
    running: Mutex<Option<Running>>,
    /// How often a setting was changed.
    version: AtomicU64,
}

struct Running {
    setup: WorkerSetup,
    job_threads: Arc<JobThreads>,
    heartbeat: Weak<Heartbeat>,
    /// Wakes the poller.
    woken: Sender<()>,
}

impl std::fmt::Debug for Tuning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tuning").finish_non_exhaustive()
    }
}

impl Tuning {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes changes possible from now on.
    pub(crate) fn attach(
        &self,
        setup: &WorkerSetup,
        job_threads: &Arc<JobThreads>,
        heartbeat: &Arc<Heartbeat>,
        woken: Sender<()>,
    ) {
        *self.running() = Some(Running {
            setup: setup.clone(),
            job_threads: Arc::clone(job_threads),
            heartbeat: Arc::downgrade(heartbeat),
            woken,
        });
    }

    /// Returns how often a setting was changed so far.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Returns the queues of the worker.
    pub(crate) fn queues(&self) -> Vec<QueueSelector> {
        let running = self.running();
        running
            .as_ref()
            .map(|running| running.setup.queues.clone())
            .unwrap_or_default()
    }

    fn change(&self, change: impl FnOnce(&mut Running) -> Result<bool>) -> Result<()> {
        let mut running = self.running();
        let Some(running) = running.as_mut() else {
            return Err(stopped());
        };
        if !change(running)? {
            return Err(stopped());
        }
        if let Some(heartbeat) = running.heartbeat.upgrade() {
            heartbeat.describe(running.setup.identity());
        }
        self.version.fetch_add(1, Ordering::SeqCst);
        // A full channel wakes the poller already.
        let _ = running.woken.try_send(());
        Ok(())
    }
}

fn stopped() -> Error {
    Error::Settings("cannot change the worker: it has stopped, or is about to".to_owned())
}

impl Adjust for Tuning {
    fn threads(&self, threads: usize) -> Result<()> {
        settings::check_threads(threads)?;
        self.change(|running| {
            let changed = running.job_threads.resize(threads)?;
            running.setup.threads = threads;
            Ok(changed)
        })
    }

    fn queues(&self, queues: Vec<QueueSelector>) -> Result<()> {
        settings::check_queues(&queues)?;
        self.change(|running| {
            running.setup.queues = queues;
            Ok(running.job_threads.is_open())
        })
    }
}
