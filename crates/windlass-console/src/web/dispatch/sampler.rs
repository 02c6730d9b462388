//! The thread that renders what is open.

use crate::web::access::viewer::Proof;
use crate::web::dispatch::queue::PageDispatcher;
use crate::web::entry;
use crate::web::http::PageError;
use crate::web::live::{self, RenderedTopic, Topic};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::Result;
use windlass::internal::clock;
use windlass::internal::db::table::web::{sessions, tokens};
use windlass::internal::error::ErrorContext as _;

/// The time between two renderings of a page.
const TICK: Duration = Duration::from_secs(2);

/// The time between two checks that viewers may still see their pages.
const VERIFY: Duration = Duration::from_secs(5);

/// Renders what is open, until the server stops.
pub(crate) fn run(mut dispatcher: PageDispatcher) {
    let site = Arc::clone(&dispatcher.site);
    let mut verified_at: Option<Instant> = None;
    while site.hub.wait_for_viewers() {
        let start = clock::instant();
        for topic in site.hub.topics() {
            let now = clock::instant();
            let is_due = |at: Instant| now.saturating_duration_since(at) >= VERIFY;
            if verified_at.is_none_or(is_due) {
                verify(&mut dispatcher);
                verified_at = Some(now);
            }
            if site.hub.is_stopped() {
                return;
            }
            let read_from = clock::instant();
            let rendered = render(&mut dispatcher, &topic);
            site.hub.publish(&topic, read_from, rendered);
        }
        // However slow the database is, it has at least half of the time for others.
        let took = start.elapsed();
        if !site.hub.pause(TICK.saturating_sub(took).max(took)) {
            break;
        }
    }
}

fn render(dispatcher: &mut PageDispatcher, topic: &Topic) -> RenderedTopic {
    match dispatcher.render(topic) {
        Ok(html) => RenderedTopic::Fragments(live::of_page(&html)),
        Err(PageError::Away) => {
            let source = dispatcher.site.sources.get(topic.database);
            let away = source.and_then(|source| source.outage.age());
            RenderedTopic::Away(away.unwrap_or_default())
        }
        Err(error) => {
            let page = &topic.address;
            log::debug!("web: cannot update {page}: {error:?}");
            RenderedTopic::Nothing
        }
    }
}

/// Drops the viewers whose session or token has ended.
fn verify(dispatcher: &mut PageDispatcher) {
    let site = Arc::clone(&dispatcher.site);
    let proofs = site.hub.proofs();
    let (mut session_ids, mut token_ids) = (Vec::new(), Vec::new());
    let (mut has_local, mut has_recalled) = (false, false);
    for proof in proofs {
        match proof {
            Proof::Session(id) => session_ids.push(id),
            Proof::Token(id) => token_ids.push(id),
            Proof::Local => has_local = true,
            Proof::Recalled => has_recalled = true,
            Proof::Nothing | Proof::Proxy => {}
        }
    }
    if has_local && let Ok(true) = entry::tokens_exist(&site, &mut dispatcher.readers) {
        site.hub.keep(|proof| proof != Proof::Local);
    }
    if session_ids.is_empty() && token_ids.is_empty() && !has_recalled {
        return;
    }
    let idle = site.access.settings.session_idle;
    let active: Result<(BTreeSet<i64>, BTreeSet<i64>)> = dispatcher.writers.read(0, |conn| {
        let sessions = sessions::active(conn, &session_ids, idle).during("check the sessions")?;
        let tokens = tokens::active(conn, &token_ids).during("check the tokens")?;
        Ok((sessions.into_iter().collect(), tokens.into_iter().collect()))
    });
    // While the database is away, they see what was last seen.
    if let Ok((sessions, tokens)) = active {
        site.hub.keep(|proof| match proof {
            // One that was opened meanwhile was proven when it was.
            Proof::Session(id) => sessions.contains(&id) || !session_ids.contains(&id),
            Proof::Token(id) => tokens.contains(&id) || !token_ids.contains(&id),
            // Now they can be proven: their browsers connect again.
            Proof::Recalled => false,
            _ => true,
        });
    }
}
