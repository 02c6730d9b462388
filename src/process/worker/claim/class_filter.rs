//! The classes that a worker claims: those it has registered, without the paused ones.

use crate::clock;
use crate::db::table::run_time::class_pauses;
use crate::process::base::session::Session;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the paused classes are read.
pub(crate) const READ_EVERY: Duration = Duration::from_secs(1);

/// The classes of a worker, for its threads that claim: the poller, and the completer when it
/// passes slots on. Whichever needs them first reads the pauses again.
#[derive(Debug)]
pub(crate) struct SharedClasses(Mutex<ClassFilter>);

impl SharedClasses {
    pub(crate) fn new(registered: Vec<String>) -> Self {
        SharedClasses(Mutex::new(ClassFilter::new(registered)))
    }

    /// Returns the filter, no older than [`READ_EVERY`] if the database answers.
    pub(crate) fn refreshed(&self, session: &mut Session) -> MutexGuard<'_, ClassFilter> {
        let mut filter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        filter.refresh(session);
        filter
    }

    /// Returns the filter as it was read last.
    pub(crate) fn last(&self) -> ClassFilter {
        let filter = self.0.lock();
        filter.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a worker may claim at present.
#[derive(Debug, Clone)]
pub(crate) struct ClassFilter {
    registered: Vec<String>,
    /// The registered classes that are not paused.
    open: Vec<String>,
    /// Sorted.
    paused: Vec<String>,
    read_at: Option<Instant>,
    /// How often the pauses have changed.
    version: u64,
}

impl ClassFilter {
    pub(crate) fn new(registered: Vec<String>) -> Self {
        ClassFilter {
            open: registered.clone(),
            registered,
            paused: Vec::new(),
            read_at: None,
            version: 0,
        }
    }

    /// Reads the paused classes, unless that was done within [`READ_EVERY`]. If they cannot be read,
    /// those read last are used.
    fn refresh(&mut self, session: &mut Session) {
        if self.read_at.is_some_and(|at| at.elapsed() < READ_EVERY) {
            return;
        }
        let read = session.run("read the paused classes", class_pauses::paused);
        self.read_at = Some(clock::instant());
        if let Ok(paused) = read
            && paused != self.paused
        {
            self.set(paused);
            self.version += 1;
        }
    }

    /// Returns how often the pauses have changed.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    fn set(&mut self, paused: Vec<String>) {
        let is_open = |class: &&String| paused.binary_search(class).is_err();
        self.open = self.registered.iter().filter(is_open).cloned().collect();
        self.paused = paused;
    }

    /// Returns the classes to claim.
    pub(crate) fn open(&self) -> &[String] {
        &self.open
    }

    /// Returns whether any class is paused.
    pub(crate) fn is_any_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    pub(crate) fn is_paused(&self, class: &str) -> bool {
        self.paused
            .binary_search_by(|paused| paused.as_str().cmp(class))
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paused_classes_are_left_out() {
        let mut filter = ClassFilter::new(vec!["b".to_owned(), "a".to_owned()]);
        assert_eq!(
            (filter.open(), filter.is_any_paused()),
            (&["b".to_owned(), "a".to_owned()][..], false)
        );
        filter.set(vec!["a".to_owned(), "z".to_owned()]);
        assert_eq!(filter.open(), ["b"]);
        assert!(filter.is_paused("a") && filter.is_paused("z") && !filter.is_paused("b"));
        filter.set(Vec::new());
        assert_eq!(filter.open(), ["b", "a"]);
    }
}
