//! Maintenance: the duties that keep the tables in order, and the turns that they get.
//!
//! Dispatchers, supervisors, workers that run until they are idle, and the tests of applications choose from these duties.
//! Nothing else does what they do.

pub(crate) mod clear;
pub(crate) mod due;
pub(crate) mod faults;
pub(crate) mod fold;
pub(crate) mod operate;
pub(crate) mod prune;
pub(crate) mod sweep;

use crate::clock;
use crate::process::base::duty_turns::DutyTurns;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use std::time::{Duration, Instant};

/// A part of the maintenance. Each turn is bounded, and what it leaves is done by the next one.
pub(crate) trait Duty: Send {
    /// Returns the name under which its turns are shown.
    fn name(&self) -> &'static str;

    /// Returns the time between two turns, while nothing is left to do.
    fn interval(&self) -> Duration;

    /// Does a bounded part of the duty.
    ///
    /// # Errors
    /// If the database refuses, which the session has reported: the time to wait.
    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration>;
}

/// The result of a duty's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DutyTurn {
    /// The number of rows that it has changed, as far as the duty counts them.
    pub(crate) changed: usize,
    pub(crate) next: NextTurn,
}

/// The time of a duty's next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextTurn {
    /// At once, after the turns of the other duties that are due: there may be more to do.
    Now,
    /// After this time.
    In(Duration),
    /// After the interval of the duty.
    Interval,
}

impl DutyTurn {
    /// Returns a turn after which nothing is left to do.
    pub(crate) fn done() -> Self {
        DutyTurn {
            changed: 0,
            next: NextTurn::Interval,
        }
    }

    /// Returns a turn after which there is more to do if `is_more`.
    pub(crate) fn of(changed: usize, is_more: bool) -> Self {
        let next = match is_more {
            true => NextTurn::Now,
            false => NextTurn::Interval,
        };
        DutyTurn { changed, next }
    }
}

/// The bounds of the pause between the turns of [`Upkeep::run`].
const REST: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// Duties that one loop takes in turn.
pub(crate) struct Upkeep {
    duties: Vec<ScheduledDuty>,
    turns: DutyTurns,
}

struct ScheduledDuty {
    duty: Box<dyn Duty>,
    /// The time of the next turn.
    due: Instant,
    /// The number of turns that have failed since one succeeded.
    failures: u32,
}

impl Upkeep {
    /// Creates the turns of these duties, of which all are due. `turns` receives the time of each.
    pub(crate) fn new(duties: Vec<Box<dyn Duty>>, turns: &DutyTurns) -> Self {
        let now = clock::instant();
        for duty in &duties {
            turns.expect(duty.name(), duty.interval());
        }
        let duties = duties
            .into_iter()
            .map(|duty| ScheduledDuty {
                duty,
                due: now,
                failures: 0,
            })
            .collect();
        Upkeep {
            duties,
            turns: turns.clone(),
        }
    }

    /// Gives each duty that is due a turn, in their order. Returns the time until the next one is due.
    ///
    /// A duty that fails delays no other, unless the database is away.
    pub(crate) fn turn(&mut self, session: &mut Session, stop: &Stop) -> Duration {
        let is_alone = self.duties.len() == 1;
        for scheduled in &mut self.duties {
            if stop.is_stopped() {
                return Duration::ZERO;
            }
            if scheduled.due > clock::instant() {
                continue;
            }
            match scheduled.duty.turn(session) {
                Ok(turn) => scheduled.ended(turn.next, &self.turns),
                Err(delay) if !is_alone && !session.is_well() => return delay,
                Err(delay) => scheduled.failed(delay),
            }
        }
        self.next()
    }

    /// Gives the duties their turns until the process must stop. Between them it pauses for half the time that they took, so
    /// that other statements can run: that is two thirds of one connection's time.
    pub(crate) fn run(mut self, session: &mut Session, stop: &Stop) {
        while !stop.is_stopped() {
            session.moves();
            let start = clock::instant();
            let pause = self.turn(session, stop);
            let rest = (start.elapsed() / 2).clamp(REST.0, REST.1);
            session.rests();
            stop.wait(pause.max(rest));
        }
    }

    /// Gives each duty a turn, whether or not it is due. Returns the number of rows that they have changed.
    ///
    /// # Errors
    /// If the database is away: the time to wait.
    pub(crate) fn turn_all(&mut self, session: &mut Session) -> Result<usize, Duration> {
        let mut changed = 0;
        for scheduled in &mut self.duties {
            match scheduled.duty.turn(session) {
                Ok(turn) => {
                    scheduled.ended(turn.next, &self.turns);
                    changed += turn.changed;
                }
                Err(delay) if !session.is_well() => return Err(delay),
                Err(delay) => scheduled.failed(delay),
            }
        }
        Ok(changed)
    }

    /// Returns the time until the next turn.
    fn next(&self) -> Duration {
        let next = self.duties.iter().map(|scheduled| scheduled.due).min();
        next.map_or(clock::NEVER, |due| {
            due.saturating_duration_since(clock::instant())
        })
    }
}

impl ScheduledDuty {
    /// Leaves a duty that the database refuses, for longer each time, up to its interval.
    fn failed(&mut self, delay: Duration) {
        let longer = delay.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        self.due = clock::deadline(longer.min(self.duty.interval()).max(delay));
    }

    fn ended(&mut self, next: NextTurn, turns: &DutyTurns) {
        self.failures = 0;
        let interval = self.duty.interval();
        let pause = match next {
            NextTurn::Now => Duration::ZERO,
            NextTurn::In(pause) => pause,
            NextTurn::Interval => interval,
        };
        self.due = clock::deadline(pause);
        turns.had(self.duty.name(), interval.max(pause));
    }
}
