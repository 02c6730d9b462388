//! Maintenance: the duties that keep the tables in order, and the turns that they get.
//!
//! Dispatchers, supervisors, workers that run until they are idle, and the tests of applications choose from these duties.
//! Workers fold the history where no supervisor runs, and a web server runs operations.

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

/// The bounds of the pause after a turn of [`Upkeep::run`].
const REST: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// The first pause of a duty that the database refuses. It doubles with each failure, up to the duty's interval.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// The least time between two turns of a duty while another one always has more to do.
const WHILE_BUSY: Duration = Duration::from_secs(1);

/// Duties that one loop takes in turn.
pub(crate) struct Upkeep {
    duties: Vec<ScheduledDuty>,
    turns: DutyTurns,
    /// True if a duty has more to do.
    is_busy: bool,
}

struct ScheduledDuty {
    duty: Box<dyn Duty>,
    /// Its number in the turns that are shown.
    number: usize,
    /// The time of the next turn.
    due: Instant,
    /// The time of the last turn.
    last: Option<Instant>,
    /// True if the duty has named the time of its next turn: a job is due then.
    is_timed: bool,
    /// The number of turns that have failed since one succeeded.
    failures: u32,
}

/// The result of a turn on a database that answers.
enum TurnOutcome {
    /// The number of rows that it has changed.
    Changed(usize),
    /// The database has refused it: the time to wait.
    Failed(Duration),
}

/// The database is away: the time to wait.
struct DatabaseAway(Duration);

impl Upkeep {
    /// Creates the turns of these duties, of which all are due. `turns` receives the time of each.
    pub(crate) fn new(duties: Vec<Box<dyn Duty>>, turns: &DutyTurns) -> Self {
        let now = clock::instant();
        let scheduled = |duty: Box<dyn Duty>| ScheduledDuty {
            number: turns.expect(duty.name(), duty.interval()),
            duty,
            due: now,
            last: None,
            is_timed: false,
            failures: 0,
        };
        Upkeep {
            duties: duties.into_iter().map(scheduled).collect(),
            turns: turns.clone(),
            is_busy: false,
        }
    }

    /// Gives each duty that is due a turn, in their order. Returns the time until the next one is due.
    ///
    /// A duty that fails delays no other, unless the database is away.
    pub(crate) fn turn(&mut self, session: &mut Session, stop: &Stop) -> Duration {
        let was_busy = std::mem::take(&mut self.is_busy);
        for index in 0..self.duties.len() {
            if stop.is_stopped() {
                return Duration::ZERO;
            }
            if self.duties[index].is_due(was_busy)
                && let Err(DatabaseAway(delay)) = self.give_turn(index, session)
            {
                return delay;
            }
        }
        self.until_next()
    }

    /// Gives the duties their turns until the process must stop, the one first that is due for longest. After each it
    /// pauses for half the time that it took, so that other statements can run: that is two thirds of one connection's
    /// time.
    pub(crate) fn run(mut self, session: &mut Session, stop: &Stop) {
        while !stop.is_stopped() {
            session.moves();
            let now = clock::instant();
            let due = self.duties.iter().enumerate();
            let due = due.filter(|(_, scheduled)| scheduled.due <= now);
            let pause = match due.min_by_key(|(_, scheduled)| scheduled.due) {
                Some((index, _)) => match self.give_turn(index, session) {
                    Ok(_) => (now.elapsed() / 2).clamp(REST.0, REST.1),
                    Err(DatabaseAway(delay)) => delay,
                },
                None => self.until_next(),
            };
            session.rests();
            stop.wait(pause);
        }
    }

    /// Gives each duty a turn, whether or not it is due. Returns the number of rows that they have changed.
    ///
    /// # Errors
    /// If the database is away, or if a duty has failed and the others have changed nothing: the time to wait.
    pub(crate) fn turn_all(&mut self, session: &mut Session) -> Result<usize, Duration> {
        let (mut changed, mut failed) = (0, None);
        for index in 0..self.duties.len() {
            match self.give_turn(index, session) {
                Ok(TurnOutcome::Changed(rows)) => changed += rows,
                Ok(TurnOutcome::Failed(delay)) => failed = failed.max(Some(delay)),
                Err(DatabaseAway(delay)) => return Err(delay),
            }
        }
        match (changed, failed) {
            (0, Some(delay)) => Err(delay),
            _ => Ok(changed),
        }
    }

    /// Gives a duty a turn.
    fn give_turn(
        &mut self,
        index: usize,
        session: &mut Session,
    ) -> Result<TurnOutcome, DatabaseAway> {
        let is_alone = self.duties.len() == 1;
        let scheduled = &mut self.duties[index];
        match scheduled.duty.turn(session) {
            Ok(turn) => {
                self.is_busy |= turn.next == NextTurn::Now;
                scheduled.ended(turn.next, &self.turns);
                Ok(TurnOutcome::Changed(turn.changed))
            }
            Err(delay) if is_alone => {
                scheduled.due = clock::deadline(delay);
                Ok(TurnOutcome::Failed(delay))
            }
            Err(delay) if !session.is_well() => Err(DatabaseAway(delay)),
            Err(delay) => {
                scheduled.failed();
                Ok(TurnOutcome::Failed(delay))
            }
        }
    }

    /// Returns the time until the next turn.
    fn until_next(&self) -> Duration {
        let next = self.duties.iter().map(|scheduled| scheduled.due).min();
        next.map_or(clock::NEVER, |due| {
            due.saturating_duration_since(clock::instant())
        })
    }
}

impl ScheduledDuty {
    /// Returns whether it is its turn. While another duty has more to do, it comes less often, unless it has more to do
    /// itself, or has named the time.
    fn is_due(&self, is_busy: bool) -> bool {
        let now = clock::instant();
        let has_more = self.last.is_some_and(|last| self.due <= last);
        let is_early = self.last.is_some_and(|last| now - last < WHILE_BUSY);
        self.due <= now && (has_more || self.is_timed || !(is_busy && is_early))
    }

    /// Leaves a duty that the database refuses, for longer each time.
    fn failed(&mut self) {
        let pause = AFTER_FAILURE.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        self.is_timed = false;
        self.due = clock::deadline(pause.min(self.duty.interval()).max(AFTER_FAILURE / 2));
        self.last = Some(clock::instant());
    }

    fn ended(&mut self, next: NextTurn, turns: &DutyTurns) {
        self.failures = 0;
        let interval = self.duty.interval();
        let now = clock::instant();
        self.last = Some(now);
        self.is_timed = matches!(next, NextTurn::In(_));
        let pause = match next {
            NextTurn::Now => Duration::ZERO,
            NextTurn::In(pause) => pause,
            NextTurn::Interval => interval,
        };
        self.due = now
            .checked_add(pause)
            .unwrap_or_else(|| clock::deadline(pause));
        turns.had(self.number, interval.max(pause));
    }
}
