//! The duty that folds the history: what processes have added becomes counts of minutes and hours.

use crate::clock;
use crate::db::model::history::cell::GaugeSample;
use crate::db::model::history::contribution::MOST_SERIES;
use crate::db::query::status;
use crate::db::table::ready::queue_names;
use crate::db::transition::fold::{self, FoldWhen, Folded};
use crate::process::base::duty_turns::DutyTurns;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::process::upkeep::{Duty, DutyTurn, NextTurn, Upkeep, clear};
use std::time::{Duration, Instant};

/// The time between two looks of a supervisor. The first one that looks in a minute of the database's clock folds.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// Folds what processes have added to the history, with a sample of the queues and workers.
pub(crate) struct Fold {
    when: FoldWhen,
    interval: Duration,
    /// The longest time for the sample.
    sampling: Duration,
    stop: Stop,
    /// True if the last turn has folded as much as one may: the next one goes on, without a sample.
    has_rest: bool,
    /// The clearing of a process that folds because no supervisor does.
    clearing: Option<Upkeep>,
}

impl Fold {
    /// Creates the duty, with at most `sampling` for the sample.
    pub(crate) fn new(when: FoldWhen, interval: Duration, sampling: Duration, stop: &Stop) -> Self {
        Fold {
            when,
            interval,
            sampling,
            stop: stop.clone(),
            has_rest: false,
            clearing: None,
        }
    }

    /// Creates the duty of a supervisor.
    pub(crate) fn in_supervisor(stop: &Stop) -> Self {
        Fold::new(FoldWhen::OnceAMinute, LOOK_EVERY, clock::NEVER, stop)
    }
}

impl Duty for Fold {
    fn name(&self) -> &'static str {
        "fold"
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let until = clock::deadline(self.sampling);
        let (mut when, mut gauges) = (FoldWhen::Now, None);
        if !self.has_rest {
            when = self.when;
            if !session.run("look whether a fold is due", |conn| {
                fold::is_due(conn, when)
            })? {
                return Ok(self.rests());
            }
            gauges = sample(session, &self.stop, until)?;
            // Another process samples and folds this minute.
            if self.stop.is_stopped() {
                return Ok(self.rests());
            }
        }
        let folded = session.run("fold what ended", |conn| {
            fold::fold(conn, when, gauges.as_ref())
        })?;
        self.has_rest = matches!(folded, Folded::Done { is_full: true, .. });
        if self.has_rest {
            return Ok(DutyTurn::of(1, true));
        }
        if let (Folded::Done { .. }, Some(clearing)) = (folded, &mut self.clearing) {
            turns_until(clearing, session, &self.stop, until);
        }
        Ok(self.rests())
    }
}

impl Fold {
    /// Processes that were started together do not look together.
    fn rests(&self) -> DutyTurn {
        DutyTurn {
            changed: 0,
            next: NextTurn::In(clock::jittered(self.interval)),
        }
    }
}

/// Samples the queues, workers and gates. Returns `None` if it is too late before all queues are sampled: a
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
        gates: session.run("sample the gates", status::gates)?,
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

// --- Workers fold and clear the history where no supervisor runs ---

/// The age of the newest fold from which on workers fold.
const OVERDUE: Duration = Duration::from_secs(180);

/// The interval at which a worker checks whether a supervisor folds.
const LOOK_IN_WORKER: Duration = Duration::from_secs(60);

/// The longest time that a worker folds between two of its heartbeats.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The interval at which a worker clears.
const CLEAR_EVERY: Duration = Duration::from_secs(3_600);

/// Returns a function for a worker to call after each heartbeat. About once a minute, it folds if no
/// other process has done so for three minutes. Where it folds, it also clears.
pub(crate) fn in_worker(stop: &Stop) -> impl FnMut(&mut Session) + use<> {
    let mut fold = Fold::new(FoldWhen::Overdue(OVERDUE), LOOK_IN_WORKER, AT_ONCE, stop);
    let clearing = clear::of_history(CLEAR_EVERY);
    fold.clearing = Some(Upkeep::new(clearing, &DutyTurns::default()));
    let mut upkeep = Upkeep::new(vec![Box::new(fold)], &DutyTurns::default());
    let stop = stop.clone();
    move |session| turns_until(&mut upkeep, session, &stop, clock::deadline(AT_ONCE))
}

/// Gives duties their turns until none is due, or until a time or a stop.
fn turns_until(upkeep: &mut Upkeep, session: &mut Session, stop: &Stop, until: Instant) {
    while !stop.is_stopped() && clock::instant() < until && upkeep.turn(session, stop).is_zero() {}
}
