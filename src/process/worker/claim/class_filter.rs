//! The classes that a worker claims: those it has registered, without the paused ones.

use crate::clock;
use crate::db::table::run_time::class_pauses;
use crate::process::base::session::Session;
use std::time::{Duration, Instant};

/// How often the paused classes are read.
pub(crate) const READ_EVERY: Duration = Duration::from_secs(1);

/// What a worker may claim at present.
#[derive(Debug)]
pub(crate) struct ClassFilter {
    registered: Vec<String>,
    /// The registered classes that are not paused.
    open: Vec<String>,
    /// Sorted.
    paused: Vec<String>,
    read_at: Option<Instant>,
}

impl ClassFilter {
    pub(crate) fn new(registered: Vec<String>) -> Self {
        ClassFilter {
            open: registered.clone(),
            registered,
            paused: Vec::new(),
            read_at: None,
        }
    }

    /// Reads the paused classes, unless that was done within [`READ_EVERY`]. Returns `true` if they
    /// have changed. If they cannot be read, those read last are used.
    pub(crate) fn refresh(&mut self, session: &mut Session) -> bool {
        if self.read_at.is_some_and(|at| at.elapsed() < READ_EVERY) {
            return false;
        }
        let read = session.run("read the paused classes", class_pauses::paused);
        self.read_at = Some(clock::instant());
        match read {
            Ok(paused) if paused != self.paused => {
                self.set(paused);
                true
            }
            _ => false,
        }
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
