//! Live updates: one thread renders what viewers have open, once for all of them, and sends what has
//! changed. Nothing runs while no page is open.

use crate::web::access::viewer::{Proof, Role};
use axum::body::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass::internal::clock;

// --- The pages that are open, and what is sent to them ---

/// The most open pages.
const VIEWERS: usize = 256;

/// The most different pages that are rendered.
const TOPICS: usize = 64;

/// The most messages that wait for a viewer; one that is further behind is dropped.
const BEHIND: usize = 8;

/// The time that a browser waits before it connects again, in milliseconds.
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
    /// True if it has received no fragments yet: some may have changed since the page was loaded.
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
                // All fragments are sent after the outage: any may have changed meanwhile.
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

// --- The parts of a page that are kept up to date: its elements with `data-live="name"` ---

/// An element of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) name: String,
    /// The whole element.
    pub(crate) html: String,
}

const MARK: &str = " data-live=\"";

/// Returns the fragments of a page that this program has rendered: every element is closed, and `<`
/// occurs in tags only. An element within another fragment is a part of that one.
pub(crate) fn of_page(html: &str) -> Vec<Fragment> {
    let mut fragments = Vec::new();
    let mut from = 0;
    while let Some(found) = html.get(from..).and_then(|rest| rest.find(MARK)) {
        let mark = from + found;
        let element = html[..mark]
            .rfind('<')
            .and_then(|start| Some((start, end_of_element(html, start)?)));
        let name = html[mark + MARK.len()..].split('"').next();
        let (Some((start, end)), Some(name)) = (element, name) else {
            break;
        };
        fragments.push(Fragment {
            name: name.to_owned(),
            html: html[start..end].to_owned(),
        });
        from = end;
    }
    fragments
}

/// Returns the end of the element that starts at `start`.
fn end_of_element(html: &str, start: usize) -> Option<usize> {
    let name: &str = html.get(start + 1..)?;
    let length = name.find(|c: char| !c.is_ascii_alphanumeric())?;
    let name = &name[..length];
    let (opens, closes) = (format!("<{name}"), format!("</{name}>"));
    let mut depth = 0_usize;
    let mut at = start;
    loop {
        let next = at + html.get(at..)?.find('<')?;
        let rest = &html[next..];
        if rest.starts_with(&closes) {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(next + closes.len());
            }
        } else if let Some(after) = rest.strip_prefix(&opens)
            && after.starts_with([' ', '>', '\n', '\t'])
        {
            depth += 1;
        }
        at = next + 1;
    }
}

/// Returns those of `new` that are not the same in `old`.
pub(crate) fn changed<'n>(old: &[Fragment], new: &'n [Fragment]) -> Vec<&'n Fragment> {
    let is_new = |fragment: &&Fragment| !old.contains(fragment);
    new.iter().filter(is_new).collect()
}

// --- The topics that viewers have open ---

/// A page as viewers of one role see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Topic {
    /// The place of the database in the list of the site.
    pub(crate) database: usize,
    /// Path and query.
    pub(crate) address: String,
    pub(crate) role: Role,
}

// --- The last pages, cached for the time in which the database is away ---

/// The most pages that are cached.
const PAGES: usize = 64;

/// The most bytes of one.
const BYTES: usize = 256 * 1024;

/// The time for which a page is cached.
const LIFETIME: Duration = Duration::from_secs(3600);

/// A page is not stored again within this time.
const FRESH: Duration = Duration::from_secs(2);

/// Between these, `base.html` has the content of a page.
const START: &str = "<!--page-->";
const END: &str = "<!--/page-->";

/// The content of a page, and when it was read.
#[derive(Debug, Clone)]
pub(crate) struct CachedPage {
    pub(crate) at: Instant,
    pub(crate) content: Arc<str>,
}

/// The last content of pages, the newest last.
#[derive(Debug, Default)]
pub(crate) struct CachedPages(Mutex<VecDeque<(Topic, CachedPage)>>);

impl CachedPages {
    /// Caches the content of a page.
    pub(crate) fn put(&self, topic: &Topic, html: &str, now: Instant) {
        let content = html
            .split_once(START)
            .and_then(|(_, rest)| rest.split_once(END));
        let Some((content, _)) = content.filter(|(content, _)| content.len() <= BYTES) else {
            return;
        };
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pages.iter().position(|(other, _)| other == topic);
        if let Some(known) = known {
            let is_fresh = |page: &CachedPage| now.saturating_duration_since(page.at) < FRESH;
            if pages.get(known).is_some_and(|(_, page)| is_fresh(page)) {
                return;
            }
            pages.remove(known);
        }
        if pages.len() >= PAGES {
            pages.pop_front();
        }
        let page = CachedPage {
            at: now,
            content: content.into(),
        };
        pages.push_back((topic.clone(), page));
    }

    /// Returns what a page showed last.
    pub(crate) fn get(&self, topic: &Topic, now: Instant) -> Option<CachedPage> {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, page) = pages.iter().find(|(other, _)| other == topic)?;
        (now.saturating_duration_since(page.at) < LIFETIME).then(|| page.clone())
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

#[cfg(test)]
mod fragments_tests {
    use super::*;

    #[test]
    fn fragments_are_whole_elements() {
        let html = "<body data-live-from=\"/live\"><p class=\"asof\" data-live=\"frame/asof\">14:32</p>\
             <section data-live=\"a\"><section><p>one</p></section><sections></sections> two</section>\
             <div>no</div><section\n data-live=\"b\">three</section></body>";
        let fragments = of_page(html);
        let names: Vec<&str> = fragments.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["frame/asof", "a", "b"]);
        assert_eq!(
            fragments[0].html,
            "<p class=\"asof\" data-live=\"frame/asof\">14:32</p>"
        );
        assert!(fragments[1].html.starts_with("<section data-live=\"a\">"));
        assert!(fragments[1].html.ends_with("</sections> two</section>"));
        assert!(fragments[2].html.ends_with("three</section>"));
    }

    #[test]
    fn what_is_within_a_fragment_is_a_part_of_it() {
        let html = "<div data-live=\"a\">1<p data-live=\"b\">2</p></div><p data-live=\"c\">3</p>";
        let names: Vec<String> = of_page(html).into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn what_is_not_closed_is_left_out() {
        for html in [
            "",
            "<p data-live=\"a\">",
            "<p data-live=\"",
            " data-live=\"a\"",
            "</p data-live=\"a\">",
        ] {
            assert_eq!(of_page(html), [], "{html}");
        }
    }

    #[test]
    fn only_what_changed_is_sent() {
        let page = |one: &str| {
            of_page(&format!(
                "<p data-live=\"a\">{one}</p><p data-live=\"b\">2</p>"
            ))
        };
        let (old, new) = (page("1"), page("3"));
        assert_eq!(changed(&old, &old), [] as [&Fragment; 0]);
        assert_eq!(changed(&old, &new), [&new[0]]);
        assert_eq!(changed(&[], &new).len(), 2);
    }
}

#[cfg(test)]
mod cached_page_tests {
    use super::*;
    use crate::web::access::viewer::Role;
    use windlass::internal::clock;

    fn topic(address: &str) -> Topic {
        Topic {
            database: 0,
            address: address.to_owned(),
            role: Role::Viewer,
        }
    }

    #[test]
    fn the_newest_pages_are_cached() {
        let (cached, start) = (CachedPages::default(), clock::instant());
        let page = |text: &str| format!("<html>{START}{text}{END}</html>");
        for number in 0..=PAGES {
            cached.put(&topic(&number.to_string()), &page("old"), start);
        }
        assert!(cached.get(&topic("0"), start).is_none());
        let one = topic("1");
        cached.put(&one, &page("new"), start + FRESH / 2);
        assert_eq!(&*cached.get(&one, start).unwrap().content, "old");
        cached.put(&one, &page("new"), start + FRESH);
        assert_eq!(&*cached.get(&one, start + FRESH).unwrap().content, "new");
        assert!(cached.get(&one, start + FRESH + LIFETIME).is_none());
        let operator = Topic {
            role: Role::Operator,
            ..one
        };
        assert!(cached.get(&operator, start).is_none());
    }

    #[test]
    fn what_is_no_page_or_too_large_is_not_cached() {
        let (cached, now) = (CachedPages::default(), clock::instant());
        let large = format!("{START}{}{END}", "x".repeat(BYTES + 1));
        for html in ["", START, END, large.as_str()] {
            cached.put(&topic("/"), html, now);
            assert!(cached.get(&topic("/"), now).is_none());
        }
    }
}
