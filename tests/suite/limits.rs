//! Values that are refused before any SQL, with a reason, and values that come through whole.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Note;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use windlass::{
    Context, DbConnection, Error, Job, JobResult, NewJob, Registry, Worker, enqueue_all,
};

/// The same as a note, but it may be long.
#[derive(Debug, Serialize, Deserialize)]
struct Long {
    text: String,
}

impl Job for Long {
    const NAME: &'static str = "long";
    const MAX_ARGUMENTS: usize = 1024 * 1024;
    type State = ();
    type Output = ();

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn note(text: impl Into<String>) -> NewJob {
    NewJob::new(&Note::new(text)).unwrap()
}

/// Refused alone and among others, with nothing written, for a reason.
fn refused(db: &TestDb, conn: &mut DbConnection, job: NewJob, reason: &str) {
    let error = job.clone().enqueue(conn).unwrap_err();
    assert!(
        matches!(error, Error::InvalidJob { .. } | Error::InvalidName { .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains(reason), "{text}");
    assert!(text.len() < 500, "{text}");
    let lot = enqueue_all(conn, [note("fine"), job]);
    assert_eq!(lot.unwrap_err().to_string(), text);
    assert_eq!(db.rows("jobs"), 0);
    assert_eq!(db.rows("ready_executions"), 0);
}

fn names_have_limits(db: &TestDb) {
    let mut conn = db.connect();
    let conn = &mut conn;
    let long = "x".repeat(256);
    let of_class = |class: &str| NewJob::of_class(class, "null");
    for (name, reason) in [
        ("", "it is empty"),
        (&*long, "longer than 255 bytes"),
        ("with space", "only ASCII letters, digits"),
        ("with*star", "only ASCII letters, digits"),
        ("größe", "only ASCII letters, digits"),
        ("nul\0", "only ASCII letters, digits"),
        ("line\nfeed", "only ASCII letters, digits"),
        (
            "'; DROP TABLE solid_queue_jobs; --",
            "only ASCII letters, digits",
        ),
    ] {
        refused(db, conn, note("x").queue(name), reason);
        refused(db, conn, of_class(name), reason);
    }
    let key = "its idempotency key must have 1 to 255 bytes";
    refused(db, conn, note("x").idempotency_key(""), key);
    refused(db, conn, note("x").idempotency_key(&*long), key);
    refused(db, conn, note("x").idempotency_key("ä".repeat(128)), key);
    refused(db, conn, note("x").idempotency_key("nul\0"), key);
}

fn names_up_to_their_limits_are_kept_whole(db: &TestDb) {
    let longest = "x".repeat(255);
    let key = format!("{}'\"\\{{}} \n%_x", "ß✓".repeat(48));
    assert!(key.len() > 245 && key.len() <= 255, "{}", key.len());
    let mut conn = db.connect();
    let job = NewJob::of_class(&*longest, "null")
        .queue(&*longest)
        .idempotency_key(&*key);
    let first = job.clone().enqueue(&mut conn).unwrap();
    let again = enqueue_all(&mut conn, [job]).unwrap();
    assert_eq!(again[0].id, first.id);
    for (column, expected) in [
        ("queue_name", &longest),
        ("class_name", &longest),
        ("idempotency_key", &key),
    ] {
        let kept = db.texts(&format!("SELECT {column} AS t FROM solid_queue_jobs"));
        assert_eq!(kept, [&**expected]);
    }
    for name in ["default", "My::Mailer.deliver", "a/b-c_d.1"] {
        NewJob::of_class(name, "null")
            .queue(name)
            .enqueue(&mut conn)
            .unwrap();
    }
}

fn arguments_have_a_size(db: &TestDb) {
    let mut conn = db.connect();
    let conn = &mut conn;
    let wrapping = r#"{"text":""}"#.len();
    let at_the_limit = "x".repeat(64 * 1024 - wrapping);
    let over = format!("{at_the_limit}x");
    refused(
        db,
        conn,
        note(&*over),
        "take 65537 bytes, more than the 65536 allowed",
    );
    refused(
        db,
        conn,
        NewJob::of_class("note", format!("\"{}\"", "x".repeat(65_535))),
        "take 65537 bytes, more than the 65536 allowed; store the data elsewhere",
    );
    refused(
        db,
        conn,
        note("12345678901").max_arguments(20),
        "take 22 bytes, more than the 20",
    );
    // Bytes count, not characters.
    refused(db, conn, note("ä".repeat(40_000)), "80011 bytes");
    let huge = Long {
        text: "x".repeat(1024 * 1024),
    };
    refused(
        db,
        conn,
        NewJob::new(&huge).unwrap(),
        "more than the 1048576 allowed",
    );

    note(&*at_the_limit).enqueue(conn).unwrap();
    note(&*over).max_arguments(70_000).enqueue(conn).unwrap();
    Long {
        text: "x".repeat(1_000_000),
    }
    .enqueue(conn)
    .unwrap();
    let lengths =
        db.texts("SELECT CAST(length(arguments) AS text) AS t FROM solid_queue_jobs ORDER BY id");
    assert_eq!(lengths, ["65536", "65537", "1000011"]);
}

fn a_nul_is_refused_raw_and_escaped(db: &TestDb) {
    let mut conn = db.connect();
    let conn = &mut conn;
    let reason = "its arguments contain a NUL";
    refused(db, conn, note("a\0b"), reason);
    refused(db, conn, note("\\\0"), reason);
    refused(
        db,
        conn,
        NewJob::of_class("note", "{\"text\":\"a\0b\"}"),
        reason,
    );
    refused(
        db,
        conn,
        NewJob::of_class("note", r#"{"a\u0000":1}"#),
        reason,
    );
    // A backslash and the letters are no NUL.
    note(r"\u0000").enqueue(conn).unwrap();
}

/// Arguments that no worker could decode again are refused.
fn nesting_has_a_depth(db: &TestDb) {
    let mut conn = db.connect();
    let conn = &mut conn;
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let reason = "nested deeper than 120";
    refused(db, conn, NewJob::of_class("note", nested(121)), reason);
    refused(db, conn, NewJob::of_class("note", nested(30_000)), reason);
    refused(
        db,
        conn,
        NewJob::of_class("note", r#"{"a":"#.repeat(121)),
        reason,
    );
    NewJob::of_class("note", nested(120)).enqueue(conn).unwrap();
    // Brackets in texts are no nesting, whatever stands before the quotes.
    note(r#"\"[{"#.repeat(500)).enqueue(conn).unwrap();
    note("[\\".repeat(500)).enqueue(conn).unwrap();
}

/// Everything that arguments may be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Everything {
    text: String,
    smallest: i64,
    largest: u64,
    wide: i128,
    reals: Vec<f64>,
    nothing: Option<u8>,
    unit: (),
    letter: char,
    map: BTreeMap<String, (bool, u8)>,
    tree: Tree,
    bytes: Vec<u8>,
    any: serde_json::Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Tree {
    Leaf,
    Node(Box<Tree>),
}

impl Job for Everything {
    const NAME: &'static str = "everything";
    const MAX_ARGUMENTS: usize = 10 * 1024 * 1024;
    type State = Mutex<Vec<Everything>>;
    type Output = ();

    fn perform(self, cx: &Context<'_, Self::State>) -> JobResult {
        cx.state().lock().unwrap().push(self);
        Ok(())
    }
}

fn everything() -> Everything {
    let deep = (0..58).fold(Tree::Leaf, |tree, _| Tree::Node(Box::new(tree)));
    let reals = (0..2_000).map(|n| f64::from_bits(0x3FB9_9999_9999_0000 + n * 0x1_0000_0001_u64));
    let special = [
        0.1 + 0.2,
        -0.0,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        1e-7,
        123_456_789.123_456_78,
    ];
    Everything {
        text: "ünïcödé ✓ 🦀 \u{10FFFF}\u{1}\t\r\n\"\\/ '%_$1 {now} \u{2028}\u{FEFF}".to_owned(),
        smallest: i64::MIN,
        largest: u64::MAX,
        wide: i128::MIN,
        reals: reals.chain(special).collect(),
        nothing: None,
        unit: (),
        letter: '🦀',
        map: [
            (String::new(), (true, 0)),
            ("ключ".to_owned(), (false, 255)),
        ]
        .into(),
        tree: deep,
        bytes: (0..=255).collect(),
        any: serde_json::json!({"a": [1, -1, 1.5, null, {"": false}], "big": u64::MAX}),
    }
}

fn arguments_come_through_whole(db: &TestDb) {
    let got = Arc::new(Mutex::new(Vec::new()));
    let registry = Registry::new().register::<Everything>(Arc::clone(&got));
    let mut jobs = vec![everything()];
    let mut long = everything();
    long.text = "ß".repeat(32 * 1024);
    jobs.push(long);
    let mut conn = db.connect();
    jobs[0].clone().enqueue(&mut conn).unwrap();
    enqueue_all(&mut conn, [NewJob::new(&jobs[1]).unwrap()]).unwrap();
    let _worker = Worker::new(&db.database, registry)
        .threads(1)
        .start()
        .unwrap();
    until("both are done", || {
        got.lock().unwrap().len() + usize::try_from(db.rows("failed_executions")).unwrap() == 2
    });
    let errors = db.texts("SELECT error AS t FROM solid_queue_failed_executions");
    assert!(errors.is_empty(), "{errors:?}");
    assert!(
        *got.lock().unwrap() == jobs,
        "the arguments came back changed"
    );
}

on_each_database!(
    names_have_limits,
    names_up_to_their_limits_are_kept_whole,
    arguments_have_a_size,
    a_nul_is_refused_raw_and_escaped,
    nesting_has_a_depth,
    arguments_come_through_whole,
);

crate::through_a_pooler_in_all!(
    names_have_limits,
    names_up_to_their_limits_are_kept_whole,
    arguments_have_a_size,
    a_nul_is_refused_raw_and_escaped,
    nesting_has_a_depth,
    arguments_come_through_whole,
);
