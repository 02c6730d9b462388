//! Every order of the steps of two or three actors at once, on connections of
//! their own: what each may answer, what is there afterwards, and every
//! invariant whenever something was committed. No order may end in a deadlock
//! or leave anybody waiting for nobody.
//!
//! On Postgres a step is a statement. On SQLite, where transactions are
//! serial, it is a transaction, or a statement outside of one.

pub mod acts;
mod arrivals;
mod batches;
mod crew;
mod dependencies;
mod faults;
mod flows;
mod gates;
mod joins;
mod limits;
mod memory;
mod moves;
mod names;
#[cfg(feature = "postgres")]
mod names_by_sql;
mod operators;
mod ordered;
mod pairs;
mod passing;
mod processes;
mod quotas;
mod runs;
mod semaphores;
mod ticks;
mod undos;
mod waits;
mod wire;
pub mod world;

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::conn::owned::DbConnection;
use crate::db::internal_tests::checks;
use crate::db::internal_tests::db::{TestDb, texts};
use crate::db::internal_tests::interleavings::crew::{Event, Habits, Hand, State, Work};
use crate::db::internal_tests::interleavings::memory::{Memory, Moment};
use crate::db::internal_tests::interleavings::world::World;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Actors that run at once on a database.
pub struct Play<'d> {
    db: &'d TestDb,
    hands: Vec<Hand>,
    setup: fn(&mut Conn<'_>) -> World,
    fault: &'static str,
    patience: Duration,
    habits: Habits,
    expected: Vec<&'d str>,
    /// The function that runs after all actors have ended. Its answer is part of the outcome.
    last: Option<fn(&mut Conn<'_>) -> diesel::QueryResult<String>>,
    /// The start of a violation that the setup of the play causes by intent.
    tolerated: Option<&'static str>,
    observer: DbConnection,
    /// For clearing and restoring the rows.
    untriggered: DbConnection,
    /// The world that was set up, and the time at which its rows were kept.
    kept: Option<(Instant, World)>,
    /// Nothing when every order is played to its end.
    memory: Option<Memory>,
    events: Receiver<(usize, Event)>,
    reports: Sender<(usize, Event)>,
}

/// More would mean that a play is cut too fine.
const MOST_SCHEDULES: usize = 3_000;

/// A statement that nobody blocks takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);
const RETRIES: u32 = 4;

/// The time that a statement may take in the last retry, on a machine that stalls.
const MOST_PATIENCE: Duration = Duration::from_secs(5);

/// The greatest age of a setup that is used again: the times in its rows count.
const OLDEST: Duration = Duration::from_secs(20);

/// Between two looks whether all wait for each other.
const LONGEST_WAIT: Duration = Duration::from_millis(16);

/// The end of a schedule, and the steps at which it could have gone another way.
struct Run {
    /// Nothing when it met another one.
    outcome: Option<String>,
    /// At each step, the actor that went on, and the number of those that could.
    choices: Vec<(usize, usize)>,
}

/// A failed check, with the steps that led to it.
struct Broken {
    what: String,
    is_slow: bool,
}

impl<'d> Play<'d> {
    pub fn new(db: &'d TestDb, setup: fn(&mut Conn<'_>) -> World) -> Self {
        let (reports, events) = unbounded();
        Play {
            db,
            hands: Vec::new(),
            setup,
            fault: "",
            patience: PATIENCE,
            habits: Habits::default(),
            expected: Vec::new(),
            last: None,
            tolerated: None,
            observer: db.connect(),
            untriggered: db.untriggered(),
            kept: None,
            // On SQLite steps are few, and each is a whole transaction.
            memory: db.is_postgres().then(Memory::default),
            events,
            reports,
        }
    }

    /// Another actor, with the habits given so far.
    pub fn actor(mut self, name: &'static str, work: Work) -> Self {
        let number = self.hands.len();
        let hand = Hand::hire(self.db, self.habits, (number, name), work, &self.reports);
        self.hands.push(hand);
        self
    }

    /// Takes the statements of a transaction that neither begin nor end it
    /// nor wait for locks with the one before: for actors with many.
    pub fn coarse(mut self) -> Self {
        self.habits.coarse = true;
        self
    }

    /// Does this when all have come to their end, and tells what it says.
    pub fn finally(mut self, last: fn(&mut Conn<'_>) -> diesel::QueryResult<String>) -> Self {
        self.last = Some(last);
        self
    }

    /// Starts with violations that begin like this.
    pub fn tolerates(mut self, violation: &'static str) -> Self {
        self.tolerated = Some(violation);
        self
    }

    fn violation(&mut self) -> Option<String> {
        let found = checks::violations(&mut self.observer.as_conn());
        let tolerated = self.tolerated;
        let mut found = found.into_iter();
        found.find(|violation| tolerated.is_none_or(|start| !violation.starts_with(start)))
    }

    /// With this fault in the transitions.
    pub fn with_fault(mut self, fault: &'static str) -> Self {
        self.fault = fault;
        self
    }

    /// Plays every order to its end, also one that comes to a state that was seen before.
    pub fn without_memory(mut self) -> Self {
        self.memory = None;
        self
    }

    /// Adds outcomes that only Postgres, where transactions overlap, may have.
    pub fn also_on_postgres(mut self, outcomes: &'d [&'d str]) -> Self {
        if self.db.is_postgres() {
            self.expected.extend(outcomes);
        }
        self
    }

    /// Plays all schedules, and compares the set of their outcomes.
    pub fn ends_in(mut self, outcomes: &[&str]) {
        let mut expected = std::mem::take(&mut self.expected);
        expected.extend(outcomes);
        expected.sort_unstable();
        let names: Vec<_> = self.hands.iter().map(|hand| hand.name).collect();
        let start = Instant::now();
        let outcomes = self.explore().unwrap_or_else(|what| panic!("{what}"));
        let schedules: usize = outcomes.values().sum();
        eprintln!(
            "{}: {schedules} schedules in {:?}",
            names.join(" x "),
            start.elapsed()
        );
        let found: Vec<&str> = outcomes.keys().map(String::as_str).collect();
        assert_eq!(found, expected, "the outcomes of all schedules");
    }

    /// Plays all schedules and counts the outcomes of those that did not come to a state of one before.
    pub fn explore(mut self) -> Result<BTreeMap<String, usize>, String> {
        let mut outcomes = BTreeMap::new();
        let mut path: Vec<(usize, usize)> = Vec::new();
        for _ in 0..MOST_SCHEDULES {
            let mut run = self.run(&path);
            for retry in 1..=RETRIES {
                // A busy machine is slow a few times, a fault always.
                if run.as_ref().is_err_and(|broken| broken.is_slow) {
                    self.let_all_go();
                    self.memory.iter_mut().for_each(Memory::forget);
                    if retry == RETRIES {
                        self.patience = MOST_PATIENCE;
                    }
                    run = self.run(&path);
                    self.patience = PATIENCE;
                }
            }
            let run = run.map_err(|broken| broken.what)?;
            if let Some(outcome) = run.outcome {
                *outcomes.entry(outcome).or_default() += 1;
            }
            path = run.choices;
            // The last step that could have been another's becomes the next one's.
            while path
                .last()
                .is_some_and(|(choice, width)| choice + 1 == *width)
            {
                path.pop();
            }
            match path.last_mut() {
                Some((choice, _)) => *choice += 1,
                None => return Ok(outcomes),
            }
        }
        Err(format!("more than {MOST_SCHEDULES} schedules"))
    }

    /// Sets up what is there before the actors begin, or takes the rows of a moment ago: that takes most of the time.
    fn set_up(&mut self) -> World {
        if let Some((at, world)) = &self.kept
            && at.elapsed() < OLDEST
        {
            checks::restore(&mut self.untriggered.as_conn());
            return world.clone();
        }
        checks::clear(&mut self.untriggered.as_conn());
        let conn = &mut self.observer.as_conn();
        let world = (self.setup)(conn);
        let is_kept = checks::keep(conn);
        self.kept = is_kept.then(|| (Instant::now(), world.clone()));
        world
    }

    /// Plays one schedule: `path`, and then always the first actor.
    fn run(&mut self, path: &[(usize, usize)]) -> Result<Run, Broken> {
        let world = self.set_up();
        self.memory.iter_mut().for_each(Memory::begin);
        let mut trace = Vec::new();
        let mut choices = Vec::new();
        for hand in 0..self.hands.len() {
            self.hands[hand].begin(&world, self.fault);
            self.settle(&trace)?;
        }
        let mut moment = self
            .memory
            .is_some()
            .then(|| Moment::first(&mut self.observer.as_conn(), &self.hands));
        loop {
            let free: Vec<usize> = (0..self.hands.len())
                .filter(|hand| self.hands[*hand].is_at_gate())
                .collect();
            if free.is_empty() {
                break;
            }
            if let (Some(memory), Some(moment)) = (&mut self.memory, &moment)
                && choices.len() >= path.len()
                && free.len() > 1
                && !memory.is_new(moment, &self.hands)
            {
                self.let_all_go();
                return Ok(Run {
                    outcome: None,
                    choices,
                });
            }
            let wanted = path.get(choices.len()).map_or(0, |(choice, _)| *choice);
            let choice = wanted.min(free.len() - 1);
            choices.push((choice, free.len()));
            let hand = &mut self.hands[free[choice]];
            let statement = hand.go();
            trace.push(format!("{}: {}", hand.name, shortened(&statement.text)));
            let committed = self.settle(&trace)?;
            let mut is_new = choices.len() >= path.len();
            if let (Some(memory), Some(moment)) = (&mut self.memory, &mut moment) {
                let step = (free[choice], &statement, committed);
                moment.passes(&mut self.observer.as_conn(), &self.hands, step);
                is_new = committed && memory.is_unchecked_at(moment);
            }
            // The steps up to here are those of the schedule before, which was asked after each of them.
            if self.hands[free[choice]].is_running() {
                trace.push(format!("{} waits", self.hands[free[choice]].name));
            }
            if committed
                && is_new
                && let Some(violation) = self.violation()
            {
                return Err(broken(&violation, &trace));
            }
        }
        let mut said = Vec::new();
        for hand in &self.hands {
            match &hand.state {
                State::Done(Ok(answer)) => said.push(format!("{} {answer}", hand.name)),
                State::Done(Err(error)) => {
                    return Err(broken(&format!("{}: {error}", hand.name), &trace));
                }
                _ => return Err(broken("everybody waits for somebody: a deadlock", &trace)),
            }
        }
        if let Some(last) = self.last {
            let conn = &mut self.observer.as_conn();
            said.push(last(conn).unwrap());
            let is_known = (self.memory.as_mut()).is_some_and(|memory| !memory.is_unchecked(conn));
            if !is_known && let Some(violation) = self.violation() {
                return Err(broken(&violation, &trace));
            }
        }
        let state = world.describe(&mut self.observer.as_conn());
        Ok(Run {
            outcome: Some(format!("{} -> {state}", said.join(", "))),
            choices,
        })
    }

    /// Lets everybody come to their end, in whatever order.
    fn let_all_go(&mut self) {
        while self.hands.iter().any(|hand| !hand.is_done()) {
            for hand in self.hands.iter_mut().filter(|hand| hand.is_at_gate()) {
                hand.go();
            }
            let event = self.events.recv_timeout(Duration::from_secs(60));
            let (hand, event) = event.expect("the actors come to their end");
            self.hands[hand].hear(event);
        }
    }

    /// Waits until every actor is done, at a gate, or waiting for another.
    /// True when something was committed.
    fn settle(&mut self, trace: &[String]) -> Result<bool, Broken> {
        let mut committed = false;
        let mut confirmations = 0;
        let mut free_since = Instant::now();
        // Somebody was let go a moment ago; an answer is likely.
        let mut wait = Duration::from_millis(1);
        while self.hands.iter().any(Hand::is_running) {
            if let Ok((hand, event)) = self.events.recv_timeout(wait) {
                committed |= self.hands[hand].hear(event);
                (free_since, confirmations, wait) = (Instant::now(), 0, Duration::ZERO);
            } else if self.all_wait_for_others() {
                // Looked at twice: one may just have been let go.
                confirmations += 1;
                if confirmations == 2 {
                    return Ok(committed);
                }
                (free_since, wait) = (Instant::now(), Duration::ZERO);
            } else if free_since.elapsed() > self.patience {
                let mut slow = broken("somebody waits for nobody", trace);
                slow.is_slow = true;
                return Err(slow);
            } else {
                // The question is dear to the server, and a busy machine answers late.
                let longer = (wait * 2).clamp(Duration::from_millis(1), LONGEST_WAIT);
                (confirmations, wait) = (0, longer);
            }
        }
        Ok(committed)
    }

    /// Returns whether every actor that is in a statement waits for a lock that another actor has.
    fn all_wait_for_others(&mut self) -> bool {
        let running: Vec<&Hand> = self.hands.iter().filter(|hand| hand.is_running()).collect();
        if !self.db.is_postgres() {
            return running.iter().all(|waiting| {
                let mut others = self
                    .hands
                    .iter()
                    .filter(|hand| !std::ptr::eq(*hand, *waiting));
                matches!(&waiting.state, State::Running(statement) if statement.wants_write_lock())
                    && others.any(Hand::in_transaction)
            });
        }
        let pids = |hands: &mut dyn Iterator<Item = &Hand>| {
            let pids: Vec<String> = hands.map(|hand| hand.backend.to_string()).collect();
            format!("ARRAY[{}]", pids.join(","))
        };
        // Strangers block too, for a moment: NOTIFY has one lock for a server.
        let text = format!(
            "SELECT CAST(pid AS text) AS t FROM unnest({}) AS pid WHERE NOT pg_blocking_pids(pid) && {}",
            pids(&mut running.into_iter()),
            pids(&mut self.hands.iter()),
        );
        let free = texts(&mut self.observer.as_conn(), &text);
        free.is_empty()
    }
}

fn shortened(text: &str) -> String {
    let text: Vec<&str> = text
        .split("-- binds")
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    text.join(" ")
        .replace("solid_queue_", "")
        .chars()
        .take(90)
        .collect()
}

fn broken(what: &str, trace: &[String]) -> Broken {
    let what = format!("{what}\nafter\n  {}", trace.join("\n  "));
    Broken {
        what,
        is_slow: false,
    }
}
