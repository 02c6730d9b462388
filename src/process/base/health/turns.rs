//! Whether the loops of a process move.

use crate::clock;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A loop that works for longer without a turn hangs. Every statement ends earlier, whatever the
/// database does.
pub(crate) const HANGS: Duration = Duration::from_secs(120);

/// The loops of a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loops(Arc<Mutex<Vec<Weak<LoopState>>>>);

#[derive(Debug)]
struct LoopState {
    name: &'static str,
    /// When the loop last moved, or `None` while it waits for something to do.
    moved_at: Mutex<Option<Instant>>,
}

/// The place where one loop notes that it moves. The loop has ended when this is dropped.
#[derive(Debug, Clone)]
pub(crate) struct LoopTurns(Arc<LoopState>);

impl Loops {
    /// Adds a loop, which waits for something to do.
    pub(crate) fn add(&self, name: &'static str) -> LoopTurns {
        let state = Arc::new(LoopState {
            name,
            moved_at: Mutex::new(None),
        });
        let mut loops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loops.retain(|one| one.strong_count() > 0);
        loops.push(Arc::downgrade(&state));
        LoopTurns(state)
    }

    /// Returns the loops that have worked for at least `limit` without a turn, and for how long.
    pub(crate) fn hanging(&self, limit: Duration) -> Vec<(&'static str, Duration)> {
        let loops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |one: &LoopState| {
            let moved_at = one.moved_at.lock().unwrap_or_else(PoisonError::into_inner);
            Some((one.name, clock::instant() - (*moved_at)?))
        };
        let working = loops.iter().filter_map(Weak::upgrade);
        working
            .filter_map(|one| since(&one))
            .filter(|(_, still)| *still >= limit)
            .collect()
    }
}

impl LoopTurns {
    /// Notes that the loop works, and has just moved.
    pub(crate) fn moves(&self) {
        self.set(Some(clock::instant()));
    }

    /// Notes that the loop waits for something to do, or for a pause to end.
    pub(crate) fn rests(&self) {
        self.set(None);
    }

    fn set(&self, moved_at: Option<Instant>) {
        let mut place = self.0.moved_at.lock();
        **place.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut()) = moved_at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_hangs_when_it_works_and_does_not_move() {
        let loops = Loops::default();
        let (one, other) = (loops.add("one"), loops.add("other"));
        let names = |limit| {
            let hanging = loops.hanging(limit);
            hanging
                .into_iter()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(Duration::ZERO), [""; 0], "they wait");
        one.moves();
        assert_eq!(names(Duration::ZERO), ["one"]);
        assert_eq!(names(Duration::from_secs(60)), [""; 0], "it has just moved");
        other.moves();
        one.rests();
        assert_eq!(names(Duration::ZERO), ["other"]);
        drop(other);
        assert_eq!(names(Duration::ZERO), [""; 0], "it has ended");
    }
}
