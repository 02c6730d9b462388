//! The turns of duties: none holds up another, and each is shown.

use crate::db::conn::connection::AsConn as _;
use crate::db::conn::statement::Statement;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database};
use crate::event::logging::Subscriber;
use crate::job::new_job::NewJob;
use crate::process::base::context::ProcessContext;
use crate::process::base::duty_turns::DutyTurns;
use crate::process::base::session::Session;
use crate::process::upkeep::{Duty, DutyTurn, NextTurn, Upkeep, due};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_each_database!(
    a_duty_that_the_database_refuses_delays_no_other,
    what_is_left_is_done_at_once,
    each_turn_is_shown,
    a_refused_duty_leaves_the_others_their_work,
    one_that_always_has_more_leaves_time_to_the_others,
);

const HOUR: Duration = Duration::from_secs(3600);

/// A duty that counts its turns.
struct Counted {
    turns: Arc<AtomicUsize>,
    next: NextTurn,
    interval: Duration,
    /// A statement of each turn, if there is one.
    statement: Option<&'static str>,
}

impl Duty for Counted {
    fn name(&self) -> &'static str {
        self.statement.unwrap_or("count")
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        self.turns.fetch_add(1, Ordering::Relaxed);
        if let Some(statement) = self.statement {
            session.run("try a statement", |conn| {
                Statement::new(statement).execute(conn)
            })?;
        }
        Ok(DutyTurn {
            changed: 1,
            next: self.next,
        })
    }
}

fn duty(next: NextTurn, statement: Option<&'static str>) -> (Box<dyn Duty>, Arc<AtomicUsize>) {
    duty_each(HOUR, next, statement)
}

fn duty_each(
    interval: Duration,
    next: NextTurn,
    statement: Option<&'static str>,
) -> (Box<dyn Duty>, Arc<AtomicUsize>) {
    let turns = Arc::<AtomicUsize>::default();
    let duty = Counted {
        turns: Arc::clone(&turns),
        next,
        interval,
        statement,
    };
    (Box::new(duty), turns)
}

const REFUSED: Option<&str> = Some("DELETE FROM no_such_table");

fn open(db: &TestDb) -> (ProcessContext, Session) {
    let context = ProcessContext::open(&db.database, &Subscriber::default()).unwrap();
    let session = Session::new(&context);
    (context, session)
}

fn a_duty_that_the_database_refuses_delays_no_other(db: &TestDb) {
    let (context, mut session) = open(db);
    let (refused, tried) = duty(NextTurn::Now, REFUSED);
    let (busy, done) = duty(NextTurn::Now, None);
    let mut upkeep = Upkeep::new(vec![refused, busy], &context.duties);
    for turn in 1..=50 {
        upkeep.turn(&mut session, &context.stop);
        assert_eq!(done.load(Ordering::Relaxed), turn);
    }
    let tried = tried.load(Ordering::Relaxed);
    assert!((1..50).contains(&tried), "{tried}: it is left for a while");
}

fn what_is_left_is_done_at_once(db: &TestDb) {
    let (context, mut session) = open(db);
    let (full, _) = duty(NextTurn::Now, None);
    let mut upkeep = Upkeep::new(vec![full], &context.duties);
    assert!(upkeep.turn(&mut session, &context.stop).is_zero());

    let (idle, turns) = duty(NextTurn::Interval, None);
    let (soon, _) = duty(NextTurn::In(HOUR / 2), None);
    let mut upkeep = Upkeep::new(vec![idle, soon], &context.duties);
    let pause = upkeep.turn(&mut session, &context.stop);
    assert!((HOUR / 3..=HOUR / 2).contains(&pause), "{pause:?}");
    upkeep.turn(&mut session, &context.stop);
    assert_eq!(turns.load(Ordering::Relaxed), 1, "it is not due");
    assert_eq!(upkeep.turn_all(&mut session), Ok(2));

    context.stop.stop();
    upkeep.turn(&mut session, &context.stop);
    assert_eq!(turns.load(Ordering::Relaxed), 2, "a stop ends all turns");
}

/// While a duty has more to do, the others come once a second, not between two of its turns: but for one that has named the
/// time of its turn.
fn one_that_always_has_more_leaves_time_to_the_others(db: &TestDb) {
    let (context, mut session) = open(db);
    let (busy, its) = duty(NextTurn::Now, None);
    let soon = Duration::from_micros(1);
    let (often, turns) = duty_each(soon, NextTurn::Interval, None);
    let (timed, on_time) = duty(NextTurn::In(soon), None);
    let mut upkeep = Upkeep::new(vec![busy, often, timed], &context.duties);
    let start = std::time::Instant::now();
    while turns.load(Ordering::Relaxed) < 2 {
        upkeep.turn(&mut session, &context.stop);
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    assert!(start.elapsed() >= Duration::from_millis(900));
    assert!(its.load(Ordering::Relaxed) > 2);
    assert!(on_time.load(Ordering::Relaxed) > 2);
}

fn each_turn_is_shown(db: &TestDb) {
    let (context, mut session) = open(db);
    let (refused, _) = duty(NextTurn::Now, REFUSED);
    let (works, _) = duty(NextTurn::Interval, None);
    let mut upkeep = Upkeep::new(vec![refused, works], &context.duties);
    let ago = |duty: &str| context.duties.to_json().unwrap()[duty]["ago"].as_f64();
    std::thread::sleep(Duration::from_millis(20));
    upkeep.turn(&mut session, &context.stop);
    assert!(ago("count") < ago("DELETE FROM no_such_table"));
}

fn a_refused_duty_leaves_the_others_their_work(db: &TestDb) {
    let (_, mut session) = open(db);
    let mut conn = db.connect();
    let later = NewJob::of_class("a", "{}").after(HOUR);
    later.enqueue(&mut conn).unwrap();
    let conn = &mut conn.as_conn();
    let due =
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2020-01-01 00:00:00.000000'";
    execute(conn, due);
    let (refused, _) = duty(NextTurn::Now, REFUSED);
    let duties = [refused].into_iter().chain(due::duties(10, HOUR));
    let mut upkeep = Upkeep::new(duties.collect(), &DutyTurns::default());
    assert_eq!(upkeep.turn_all(&mut session), Ok(1));
    // A job that is left may be due: a worker that runs until it is idle must not end.
    let left = upkeep.turn_all(&mut session);
    assert!(left.is_err(), "{left:?}");
    let ready = Statement::new("DELETE FROM solid_queue_ready_executions");
    assert_eq!(ready.changes(conn), Ok(1));
}
