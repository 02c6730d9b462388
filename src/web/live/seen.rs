//! What pages showed last, for the time in which the database is away.

use crate::web::live::topic::Topic;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most pages that are kept.
const PAGES: usize = 64;

/// The most bytes of one.
const BYTES: usize = 256 * 1024;

/// How long a page is kept.
const KEPT: Duration = Duration::from_secs(3600);

/// A page is not stored again within this time.
const FRESH: Duration = Duration::from_secs(2);

/// Between these, `base.html` has the content of a page.
const START: &str = "<!--page-->";
const END: &str = "<!--/page-->";

/// The content of a page, and when it was read.
#[derive(Debug, Clone)]
pub(crate) struct SeenPage {
    pub(crate) at: Instant,
    pub(crate) content: Arc<str>,
}

/// The last content of pages, the newest last.
#[derive(Debug, Default)]
pub(crate) struct SeenPages(Mutex<VecDeque<(Topic, SeenPage)>>);

impl SeenPages {
    /// Keeps the content of a page.
    pub(crate) fn keep(&self, topic: &Topic, html: &str, now: Instant) {
        let content = html
            .split_once(START)
            .and_then(|(_, rest)| rest.split_once(END));
        let Some((content, _)) = content.filter(|(content, _)| content.len() <= BYTES) else {
            return;
        };
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pages.iter().position(|(other, _)| other == topic);
        if let Some(known) = known {
            let is_fresh = |page: &SeenPage| now.saturating_duration_since(page.at) < FRESH;
            if pages.get(known).is_some_and(|(_, page)| is_fresh(page)) {
                return;
            }
            pages.remove(known);
        }
        if pages.len() >= PAGES {
            pages.pop_front();
        }
        let page = SeenPage {
            at: now,
            content: content.into(),
        };
        pages.push_back((topic.clone(), page));
    }

    /// Returns what a page showed last.
    pub(crate) fn get(&self, topic: &Topic, now: Instant) -> Option<SeenPage> {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, page) = pages.iter().find(|(other, _)| other == topic)?;
        (now.saturating_duration_since(page.at) < KEPT).then(|| page.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::web::access::viewer::Role;

    fn topic(address: &str) -> Topic {
        Topic {
            database: 0,
            address: address.to_owned(),
            role: Role::Viewer,
        }
    }

    #[test]
    fn the_newest_pages_are_kept() {
        let (seen, start) = (SeenPages::default(), clock::instant());
        let page = |text: &str| format!("<html>{START}{text}{END}</html>");
        for number in 0..=PAGES {
            seen.keep(&topic(&number.to_string()), &page("old"), start);
        }
        assert!(seen.get(&topic("0"), start).is_none());
        let one = topic("1");
        seen.keep(&one, &page("new"), start + FRESH / 2);
        assert_eq!(&*seen.get(&one, start).unwrap().content, "old");
        seen.keep(&one, &page("new"), start + FRESH);
        assert_eq!(&*seen.get(&one, start + FRESH).unwrap().content, "new");
        assert!(seen.get(&one, start + FRESH + KEPT).is_none());
        let operator = Topic {
            role: Role::Operator,
            ..one
        };
        assert!(seen.get(&operator, start).is_none());
    }

    #[test]
    fn what_is_no_page_or_too_large_is_not_kept() {
        let (seen, now) = (SeenPages::default(), clock::instant());
        let large = format!("{START}{}{END}", "x".repeat(BYTES + 1));
        for html in ["", START, END, large.as_str()] {
            seen.keep(&topic("/"), html, now);
            assert!(seen.get(&topic("/"), now).is_none());
        }
    }
}
