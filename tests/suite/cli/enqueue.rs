//! `windlass enqueue`, and `windlass queues` where it changes something.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;

on_each_database!(
    everything_is_stored_as_given,
    a_policy_is_stored_as_given,
    a_unique_id_is_held_by_one_job,
    what_makes_no_sense_is_refused
);

fn everything_is_stored_as_given(db: &TestDb) {
    let said = windlass(
        &db.url,
        &[
            "enqueue",
            "import",
            r#"{"file":"a b"}"#,
            "--queue",
            "slow",
            "--priority",
            "-5",
            "--in",
            "1h",
        ],
    );
    assert!(said.is_done(), "{said:?}");
    assert_eq!(
        db.texts("SELECT class_name || ' ' || arguments || ' ' || queue_name || ' ' || priority AS t FROM solid_queue_jobs"),
        [r#"import {"file":"a b"} slow -5"#]
    );
    assert_eq!(db.rows("scheduled_executions"), 1);
    let at = [
        "enqueue",
        "import",
        "--at",
        "2030-01-02T03:04:05Z",
        "--key",
        "k",
    ];
    let job = windlass(&db.url, &[&at[..], &["--json"]].concat()).json();
    assert_eq!(job["is_new"], true);
    assert_eq!(db.rows("scheduled_executions"), 2);
    let again = windlass(&db.url, &at);
    assert!(again.out.contains("nothing was enqueued"), "{again:?}");
    let ahead = windlass(&db.url, &["enqueue", "import", "--ahead-by", "10m"]);
    assert!(ahead.is_done(), "{ahead:?}");
    assert_eq!(db.rows("ready_executions"), 1);
}

fn a_policy_is_stored_as_given(db: &TestDb) {
    let options = "--attempts 5 --backoff 10s..1h --timeout 30s --keep-result 1day --unique-id u \
        --unique-scope until-result-expires --behind-by 1h";
    let options = options.split_whitespace();
    let line: Vec<&str> = ["enqueue", "charge"].into_iter().chain(options).collect();
    let said = windlass(&db.url, &line);
    assert!(said.is_done(), "{said:?}");
    let charge = db.texts(
        "SELECT max_attempts || ' ' || unique_id || ' ' || policy AS t FROM solid_queue_jobs",
    );
    assert_eq!(
        charge,
        [
            r#"5 u {"backoff":{"exponential":{"first":10000,"cap":3600000}},"keep_result":86400000,"unique_scope":"until_result_expires","timeout":30000}"#
        ]
    );
    let once = windlass(&db.url, &["enqueue", "once", "--delivery", "at-most-once"]);
    assert!(once.is_done(), "{once:?}");
    let count = "SELECT count(*) AS n FROM solid_queue_jobs WHERE at_most_once";
    assert_eq!(db.count(count), 1);
}

fn a_unique_id_is_held_by_one_job(db: &TestDb) {
    let enqueue = |more: &[&str]| {
        let line = ["enqueue", "index", "--in", "1h", "--unique-id", "i"];
        windlass(&db.url, &[&line[..], more].concat())
    };
    assert_eq!(enqueue(&[]).out, "Enqueued job 1.\n");
    let again = enqueue(&["--on-conflict", "existing"]);
    assert_eq!(
        again.out,
        "Job 1 already has this unique id; nothing was enqueued.\n"
    );
    assert_eq!(
        enqueue(&["--on-conflict", "replace"]).out,
        "Replaced job 1.\n"
    );
    let json = enqueue(&["--on-conflict", "replace", "--json"]).json();
    assert_eq!(json["outcome"], "replaced");
    assert_eq!(enqueue(&["--on-conflict", "refuse"]).code, Some(1));
    assert_eq!(db.rows("jobs"), 1);
}

fn what_makes_no_sense_is_refused(db: &TestDb) {
    for arguments in [
        &["enqueue", "import", "{"][..],
        &[
            "enqueue",
            "import",
            "--in",
            "1h",
            "--at",
            "2030-01-02T03:04:05Z",
        ],
        &["enqueue", "import", "--priority", "1", "--ahead-by", "1m"],
        &["enqueue", "import", "--behind-by", "1m", "--ahead-by", "1m"],
        &["enqueue", "import", "--attempts", "0"],
        &["enqueue", "import", "--backoff", "10..1h"],
        &["enqueue", "import", "--delivery", "twice"],
        &["enqueue"],
    ] {
        let said = windlass(&db.url, arguments);
        assert_eq!(said.code, Some(2), "{said:?}");
    }
    let said = windlass(&db.url, &["enqueue", "a class", r#"{"to":"hunter2"}"#]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(!said.err.contains("hunter2"), "{}", said.err);
    assert_eq!(db.rows("jobs"), 0);
    for option in [
        ["--on-conflict", "refuse"],
        ["--unique-scope", "while-waiting"],
    ] {
        let said = windlass(&db.url, &[&["enqueue", "import"][..], &option].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains("pass `--unique-id`"), "{said:?}");
    }
    assert_eq!(db.rows("jobs"), 0);
    // A time that a column would round to none.
    let short = windlass(&db.url, &["enqueue", "import", "--timeout", "1ns"]);
    assert!(short.is_done(), "{short:?}");
    let policy = db.texts("SELECT policy AS t FROM solid_queue_jobs");
    assert_eq!(policy, [r#"{"timeout":1}"#]);
}
