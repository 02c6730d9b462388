//! The states of a play that were seen before: from there on, all that can follow was played already.
//!
//! Steps of two actors that do not touch each other come to the same state in either order, and so does every order of
//! them: of those orders the first is played to its end, and the others until they meet it. This is the search of states
//! that are remembered by their hash (Holzmann, *Design and Validation of Computer Protocols*, 1991, chapter 11), which
//! leaves out no state and no step, while the number of orders that it plays grows with the states, not with the orders.
//!
//! A state is what is committed, and of each actor all that its next steps depend on: its steps so far, each with what
//! was committed before and after it. Between them lies what the step has read, written and locked, as the programs
//! read no other random thing than the clock. A step also depends on what others have not committed yet: when it waits
//! for them, when it draws an id, and when it looks which rows are locked. So the order of waits belongs to the state,
//! the last ids to a step that draws one, and the steps of the others to a step that skips locked rows.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::checks;
use crate::db::internal_tests::interleavings::crew::{Hand, Ran, Statement};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The states that were seen.
#[derive(Default)]
pub struct Memory {
    seen: HashSet<u64>,
    /// Those of the schedule that is played.
    of_this: Vec<u64>,
    /// What was committed when the invariants held.
    right: HashSet<u64>,
}

impl Memory {
    /// A schedule begins.
    pub fn begin(&mut self) {
        self.of_this.clear();
    }

    /// It could not be played to its end, and will be played again.
    pub fn forget(&mut self) {
        for state in &self.of_this {
            self.seen.remove(state);
        }
    }

    /// Whether this state is a new one.
    pub fn is_new(&mut self, moment: &Moment, hands: &[Hand]) -> bool {
        let state = moment.state(hands);
        let is_new = self.seen.insert(state);
        if is_new {
            self.of_this.push(state);
        }
        is_new
    }

    /// Whether this was never committed before.
    pub fn is_first(&mut self, moment: &Moment) -> bool {
        self.right.insert(moment.committed)
    }

    /// The same of what is committed now.
    pub fn is_unchecked(&mut self, conn: &mut Conn<'_>) -> bool {
        self.right.insert(committed(conn))
    }
}

/// Where a schedule stands.
pub struct Moment {
    /// A hash of all rows.
    committed: u64,
    last_ids: String,
    actors: Vec<Trail>,
    /// Who waits for others, the longest first.
    waiting: Vec<usize>,
}

/// What an actor has done.
#[derive(Clone, Default)]
struct Trail {
    /// Its steps and their answers: what it knows.
    all: u64,
    /// In its open transaction: what it has changed and locked.
    open: u64,
    /// Before its last step: what was committed, and what others had changed and locked.
    before: (u64, Vec<u64>),
    /// Whether its last step ends a transaction, or is one.
    commits: bool,
    /// What it had run before that.
    ran: Ran,
}

impl Moment {
    /// Before the first step of each.
    pub fn first(conn: &mut Conn<'_>, hands: &[Hand]) -> Self {
        let trail = |hand: &Hand| {
            hand.heard();
            Trail {
                ran: hand.ran(),
                ..Trail::default()
            }
        };
        Moment {
            committed: committed(conn),
            last_ids: checks::last_ids(conn),
            actors: hands.iter().map(trail).collect(),
            waiting: Vec::new(),
        }
    }

    /// An actor has gone into a statement, and then all have come as far as they could.
    pub fn passes(
        &mut self,
        conn: &mut Conn<'_>,
        hands: &[Hand],
        (actor, statement, commits): (usize, &Statement, bool),
    ) {
        let others = self
            .actors
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != actor);
        let others = others.map(|(_, other)| other.open).collect();
        let trail = &mut self.actors[actor];
        let text = named(&statement.text);
        trail.all = hash(&(trail.all, &text));
        trail.open = hash(&(trail.open, &text));
        trail.before = (self.committed, others);
        trail.commits = statement.commits();
        let moves = |number: usize| {
            !hands[number].is_running() && (number == actor || self.waiting.contains(&number))
        };
        let moved: Vec<usize> = (0..hands.len()).filter(|number| moves(*number)).collect();
        let changes =
            |number: &usize| hands[*number].ran().changes != self.actors[*number].ran.changes;
        let mut drawn = None;
        if moved.iter().any(changes) {
            let ids = checks::last_ids(conn);
            let ids = std::mem::replace(&mut self.last_ids, ids);
            drawn = (ids != self.last_ids).then_some(ids);
        }
        if commits {
            self.committed = committed(conn);
        }
        for number in moved {
            let after = self.waiting.contains(&number).then_some(self.committed);
            self.actors[number].comes_to_an_end(&hands[number], &(after, &drawn));
            self.waiting.retain(|waiting| *waiting != number);
        }
        if hands[actor].is_running() {
            self.waiting.push(actor);
        }
    }

    fn state(&self, hands: &[Hand]) -> u64 {
        let actors: Vec<_> = (self.actors.iter().zip(hands))
            .map(|(trail, hand)| (trail.all, trail.open, hand.is_done()))
            .collect();
        hash(&(self.committed, &self.last_ids, actors, &self.waiting))
    }
}

impl Trail {
    /// Its step is over: a read has locked what it answers, a change depends on what was there.
    fn comes_to_an_end(&mut self, hand: &Hand, after: &impl Hash) {
        let ran = std::mem::replace(&mut self.ran, hand.ran());
        let answers = hand.heard();
        self.all = hash(&(self.all, answers));
        self.open = hash(&(self.open, answers));
        if ran.changes != self.ran.changes {
            self.open = hash(&(self.open, self.before.0, after));
        }
        if ran.looks != self.ran.looks {
            self.open = hash(&(self.open, &self.before.1));
        }
        if self.commits {
            self.open = 0;
        }
    }
}

/// A hash of all rows that are committed.
fn committed(conn: &mut Conn<'_>) -> u64 {
    hash(&named(&checks::look(conn)))
}

/// Without the random ids, which differ from run to run.
fn named(text: &str) -> String {
    let is_id = |c: char| c == '-' || c.is_ascii_hexdigit();
    let words = text.split_inclusive(|c| !is_id(c));
    let word = |word: &str| word.trim_end_matches(|c| !is_id(c)).len() != UUID;
    words.filter(|it| word(it)).collect()
}

/// The length of a UUID as text.
const UUID: usize = 36;

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
