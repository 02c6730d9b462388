//! The events that a subscriber received.

use std::sync::{Arc, Mutex};
use windlass::Event;
use windlass::hooks::Subscriber;

/// Keeps the text of every event.
#[derive(Debug, Clone, Default)]
pub struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    pub fn subscriber(&self) -> Subscriber {
        let events = Arc::clone(&self.0);
        Subscriber::new(move |event: &Event<'_>| events.lock().unwrap().push(format!("{event:?}")))
    }

    /// The events of one kind, such as `Finished`.
    pub fn of(&self, kind: &str) -> Vec<String> {
        let events = self.0.lock().unwrap();
        let is_it = |event: &&String| event.split(' ').next() == Some(kind);
        events.iter().filter(is_it).cloned().collect()
    }

    pub fn count(&self, kind: &str) -> usize {
        self.of(kind).len()
    }
}
