//! The states of a play that were seen before: from there on, all that can follow was played already.
//!
//! Steps of two actors that do not touch each other come to the same state in either order, and so does every order of
//! them: of those orders the first is played to its end, and the others until they meet it. This is the search of states
//! that are remembered by their hash (Holzmann, *Design and Validation of Computer Protocols*, 1991, chapter 11), which
//! leaves out no state and no step, while the number of orders that it plays grows with the states, not with the orders.
//!
//! A state is what is committed, the last ids, who waits, and of each actor all that its next steps depend on: what it
//! knows, which are its statements and their answers, and what its open transaction has changed and locked. The latter
//! cannot be read from outside; it follows from each statement of the transaction with what was there when it ran: the
//! committed rows, the last ids if it drew one, and the open transactions of others if it waited for one or skipped what
//! they had locked. Times and random ids are left out, as they differ in every run: of a time it counts whether it is past.

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
    /// Hashes of the committed states in which the invariants held.
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

    /// Returns whether this state is a new one, and remembers it.
    pub fn is_new(&mut self, moment: &Moment, hands: &[Hand]) -> bool {
        let state = moment.state(hands);
        let is_new = self.seen.insert(state);
        if is_new {
            self.of_this.push(state);
        }
        is_new
    }

    /// Returns whether the committed state of this moment has not been checked; the caller checks it next.
    pub fn is_unchecked_at(&mut self, moment: &Moment) -> bool {
        self.right.insert(moment.committed)
    }

    /// The same of what is committed when no actor is left.
    pub fn is_unchecked(&mut self, conn: &mut Conn<'_>) -> bool {
        self.right.insert(committed(conn))
    }
}

/// The state of a schedule after a step.
pub struct Moment {
    /// A hash of all rows.
    committed: u64,
    last_ids: String,
    actors: Vec<Trail>,
    /// Who waits for others, the longest first.
    waiting: Vec<usize>,
}

/// The actions of an actor so far.
#[derive(Clone, Default)]
struct Trail {
    /// Its steps and their answers: what it knows.
    all: u64,
    /// In its open transaction: what it has changed and locked.
    open: u64,
    /// Before its last step: what was committed, what all had changed and locked, and the last ids.
    before: Before,
    /// True if its last step ends a transaction, or is one.
    commits: bool,
    /// The counts of the statements that it had run before that.
    ran: Ran,
}

#[derive(Clone, Default)]
struct Before {
    committed: u64,
    open: Vec<u64>,
    last_ids: String,
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
        let before = Before {
            committed: self.committed,
            open: self.actors.iter().map(|actor| actor.open).collect(),
            last_ids: self.last_ids.clone(),
        };
        let trail = &mut self.actors[actor];
        let text = named(&statement.text);
        trail.all = hash(&(trail.all, &text));
        trail.open = hash(&(trail.open, &text));
        trail.before = before.clone();
        trail.commits = statement.commits();
        let mut both = self.actors.iter().zip(hands);
        if both.any(|(trail, hand)| trail.ran.changes != hand.ran().changes) {
            self.last_ids = checks::last_ids(conn);
        }
        if commits {
            self.committed = committed(conn);
        }
        for (number, hand) in hands
            .iter()
            .enumerate()
            .filter(|(_, hand)| !hand.is_running())
        {
            let has_waited = self.waiting.contains(&number);
            if number == actor || has_waited {
                let trail = &mut self.actors[number];
                trail.comes_to_an_end(hand, &self.last_ids);
                if has_waited && trail.open != 0 {
                    trail.open = hash(&(trail.open, self.committed, &before.open));
                }
                self.waiting.retain(|waiting| *waiting != number);
            }
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
    fn comes_to_an_end(&mut self, hand: &Hand, last_ids: &str) {
        let (ran, before) = (hand.ran(), std::mem::take(&mut self.before));
        let answers = hand.heard();
        self.all = hash(&(self.all, answers));
        self.open = hash(&(self.open, answers));
        if ran.changes != self.ran.changes {
            let drawn = (before.last_ids != last_ids).then_some(&before.last_ids);
            self.open = hash(&(self.open, before.committed, drawn));
        }
        if ran.looks != self.ran.looks {
            self.open = hash(&(self.open, &before.open));
        }
        if self.commits {
            self.open = 0;
        }
        self.ran = ran;
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
