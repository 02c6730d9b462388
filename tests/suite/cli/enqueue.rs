//! `windlass enqueue`, and `windlass queues` where it changes something.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;

on_each_database!(
    everything_is_stored_as_given,
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
        &["enqueue"],
    ] {
        let said = windlass(&db.url, arguments);
        assert_eq!(said.code, Some(2), "{said:?}");
    }
    let said = windlass(&db.url, &["enqueue", "a class", r#"{"to":"hunter2"}"#]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(!said.err.contains("hunter2"), "{}", said.err);
    assert_eq!(db.rows("jobs"), 0);
}
