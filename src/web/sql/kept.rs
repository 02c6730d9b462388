//! A value that several requests share for a while.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The last value, and when it was set.
#[derive(Debug)]
pub(crate) struct Kept<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept(Mutex::new(None))
    }
}

impl<T: Clone> Kept<T> {
    /// Returns the value and its age, if it is younger than `most`.
    pub(crate) fn get(&self, at: Instant, most: Duration) -> Option<(T, Duration)> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (set_at, value) = kept.as_ref()?;
        let age = at.saturating_duration_since(*set_at);
        (age < most).then(|| (value.clone(), age))
    }

    pub(crate) fn set(&self, at: Instant, value: &T) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some((at, value.clone()));
    }
}
