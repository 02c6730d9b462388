//! What a worker writes with its heartbeat: the progress of its jobs, and what they log.

use crate::db::model::claim::{Claimed, Fence};
use crate::db::table::claimed::{self, ClaimNote};
use crate::db::table::job_logs::{self, LoggedRun};
use crate::db::table::processes::HeartbeatReply;
use crate::job::running::Live;
use crate::process::base::heartbeat::HoldsClaims;
use crate::process::base::session::Session;
use crate::process::worker::in_flight::{ClaimNews, InFlight};
use std::time::Duration;

/// How many runs one statement stores the lines of, at up to 64 KiB each.
const AT_ONCE: usize = 20;

/// Stores what jobs have logged, if there is news: jobs, their processes and their runs. What cannot
/// be stored is included the next time.
pub(crate) fn store_logs<'r>(
    session: &mut Session,
    runs: impl Iterator<Item = (&'r Claimed, i64, &'r Live)>,
) {
    let news: Vec<(LoggedRun, &Live)> = runs
        .filter_map(|(job, process_id, live)| {
            let fence = Fence {
                process_id,
                claim_id: job.claim_id,
            };
            let news = live.log.news(fence, job.job_id, job.attempts, live.age());
            Some((news?, live))
        })
        .collect();
    let (mut rows, lives): (Vec<LoggedRun>, Vec<&Live>) = news.into_iter().unzip();
    let mut lives = lives.into_iter();
    while !rows.is_empty() {
        let rest = rows.split_off(rows.len().min(AT_ONCE));
        let written = session.run("store what jobs log", |conn| job_logs::save(conn, &rows));
        if written.is_err() {
            return;
        }
        for (row, live) in rows.iter().zip(&mut lives) {
            live.log.carried(row);
        }
        rows = rest;
    }
}

fn carry_logs(session: &mut Session, in_flight: &InFlight, process_id: i64) {
    let logging = in_flight.logging(process_id);
    let runs = logging
        .iter()
        .map(|held| (&*held.job, process_id, &*held.live));
    store_logs(session, runs);
}

/// Stores the progress of a process' jobs, if there is news, of runs that are older than a heartbeat's interval: most others
/// end before the next one. What cannot be stored is included in
/// the next heartbeat.
fn carry_notes(session: &mut Session, in_flight: &InFlight, process_id: i64, interval: Duration) {
    let news = in_flight.news(process_id, interval);
    if news.is_empty() {
        return;
    }
    let notes: Vec<ClaimNote<'_>> = news.iter().map(ClaimNews::note).collect();
    let written = session.run("note the progress of jobs", |conn| {
        claimed::save(conn, process_id, &notes)
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

    fn after_heartbeat(
        &self,
        session: &mut Session,
        process_id: i64,
        beat: &HeartbeatReply,
        interval: Duration,
    ) {
        self.cancel(&beat.cancelled);
        carry_notes(session, self, process_id, interval);
        carry_logs(session, self, process_id);
    }
}
