//! `windlass top` at a terminal.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::{Windlass, windlass};
use crate::support::terminal::AtTerminal;
use crate::support::wait::until;
#[cfg(feature = "postgres")]
use crate::support::wait::within;
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
#[cfg(feature = "postgres")]
use std::time::Duration;
use windlass::testing::drain;
use windlass::{Function, NewJob, Registry};

on_each_database!(
    the_queues_are_shown_until_q,
    what_changes_is_shown_and_a_frozen_screen_stays,
    the_help_and_the_findings_come_and_go,
    a_new_size_is_drawn_anew,
    signals_restore_the_terminal,
    without_its_terminal_it_ends,
    a_suspended_one_gives_the_terminal_back,
    it_needs_a_terminal,
    without_tables_it_ends_with_the_reason,
    no_color_writes_no_color,
);

/// The escape sequence that leaves the alternate screen.
const LEFT: &str = "\u{1b}[?1049l";

const FAILS: Function<String> = Function::new("fails").queue("broken");

fn top(db: &TestDb) -> AtTerminal {
    top_with(db, &[])
}

fn top_with(db: &TestDb, environment: &[(&str, &str)]) -> AtTerminal {
    let mut program = Windlass::new(&["top", "--every", "1s"]).env("DATABASE_URL", &db.url);
    // That of this test may ask for no color.
    program = program.env("NO_COLOR", "").env("TERM", "xterm-256color");
    for (name, value) in environment {
        program = program.env(name, value);
    }
    program.at_a_terminal(120, 40)
}

fn enqueue(db: &TestDb, queue: &str) {
    let job = NewJob::of_class("import", "{}").queue(queue);
    job.enqueue(&mut db.connection()).unwrap();
}

fn the_queues_are_shown_until_q(db: &TestDb) {
    super::status::fill(db);
    let mut conn = db.connect();
    if db.is_postgres() {
        // Those of the others are given.
        db.execute("SELECT setval(pg_get_serial_sequence('solid_queue_jobs', 'id'), 100)");
    }
    enqueue(db, "imports-of-today");
    FAILS.enqueue(&mut conn, &"a".to_owned()).unwrap();
    let registry = Registry::new().function(FAILS, |_, _| Err::<(), _>("no stamp".into()));
    let _ = drain(&mut conn, &registry).unwrap();
    let mut top = top(db);
    for text in [
        "imports-of-today",
        "no worker",
        "mail",
        "worker web-1:4711",
        "dispatcher web-1:4712",
        "error: no stamp",
    ] {
        top.shows(text);
    }
    assert!(!top.is_as_before(), "the terminal is in raw mode");
    top.types("q");
    assert_eq!(top.ends().code(), Some(0));
    assert!(top.is_as_before());
    until("the screen was left", || top.seen().contains(LEFT));
}

fn what_changes_is_shown_and_a_frozen_screen_stays(db: &TestDb) {
    let mut top = top(db);
    top.shows("no job has failed");
    enqueue(db, "first");
    top.shows("first");
    top.types("p");
    top.shows("frozen at");
    enqueue(db, "second");
    // Long enough for a look, if there were one.
    until("a second look would have been made", || {
        enqueue(db, "first");
        db.count("SELECT count(*) AS n FROM solid_queue_jobs") > 300
    });
    assert!(!top.screen().contains("second"), "{}", top.screen());
    top.types("p");
    top.shows("second");
    top.types("\u{3}");
    assert_eq!(top.ends().code(), Some(0), "Ctrl-C is q");
    assert!(top.is_as_before());
}

fn the_help_and_the_findings_come_and_go(db: &TestDb) {
    let mut top = top(db);
    top.shows("no job has failed");
    top.types("?");
    top.shows("PgUp");
    top.types("d");
    top.shows("Findings");
    top.shows("database:");
    top.types("\u{1b}");
    top.shows("no job has failed");
    top.types("\t\tjkgGq");
    assert_eq!(top.ends().code(), Some(0));
}

fn a_new_size_is_drawn_anew(db: &TestDb) {
    enqueue(db, "imports-of-today");
    let mut top = top(db);
    top.shows("imports-of-today");
    for (columns, rows) in [(80, 24), (41, 11), (200, 60)] {
        top.wipe();
        top.resize(columns, rows);
        top.shows("windlass top");
        top.shows("imports-of");
    }
    top.resize(20, 5);
    top.shows("80 columns");
    top.types("q");
    assert_eq!(top.ends().code(), Some(0));
    assert!(top.is_as_before());
}

fn signals_restore_the_terminal(db: &TestDb) {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut top = top(db);
        top.shows("no job has failed");
        top.signal(signal);
        let ended = top.ends();
        assert_eq!(ended.signal(), Some(signal.as_raw()), "{ended:?}");
        assert!(top.is_as_before(), "{signal:?}");
        until("the screen was left", || top.seen().contains(LEFT));
    }
}

/// The window of its terminal is closed.
fn without_its_terminal_it_ends(db: &TestDb) {
    let mut top = top(db);
    top.shows("no job has failed");
    top.types("?");
    top.shows("PgUp");
    let ended = top.ends_without_its_terminal();
    // It may see that it cannot write before it receives the signal.
    assert!(!ended.success(), "{ended:?}");
}

fn a_suspended_one_gives_the_terminal_back(db: &TestDb) {
    let mut top = top(db);
    top.shows("no job has failed");
    type Suspend = Box<dyn FnMut(&mut AtTerminal)>;
    let mut suspend: [Suspend; 2] = [
        Box::new(|top| top.types("\u{1a}")),
        Box::new(|top| top.signal(Signal::TSTP)),
    ];
    for suspend in &mut suspend {
        suspend(&mut top);
        until("it is stopped", || top.is_stopped());
        assert!(top.is_as_before());
        top.wipe();
        top.signal(Signal::CONT);
        top.shows("no job has failed");
        until("the keys are raw again", || !top.is_as_before());
    }
    // A stop that no program hears of.
    top.signal(Signal::STOP);
    until("it is stopped", || top.is_stopped());
    top.wipe();
    top.signal(Signal::CONT);
    top.shows("no job has failed");
    top.types("q");
    assert_eq!(top.ends().code(), Some(0));
    assert!(top.is_as_before());
}

fn it_needs_a_terminal(db: &TestDb) {
    let said = windlass(&db.url, &["top"]);
    assert_eq!(said.code, Some(2));
    assert!(said.out.is_empty(), "{said:?}");
    assert!(
        said.err.contains("needs a terminal") && said.err.contains("windlass status --json"),
        "{said:?}"
    );
    let said = windlass(&db.url, &["top", "--every", "10ms"]);
    assert_eq!(said.code, Some(2));
}

fn without_tables_it_ends_with_the_reason(db: &TestDb) {
    db.execute("DROP TABLE windlass_job_logs");
    let mut top = top(db);
    assert_eq!(top.ends().code(), Some(1));
    top.shows("windlass migrate");
    assert!(!top.seen().contains(LEFT), "the screen was never taken");
    assert!(top.is_as_before());
}

fn no_color_writes_no_color(db: &TestDb) {
    enqueue(db, "imports-of-today");
    // The sequences that set one of the colors of this program.
    let colors = |seen: &str| {
        let is_color = |part: &str| {
            part.split(';').any(|number| {
                number == "38" || number.starts_with('3') && number.len() == 2 && number != "39"
            })
        };
        let parts = seen.split("\u{1b}[").skip(1);
        parts
            .filter_map(|part| part.split_once('m'))
            .filter(|(part, _)| is_color(part))
            .count()
    };
    for (value, is_colored) in [("", true), ("1", false)] {
        let mut top = top_with(db, &[("NO_COLOR", value)]);
        top.shows("no worker");
        top.types("q");
        assert_eq!(top.ends().code(), Some(0));
        assert_eq!(colors(&top.seen()) > 0, is_colored, "{:?}", top.seen());
    }
}

/// Everything is swallowed, as by a host that has gone.
#[cfg(feature = "postgres")]
#[test]
fn a_frozen_database_never_freezes_the_keys() {
    use crate::support::proxy::{Proxy, Swallow};
    let db = TestDb::postgres();
    let proxy = Proxy::opened(&db.url);
    let program = Windlass::new(&["top", "--every", "1s"]);
    let program = program.env("DATABASE_URL", &proxy.url(&db.url));
    let mut top = program.env("TERM", "xterm").at_a_terminal(120, 40);
    top.shows("no job has failed");
    proxy.swallow(Swallow::Everything);
    top.shows("database away since");
    top.types("?");
    within(Duration::from_secs(3), "the help is shown at once", || {
        top.screen().contains("PgUp")
    });
    top.types("?");
    proxy.pass();
    enqueue(&db, "after-the-outage");
    top.shows("after-the-outage");
    proxy.swallow(Swallow::Everything);
    top.shows("database away since");
    top.types("q");
    assert_eq!(top.ends().code(), Some(0));
    assert!(top.is_as_before());
}
