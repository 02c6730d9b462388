//! What a worker writes with its heartbeat: the progress of its jobs.

use crate::db::table::processes::HeartbeatReply;
use crate::db::table::progress::{self, ClaimNote};
use crate::process::base::heartbeat::HoldsClaims;
use crate::process::base::session::Session;
use crate::process::worker::in_flight::{ClaimNews, InFlight};

/// Stores the progress of a process' jobs, if there is news. What cannot be stored is included in
/// the next heartbeat.
fn carry_notes(session: &mut Session, in_flight: &InFlight, process_id: i64) {
    let news = in_flight.news(process_id);
    if news.is_empty() {
        return;
    }
    let notes: Vec<ClaimNote<'_>> = news.iter().map(ClaimNews::note).collect();
    let written = session.run("note the progress of jobs", |conn| {
        progress::save(conn, process_id, &notes)
    });
    let written = written.unwrap_or_default();
    for held in &news {
        if written.contains(&held.claim_id) {
            held.live.carried(&held.news);
        }
    }
}

impl HoldsClaims for InFlight {
    fn wake(&self) {
        InFlight::wake(self);
    }

    fn after_heartbeat(&self, session: &mut Session, process_id: i64, beat: &HeartbeatReply) {
        self.cancel(&beat.cancelled);
        carry_notes(session, self, process_id);
    }
}
