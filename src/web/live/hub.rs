//! The pages that are open, and what is sent to them.

use crate::clock;
use crate::web::access::viewer::Proof;
use crate::web::live::fragments::{Fragment, changed};
use crate::web::live::topic::Topic;
use axum::body::Bytes;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The most open pages.
const VIEWERS: usize = 256;

/// The most different pages that are rendered.
const TOPICS: usize = 64;

/// How many messages wait for a viewer; one that is further behind is dropped.
const BEHIND: usize = 8;

/// How long a browser waits before it connects again, in milliseconds.
const RETRY: u32 = 3_000;

/// A topic that was rendered.
#[derive(Debug)]
pub(crate) enum RenderedTopic {
    Fragments(Vec<Fragment>),
    /// The database has not answered for so long.
    Away(Duration),
    /// It was late, or failed: the next time may be better.
    Nothing,
}

/// All open pages.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    state: Mutex<HubState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct HubState {
    topics: HashMap<Topic, OpenTopic>,
    is_stopped: bool,
}

#[derive(Debug, Default)]
struct OpenTopic {
    viewers: Vec<OpenPage>,
    last: Vec<Fragment>,
}

#[derive(Debug)]
struct OpenPage {
    sender: mpsc::Sender<Bytes>,
    proof: Proof,
    opened_at: Instant,
    /// Whether it has got nothing yet: fragments may have changed since it was loaded.
    is_new: bool,
}

/// Without news, it keeps a connection open, and finds the viewers that have gone.
const NOTHING: &[u8] = b":\n\n";

/// Returns a message of Server-Sent Events.
fn message(event: &str, data: &serde_json::Value) -> Bytes {
    Bytes::from(format!("event: {event}\ndata: {data}\n\n"))
}

fn fragments<'f>(fragments: impl IntoIterator<Item = &'f Fragment>) -> Bytes {
    let pairs = fragments
        .into_iter()
        .map(|fragment| (fragment.name.clone(), fragment.html.clone().into()));
    message("fragments", &serde_json::Value::Object(pairs.collect()))
}

impl Hub {
    fn state(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an open page, and returns its messages. `None` if there are too many.
    pub(crate) fn open(&self, topic: Topic, proof: Proof) -> Option<mpsc::Receiver<Bytes>> {
        let mut state = self.state();
        let viewers: usize = state.topics.values().map(|topic| topic.viewers.len()).sum();
        let is_new = !state.topics.contains_key(&topic);
        if state.is_stopped || viewers >= VIEWERS || is_new && state.topics.len() >= TOPICS {
            return None;
        }
        let (sender, receiver) = mpsc::channel(BEHIND);
        let _ = sender.try_send(Bytes::from(format!("retry: {RETRY}\n\n")));
        state
            .topics
            .entry(topic)
            .or_default()
            .viewers
            .push(OpenPage {
                sender,
                proof,
                opened_at: clock::instant(),
                is_new: true,
            });
        self.changed.notify_all();
        Some(receiver)
    }

    /// Waits until a page is open. Returns `false` after a stop.
    pub(crate) fn wait_for_viewers(&self) -> bool {
        let idle = |state: &mut HubState| !state.is_stopped && state.topics.is_empty();
        let state = self.changed.wait_while(self.state(), idle);
        !state.unwrap_or_else(PoisonError::into_inner).is_stopped
    }

    /// Waits for the next turn. Returns `false` after a stop.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let goes_on = |state: &mut HubState| !state.is_stopped;
        let waited = self
            .changed
            .wait_timeout_while(self.state(), pause, goes_on);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.is_stopped
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// Returns the topics that have viewers, and forgets the others.
    pub(crate) fn topics(&self) -> Vec<Topic> {
        let mut state = self.state();
        state.topics.retain(|_, topic| {
            topic.viewers.retain(|viewer| !viewer.sender.is_closed());
            !topic.viewers.is_empty()
        });
        state.topics.keys().cloned().collect()
    }

    /// Sends what has changed to the viewers of a topic, which was read after `read_from`. Those that do
    /// not read are dropped.
    pub(crate) fn publish(&self, topic: &Topic, read_from: Instant, rendered: RenderedTopic) {
        let mut state = self.state();
        let Some(open) = state.topics.get_mut(topic) else {
            return;
        };
        let (all, news) = match rendered {
            RenderedTopic::Fragments(new) => {
                let difference = changed(&open.last, &new);
                let news = match difference.is_empty() {
                    true => Bytes::from_static(NOTHING),
                    false => fragments(difference),
                };
                let all = fragments(&new);
                open.last = new;
                (Some(all), news)
            }
            RenderedTopic::Away(since) => {
                // What changed meanwhile is sent as a whole.
                open.last.clear();
                let seconds = serde_json::json!({ "seconds": since.as_secs() });
                (None, message("away", &seconds))
            }
            RenderedTopic::Nothing => (None, Bytes::from_static(NOTHING)),
        };
        open.viewers.retain_mut(|viewer| {
            let message = match &all {
                // The page of this viewer was loaded meanwhile: it may show what came after this was
                // read, such as a change of the viewer's own.
                Some(_) if viewer.opened_at > read_from => Bytes::from_static(NOTHING),
                Some(all) if viewer.is_new => {
                    viewer.is_new = false;
                    all.clone()
                }
                _ => news.clone(),
            };
            viewer.sender.try_send(message).is_ok()
        });
    }

    /// Returns by what the viewers are proven.
    pub(crate) fn proofs(&self) -> Vec<Proof> {
        let state = self.state();
        let viewers = state.topics.values().flat_map(|topic| &topic.viewers);
        viewers.map(|viewer| viewer.proof).collect()
    }

    /// Drops the viewers whose proof is not valid any more.
    pub(crate) fn keep(&self, is_valid: impl Fn(Proof) -> bool) {
        let mut state = self.state();
        for topic in state.topics.values_mut() {
            topic.viewers.retain(|viewer| is_valid(viewer.proof));
        }
    }

    /// Drops all viewers, and accepts no more.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.is_stopped = true;
        state.topics.clear();
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::access::viewer::Role;

    fn topic(address: &str) -> Topic {
        Topic {
            database: 0,
            address: address.to_owned(),
            role: Role::Viewer,
        }
    }

    fn rendered(html: &str) -> RenderedTopic {
        RenderedTopic::Fragments(vec![Fragment {
            name: "a".to_owned(),
            html: html.to_owned(),
        }])
    }

    fn publish(hub: &Hub, rendered: RenderedTopic) {
        hub.publish(&topic("/"), clock::instant(), rendered);
    }

    fn received(viewer: &mut mpsc::Receiver<Bytes>) -> Vec<String> {
        let messages = std::iter::from_fn(|| viewer.try_recv().ok());
        messages
            .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn a_viewer_gets_all_first_and_then_what_changes() {
        let hub = Hub::default();
        let mut one = hub.open(topic("/"), Proof::Local).unwrap();
        publish(&hub, rendered("1"));
        let first = "event: fragments\ndata: {\"a\":\"1\"}\n\n";
        assert_eq!(received(&mut one), ["retry: 3000\n\n", first]);
        publish(&hub, rendered("1"));
        assert_eq!(received(&mut one), [":\n\n"]);
        let mut other = hub.open(topic("/"), Proof::Local).unwrap();
        publish(&hub, rendered("1"));
        assert_eq!(received(&mut one), [":\n\n"]);
        assert_eq!(received(&mut other), ["retry: 3000\n\n", first]);
        publish(&hub, rendered("2"));
        let second = "event: fragments\ndata: {\"a\":\"2\"}\n\n";
        assert_eq!(received(&mut one), [second]);
        assert_eq!(received(&mut other), [second]);
        publish(&hub, RenderedTopic::Away(Duration::from_secs(3)));
        assert_eq!(
            received(&mut one),
            ["event: away\ndata: {\"seconds\":3}\n\n"]
        );
        publish(&hub, rendered("2"));
        assert_eq!(received(&mut one), [second]);
    }

    #[test]
    fn a_viewer_gets_nothing_that_was_read_before_its_page() {
        let hub = Hub::default();
        let mut one = hub.open(topic("/"), Proof::Local).unwrap();
        let read_from = clock::instant();
        let mut late = hub.open(topic("/"), Proof::Local).unwrap();
        hub.publish(&topic("/"), read_from, rendered("before"));
        assert!(received(&mut one).join("").contains("before"));
        assert_eq!(received(&mut late), ["retry: 3000\n\n", ":\n\n"]);
        publish(&hub, rendered("before"));
        assert!(received(&mut late).join("").contains("before"));
    }

    #[test]
    fn a_viewer_that_does_not_read_is_dropped() {
        let hub = Hub::default();
        let slow = hub.open(topic("/"), Proof::Local).unwrap();
        let mut quick = hub.open(topic("/"), Proof::Local).unwrap();
        for number in 0..=BEHIND {
            publish(&hub, rendered(&number.to_string()));
            received(&mut quick);
        }
        assert!(slow.is_closed() && !quick.is_closed());
        drop(quick);
        assert_eq!(hub.topics(), []);
    }

    #[test]
    fn there_are_bounds() {
        let hub = Hub::default();
        let pages: Vec<_> = (0..TOPICS)
            .map(|number| hub.open(topic(&number.to_string()), Proof::Local).unwrap())
            .collect();
        assert!(hub.open(topic("another"), Proof::Local).is_none());
        let more: Vec<_> = (TOPICS..VIEWERS)
            .map(|_| hub.open(topic("0"), Proof::Local).unwrap())
            .collect();
        assert!(hub.open(topic("0"), Proof::Local).is_none());
        drop((pages, more));
        assert_eq!(hub.topics(), []);
        assert!(hub.open(topic("another"), Proof::Local).is_some());
    }

    #[test]
    fn a_session_that_has_ended_sees_no_more() {
        let hub = Hub::default();
        let ended = hub.open(topic("/"), Proof::Session(1)).unwrap();
        let valid = hub.open(topic("/"), Proof::Session(2)).unwrap();
        hub.keep(|proof| proof == Proof::Session(2));
        assert!(ended.is_closed() && !valid.is_closed());
        hub.stop();
        assert!(valid.is_closed() && !hub.wait_for_viewers());
        assert!(hub.open(topic("/"), Proof::Local).is_none());
    }
}
