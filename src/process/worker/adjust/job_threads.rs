//! The job threads of a worker, whose number may change while they run.

use crate::error::Result;
use crate::process::base::stop::Stop;
use crate::process::base::threads;
use crate::process::worker::pool::{Assignment, Pool};
use crate::process::worker::ranked::{RankedReceiver, RankedSender, ranked};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

/// Starts and ends job threads.
pub(crate) struct JobThreads {
    /// Not owned: the channels of the pool close when the poller and the threads have ended.
    pool: Weak<Pool>,
    stop: Stop,
    assignments: RankedReceiver<Assignment>,
    /// Each message ends one thread, after its job.
    leave: (Sender<()>, Receiver<()>),
    state: Mutex<JobThreadsState>,
}

#[derive(Default)]
struct JobThreadsState {
    handles: Vec<JoinHandle<()>>,
    /// How many threads there are, without those that were told to end.
    threads: usize,
    /// How many were started so far.
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
            leave: unbounded(),
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
            let _ = self.leave.0.send(());
            state.threads -= 1;
        }
        let started = self.grow(&pool, &mut state, threads);
        pool.occupancy().set_threads(state.threads);
        started.map(|()| true)
    }

    fn grow(&self, pool: &Arc<Pool>, state: &mut JobThreadsState, threads: usize) -> Result<()> {
        while state.threads < threads {
            // A thread that was told to end, and has not heard of it yet, stays.
            if self.leave.1.try_recv().is_err() {
                let name = format!("job-{}", state.named + 1);
                let (assignments, leave) = (self.assignments.clone(), self.leave.clone());
                pool.occupancy().arrive();
                let handle = threads::spawn_vital(&name, &self.stop, {
                    let pool = Arc::clone(pool);
                    move || {
                        pool.work(&assignments, &leave.1);
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
