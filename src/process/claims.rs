//! What a worker holds, in memory: the other side of its claimed executions.

use super::registration::Registration;
use crate::clock;
use crate::db::ready::Claimed;
use crate::live::Live;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// A claim that this worker holds.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) job: Arc<Claimed>,
    pub(crate) registration: Arc<Registration>,
    /// When a thread began it.
    pub(crate) started: Option<Instant>,
    pub(crate) live: Arc<Live>,
}

impl Held {
    /// For how long a thread has been at it.
    pub(crate) fn ran(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |began| began.elapsed())
    }
}

/// The claims of a worker, from before they are asked for until their end
/// was accepted by the database.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: Mutex<HashMap<i64, Held>>,
    /// Held while a claim is under way and until its rows are entered, so
    /// that whoever compares memory with database sees neither too early.
    turn: Mutex<()>,
}

impl Claims {
    fn held(&self) -> MutexGuard<'_, HashMap<i64, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be held from before a claim until its rows are entered.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, unless a claim is under way: a heartbeat waits for nobody.
    pub(crate) fn try_turn(&self) -> Option<MutexGuard<'_, ()>> {
        match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn enter(&self, jobs: &[Arc<Claimed>], registration: &Arc<Registration>) {
        self.held().extend(jobs.iter().map(|job| {
            let held = Held {
                job: Arc::clone(job),
                registration: Arc::clone(registration),
                started: None,
                live: Arc::default(),
            };
            (job.claim_id, held)
        }));
    }

    /// Marks a claim as begun. `None`: it was given back meanwhile.
    pub(crate) fn start(&self, claim_id: i64) -> Option<Arc<Live>> {
        let mut held = self.held();
        let held = held.get_mut(&claim_id)?;
        held.started = Some(clock::instant());
        Some(Arc::clone(&held.live))
    }

    /// Tells the jobs of these claims that somebody wants them to end.
    pub(crate) fn cancel(&self, claims: &[i64]) {
        let held = self.held();
        for claim in claims {
            if let Some(held) = held.get(claim) {
                held.live.cancel();
            }
        }
    }

    /// Their ends are settled.
    pub(crate) fn remove(&self, claims: &[i64]) {
        let mut held = self.held();
        for claim in claims {
            held.remove(claim);
        }
    }

    /// Takes out those that no thread has begun.
    pub(crate) fn take_unstarted(&self) -> Vec<Held> {
        let mut held = self.held();
        let unstarted: Vec<i64> = held
            .iter()
            .filter(|(_, held)| held.started.is_none())
            .map(|(id, _)| *id)
            .collect();
        unstarted.iter().filter_map(|id| held.remove(id)).collect()
    }

    pub(crate) fn all(&self) -> Vec<Held> {
        self.held().values().cloned().collect()
    }

    pub(crate) fn holds(&self, claim_id: i64) -> bool {
        self.held().contains_key(&claim_id)
    }
}
