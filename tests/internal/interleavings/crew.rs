//! Actors on threads and connections of their own, each of which stops before
//! every statement until it is let go.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::internal_tests::db::TestDb;
use crate::db::internal_tests::interleavings::wire::{self, Answers};
use crate::db::internal_tests::interleavings::world::World;
use crate::mutant;
use crate::with_conn;
use crossbeam_channel::{Receiver, Sender, unbounded};
use diesel::connection::{Instrumentation, InstrumentationEvent};
use diesel::prelude::*;
use diesel::sql_types::Integer;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// The action of an actor, which returns its answer in a word or two.
pub type Work = fn(&mut Conn<'_>, &World) -> QueryResult<String>;

/// The settings of an actor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Habits {
    pub coarse: bool,
}

/// An actor.
pub struct Hand {
    pub name: &'static str,
    pub state: State,
    /// The server's name of its connection.
    pub backend: i32,
    ran: Arc<Mutex<Ran>>,
    answers: Answers,
    tasks: Sender<(World, &'static str)>,
    go: Sender<()>,
}

pub enum State {
    /// Before a statement.
    AtGate(Statement),
    /// In a statement, perhaps waiting for a lock.
    Running(Statement),
    Done(Result<String, String>),
}

#[derive(Debug, Clone)]
pub struct Statement {
    pub text: String,
    /// True if a transaction is open before it.
    pub in_transaction: bool,
}

impl Statement {
    /// Returns whether others can see a change once it is over.
    pub fn commits(&self) -> bool {
        !self.in_transaction || self.is_end()
    }

    pub fn is_end(&self) -> bool {
        is_end(&self.text)
    }

    /// Returns whether it takes SQLite's write lock.
    pub fn wants_write_lock(&self) -> bool {
        !self.in_transaction && !self.text.starts_with("SELECT")
    }
}

pub enum Event {
    Gate(Statement),
    Done(Result<String, String>),
}

impl Hand {
    /// Hires an actor; it reports to `events` under its number.
    pub fn hire(
        db: &TestDb,
        habits: Habits,
        (number, name): (usize, &'static str),
        work: Work,
        events: &Sender<(usize, Event)>,
    ) -> Self {
        let (mut connection, answers) = if db.is_postgres() {
            let (url, answers) = wire::to(&db.url);
            (db.connect_at(&url), answers)
        } else {
            (db.connect(), Answers::default())
        };
        let backend = backend(&mut connection.as_conn());
        wait_for_ever(&mut connection.as_conn());
        let (tasks, inbox) = unbounded::<(World, &'static str)>();
        let (go, gate) = unbounded();
        let events = events.clone();
        let ran = Arc::default();
        let hook = Hook {
            number,
            ran: Arc::clone(&ran),
            events: events.clone(),
            gate,
            in_transaction: false,
            is_first: false,
            is_sqlite: !db.is_postgres(),
            coarse: habits.coarse,
        };
        with_conn!(&mut connection, |c| c.set_instrumentation(hook));
        std::thread::spawn(move || {
            for (world, fault) in inbox {
                mutant::set(fault);
                let answer =
                    work(&mut connection.as_conn(), &world).map_err(|error| error.to_string());
                if events.send((number, Event::Done(answer))).is_err() {
                    return;
                }
            }
        });
        let state = State::Done(Ok(String::new()));
        Hand {
            name,
            state,
            backend,
            ran,
            answers,
            tasks,
            go,
        }
    }

    /// A hash of what its database has answered since the last call.
    pub fn heard(&self) -> u64 {
        self.answers.swap(0, Ordering::SeqCst)
    }

    /// Returns the counts of the statements that it has run so far.
    pub fn ran(&self) -> Ran {
        *self.ran.lock().expect("no actor panics in it")
    }

    /// Has it begin; it stops before its first statement.
    pub fn begin(&mut self, world: &World, fault: &'static str) {
        self.state = State::Running(Statement {
            text: "BEGIN".to_owned(),
            in_transaction: true,
        });
        self.tasks
            .send((world.clone(), fault))
            .expect("the actor is there");
    }

    /// Lets it go into the statement before which it stands.
    pub fn go(&mut self) -> Statement {
        let State::AtGate(statement) = &self.state else {
            panic!("{} stands at no gate", self.name)
        };
        let statement = statement.clone();
        self.state = State::Running(statement.clone());
        self.go.send(()).expect("the actor is there");
        statement
    }

    /// Takes in what it reports; true when others may see a change.
    pub fn hear(&mut self, event: Event) -> bool {
        let commits = matches!(&self.state, State::Running(statement) if statement.commits());
        self.state = match event {
            Event::Gate(statement) => State::AtGate(statement),
            Event::Done(answer) => State::Done(answer),
        };
        commits
    }

    /// Returns whether it is in a transaction; on SQLite it has the write lock then.
    pub fn in_transaction(&self) -> bool {
        match &self.state {
            State::AtGate(statement) | State::Running(statement) => statement.in_transaction,
            State::Done(_) => false,
        }
    }

    pub fn is_at_gate(&self) -> bool {
        matches!(self.state, State::AtGate(_))
    }

    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }
}

fn is_end(text: &str) -> bool {
    text.starts_with("COMMIT") || text == "ROLLBACK"
}

/// Stops its connection before statements.
struct Hook {
    number: usize,
    ran: Arc<Mutex<Ran>>,
    events: Sender<(usize, Event)>,
    gate: Receiver<()>,
    in_transaction: bool,
    /// Of its transaction.
    is_first: bool,
    is_sqlite: bool,
    coarse: bool,
}

impl Hook {
    /// A statement that changes neither locks nor data for others is no step:
    /// on Postgres BEGIN, the notification and the setting of a timeout, on
    /// SQLite, where writers take turns, the inside of a transaction.
    fn is_step(&self, text: &str) -> bool {
        if self.is_sqlite {
            return !self.in_transaction || is_end(text);
        }
        let may_wait = !self.in_transaction || self.is_first || text.contains("FOR UPDATE");
        !is_idle(text) && (may_wait || is_end(text) || !self.coarse)
    }

    fn note(&mut self, text: &str) {
        if text.starts_with("BEGIN") {
            (self.in_transaction, self.is_first) = (true, true);
        } else if is_end(text) {
            self.in_transaction = false;
        } else if !is_idle(text) {
            self.is_first = false;
        }
    }
}

/// Neither locks nor changes anything for others.
fn is_idle(text: &str) -> bool {
    let starts = [
        "BEGIN",
        "SAVEPOINT",
        "RELEASE",
        "SELECT (SELECT count(pg_notify",
        "SELECT set_config('lock_timeout'",
    ];
    starts.iter().any(|start| text.starts_with(start))
}

/// The number of an actor's statements that may change rows, or look which rows others have locked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ran {
    pub changes: usize,
    pub looks: usize,
}

impl Ran {
    fn counts(&mut self, text: &str) {
        if only_reads(text) || is_end(text) || is_idle(text) {
            return;
        }
        self.changes += 1;
        let skips = ["SKIP LOCKED", "NOWAIT", "advisory"];
        if calls_a_function(text) || skips.iter().any(|word| text.contains(word)) {
            self.looks += 1;
        }
    }
}

/// Changes nothing, and its answer names the rows that it locks.
fn only_reads(text: &str) -> bool {
    let has = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
    let text = text.split("-- binds").next().unwrap_or_default();
    let locks = ["FOR UPDATE", "FOR NO KEY", "FOR KEY", "FOR SHARE"];
    let (answer, _) = text.split_once(" FROM ").unwrap_or((text, ""));
    let (inside, _) = text.rsplit_once(')').unwrap_or_default();
    text.starts_with("SELECT ")
        && !calls_a_function(text)
        && !has(text, &["advisory", "nextval", "setval"])
        && (!has(text, &locks) || answer.contains("id") && !has(inside, &locks))
}

/// Calls a function of the schema.
fn calls_a_function(text: &str) -> bool {
    text.split("windlass_").skip(1).any(|rest| {
        let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        end.is_some_and(|end| rest[end..].starts_with('('))
    })
}

impl Instrumentation for Hook {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        let InstrumentationEvent::StartQuery { query, .. } = event else {
            return;
        };
        let text = query.to_string();
        if self.is_step(&text) {
            let statement = Statement {
                text: text.clone(),
                in_transaction: self.in_transaction,
            };
            // An error means that nobody conducts any more: go on and end.
            if self
                .events
                .send((self.number, Event::Gate(statement)))
                .is_ok()
            {
                let _ = self.gate.recv();
            }
        }
        self.ran.lock().expect("nobody panics in it").counts(&text);
        self.note(&text);
    }
}

/// An actor may wait for as long as the others take to come to their end,
/// however busy the machine is: a deadlock is seen otherwise.
fn wait_for_ever(conn: &mut Conn<'_>) {
    if let Conn::Postgres(conn) = conn {
        for setting in [
            "lock_timeout",
            "statement_timeout",
            "idle_in_transaction_session_timeout",
        ] {
            let text = format!("SET {setting} = 0");
            diesel::sql_query(text).execute(*conn).unwrap();
        }
    }
}

#[derive(QueryableByName)]
struct Pid {
    #[diesel(sql_type = Integer)]
    pid: i32,
}

fn backend(conn: &mut Conn<'_>) -> i32 {
    let text = match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => "SELECT pg_backend_pid() AS pid",
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => "SELECT 0 AS pid",
    };
    with_conn!(conn, |c| diesel::sql_query(text).get_result::<Pid>(c))
        .unwrap()
        .pid
}
