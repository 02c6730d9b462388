//! Folds the history, in supervisors, and in workers where no supervisor runs.

use crate::clock;
use crate::db::model::history::cell::GaugeSample;
use crate::db::model::history::contribution::MOST_SERIES;
use crate::db::query::status;
use crate::db::table::ready::queue_names;
use crate::db::transition::fold::{self, FoldWhen, Folded};
use crate::process::base::history::clearing::HistoryClearing;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use std::time::{Duration, Instant};

/// The age of the newest fold from which on workers fold.
const OVERDUE: Duration = Duration::from_secs(180);

/// How often a worker looks whether no supervisor folds.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How long a worker folds between two of its heartbeats.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Folds what is due, with a sample of the queues and workers, until `until` or a stop. Returns
/// whether it has folded.
pub(crate) fn fold_due(
    session: &mut Session,
    when: FoldWhen,
    stop: &Stop,
    until: Instant,
) -> Result<bool, Duration> {
    if !session.run("look whether a fold is due", |conn| {
        fold::is_due(conn, when)
    })? {
        return Ok(false);
    }
    let sample = sample(session, stop, until)?;
    let (mut when, mut sample) = (when, sample.as_ref());
    let mut has_folded = false;
    while !stop.is_stopped() {
        let folded = session.run("fold what ended", |conn| fold::fold(conn, when, sample))?;
        has_folded |= matches!(folded, Folded::Done { .. });
        if !matches!(folded, Folded::Done { is_full: true, .. }) || clock::instant() >= until {
            break;
        }
        (when, sample) = (FoldWhen::Now, None);
    }
    Ok(has_folded)
}

/// Samples the queues and workers. Returns `None` if it is too late before all queues are sampled: a
/// queue that is missing in a sample counts as empty.
fn sample(
    session: &mut Session,
    stop: &Stop,
    until: Instant,
) -> Result<Option<GaugeSample>, Duration> {
    let names = session.run("sample the queues", |conn| queue_names(conn, ""))?;
    let mut sample = GaugeSample {
        queues: Vec::with_capacity(names.len()),
        fleet: session.run("sample the workers", status::fleet)?,
    };
    // Each in a call of its own, so that writers of a SQLite file need not wait for all.
    for name in names.into_iter().take(MOST_SERIES) {
        if stop.is_stopped() || clock::instant() >= until {
            return Ok(None);
        }
        let gauge = session.run("sample the queues", |conn| status::queue(conn, &name))?;
        sample.queues.push((name, gauge));
    }
    Ok(Some(sample))
}

/// Returns a function for a worker to call after each heartbeat. About once a minute, it folds if no
/// other process has done so for three minutes. Where it folds, it also clears.
pub(crate) fn in_worker(stop: &Stop) -> impl FnMut(&mut Session) + use<> {
    let stop = stop.clone();
    let mut next = clock::instant();
    let mut clearing = HistoryClearing::new();
    move |session| {
        let now = clock::instant();
        if now < next {
            return;
        }
        next = now + clock::jittered(LOOK_EVERY);
        let until = now + AT_ONCE;
        let folded = fold_due(session, FoldWhen::Overdue(OVERDUE), &stop, until);
        if folded == Ok(true) {
            // What fails is tried again in an hour.
            let _ = clearing.turn(session, &stop, until);
        }
    }
}
