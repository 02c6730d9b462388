//! Changes of the threads and the queues of a running worker.

use crate::error::{Error, Result};
use crate::process::base::handle::Adjust;
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::stop::{self, Stop};
use crate::process::worker::pool::{Assignment, Pool};
use crate::process::worker::ranked::{RankedReceiver, RankedSender, ranked};
use crate::process::worker::settings::{self, WorkerSetup};
use crate::queue::QueueSelector;
use crossbeam_channel::Sender;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

// --- The job threads of a worker, whose number may change while they run ---

/// Starts and ends job threads.
pub(crate) struct JobThreads {
    /// Not owned: the channels of the pool close when the poller and the threads have ended.
    pool: Weak<Pool>,
    stop: Stop,
    assignments: RankedReceiver<Assignment>,
    state: Mutex<JobThreadsState>,
}

#[derive(Default)]
struct JobThreadsState {
    handles: Vec<JoinHandle<()>>,
    /// The number of threads, without those that were told to end.
    threads: usize,
    /// The number of threads that were started so far.
    named: usize,
}

impl JobThreads {
    /// Starts threads. They end when the sender of assignments is dropped and all jobs that were
    /// sent are done, or when there are to be fewer.
    pub(crate) fn start(
        pool: &Arc<Pool>,
        threads: usize,
    ) -> Result<(RankedSender<Assignment>, Arc<Self>)> {
        let (sender, assignments) = ranked();
        let all = Arc::new(JobThreads {
            pool: Arc::downgrade(pool),
            stop: pool.stop.clone(),
            assignments,
            state: Mutex::default(),
        });
        all.resize(threads)?;
        Ok((sender, all))
    }

    fn state(&self) -> MutexGuard<'_, JobThreadsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts threads, or lets some end after their job, until there are this many. Returns `false`
    /// if the worker stops.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started. Those that were started stay.
    pub(crate) fn resize(&self, threads: usize) -> Result<bool> {
        let mut state = self.state();
        let Some(pool) = self.pool.upgrade().filter(|_| !self.stop.is_stopped()) else {
            return Ok(false);
        };
        state.handles.retain(|handle| !handle.is_finished());
        while state.threads > threads {
            self.assignments.dismiss();
            state.threads -= 1;
        }
        let started = self.grow(&pool, &mut state, threads);
        pool.occupancy().set_threads(state.threads);
        started.map(|()| true)
    }

    fn grow(&self, pool: &Arc<Pool>, state: &mut JobThreadsState, threads: usize) -> Result<()> {
        while state.threads < threads {
            // A thread that was told to end, and has not heard of it yet, stays.
            if !self.assignments.keep() {
                let name = format!("job-{}", state.named + 1);
                let assignments = self.assignments.clone();
                pool.occupancy().arrive();
                let handle = stop::spawn_vital(&name, &self.stop, {
                    let pool = Arc::clone(pool);
                    move || {
                        pool.work(&assignments);
                        pool.occupancy().leave();
                    }
                });
                match handle {
                    Ok(handle) => state.handles.push(handle),
                    Err(error) => {
                        pool.occupancy().leave();
                        return Err(error);
                    }
                }
                state.named += 1;
            }
            state.threads += 1;
        }
        Ok(())
    }

    /// Returns whether the worker runs and does not stop.
    pub(crate) fn is_open(&self) -> bool {
        self.pool.strong_count() > 0 && !self.stop.is_stopped()
    }

    /// Returns the threads, to wait for them. Call it after the stop: no thread is started then.
    pub(crate) fn take(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.state().handles)
    }
}

// --- Changes the settings of a running worker ---

/// The settings of a running worker that may change, and what has to hear of a change.
#[derive(Default)]
pub(crate) struct Tuning {
    /// `None` before the start.
    running: Mutex<Option<Running>>,
    /// The number of changes of settings so far.
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
