//! `windlass status`.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;

on_each_database!(
    nothing_is_said_plainly,
    every_kind_of_row_is_counted,
    json_has_everything,
    watching_looks_again_and_again,
);

fn nothing_is_said_plainly(db: &TestDb) {
    let said = windlass(&db.url, &["status"]);
    assert!(said.is_done(), "{said:?}");
    assert_eq!(
        said.out,
        "No job is ready, scheduled, claimed, blocked or failed.\n\n\
         No process is registered: no jobs are processed.\n"
    );
    let status = windlass(&db.url, &["status", "--json"]).json();
    assert_eq!(
        status,
        serde_json::json!({"queues": [], "processes": [], "paused_classes": [], "rates": []})
    );
}

fn ago(db: &TestDb, seconds: u32) -> String {
    if db.is_postgres() {
        format!("(statement_timestamp() AT TIME ZONE 'UTC') - interval '{seconds} seconds'")
    } else {
        format!("strftime('%Y-%m-%d %H:%M:%f000', 'now', '-{seconds} seconds')")
    }
}

/// Two ready, one of every other kind, and a worker that holds a job.
pub fn fill(db: &TestDb) {
    let now = ago(db, 0);
    let process = "INSERT INTO solid_queue_processes (id, kind, name, pid, hostname, draining, created_at, last_heartbeat_at)";
    let (old, older) = (ago(db, 90), ago(db, 7200));
    db.execute(&format!(
        "{process} VALUES (7, 'Worker', 'worker-a', 4711, 'web-1', true, {now}, {old})"
    ));
    db.execute(&format!(
        "{process} VALUES (8, 'Dispatcher', 'dispatcher-a', 4712, 'web-1', false, {now}, {now})"
    ));
    for id in 1..=6 {
        db.execute(&format!(
            "INSERT INTO solid_queue_jobs (id, queue_name, class_name, arguments, created_at, updated_at) \
             VALUES ({id}, 'mail', 'send', '{{\"to\":\"hunter2\"}}', {now}, {now})"
        ));
    }
    for (table, columns, values) in [
        (
            "ready",
            "job_id, queue_name, created_at",
            format!("1, 'mail', {older}"),
        ),
        (
            "ready",
            "job_id, queue_name, created_at",
            format!("2, 'mail', {now}"),
        ),
        (
            "scheduled",
            "job_id, queue_name, scheduled_at, created_at",
            format!("3, 'mail', {now}, {now}"),
        ),
        (
            "claimed",
            "job_id, process_id, created_at",
            format!("4, 7, {older}"),
        ),
        (
            "blocked",
            "job_id, queue_name, concurrency_key, expires_at, created_at",
            format!("5, 'mail', 'k', {now}, {now}"),
        ),
        (
            "failed",
            "job_id, error, created_at",
            format!("6, '{{}}', {now}"),
        ),
    ] {
        db.execute(&format!(
            "INSERT INTO solid_queue_{table}_executions ({columns}) VALUES ({values})"
        ));
    }
    db.execute(&format!(
        "INSERT INTO solid_queue_pauses (queue_name, created_at) VALUES ('old', {now})"
    ));
}

fn words<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let mut lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .find(|words| words.first() == Some(&first))
        .unwrap_or_else(|| panic!("no {first} in\n{text}"))
}

fn every_kind_of_row_is_counted(db: &TestDb) {
    fill(db);
    let said = windlass(&db.url, &["status"]);
    assert!(said.is_done(), "{said:?}");
    let out = said.out;
    assert_eq!(
        words(&out, "mail")[..7],
        ["mail", "2", "1", "1", "1", "1", "2h"]
    );
    assert_eq!(
        words(&out, "old"),
        ["old", "0", "0", "0", "0", "0", "paused"]
    );
    let worker = words(&out, "Worker");
    assert_eq!(worker[..4], ["Worker", "web-1", "4711", "1m"]);
    for word in ["late,", "draining", "send", "#4", "2h"] {
        assert!(worker.contains(&word), "{word}: {out}");
    }
    assert_eq!(
        words(&out, "Dispatcher")[..3],
        ["Dispatcher", "web-1", "4712"]
    );
    assert!(!out.contains("hunter2"), "{out}");
    // Piped: no colours, no frames.
    assert!(
        out.is_ascii() && !out.contains('\u{1b}') && !out.contains('|'),
        "{out}"
    );
}

fn json_has_everything(db: &TestDb) {
    fill(db);
    let status = windlass(&db.url, &["status", "--json"]).json();
    let mail = &status["queues"][0];
    assert_eq!(mail["queue_name"], "mail");
    for (kind, count) in [
        ("ready", 2),
        ("scheduled", 1),
        ("claimed", 1),
        ("blocked", 1),
        ("failed", 1),
    ] {
        assert_eq!(mail[kind], count, "{kind}");
    }
    assert_eq!(mail["paused"], false);
    assert!(
        (7200.0..7260.0).contains(&mail["oldest_ready_seconds"].as_f64().unwrap()),
        "{mail}"
    );
    let old = &status["queues"][1];
    assert_eq!(
        (&old["paused"], &old["oldest_ready_seconds"]),
        (&true.into(), &serde_json::Value::Null)
    );
    let processes = status["processes"].as_array().unwrap();
    let worker = processes
        .iter()
        .find(|process| process["kind"] == "Worker")
        .unwrap();
    assert_eq!(
        (&worker["pid"], &worker["hostname"], &worker["draining"]),
        (&4711.into(), &"web-1".into(), &true.into())
    );
    assert!(
        (90.0..150.0).contains(&worker["heartbeat_seconds"].as_f64().unwrap()),
        "{worker}"
    );
    let run = &worker["runs"][0];
    assert_eq!(
        (&run["job_id"], &run["class_name"]),
        (&4.into(), &"send".into())
    );
    assert!(
        (7200.0..7260.0).contains(&run["seconds"].as_f64().unwrap()),
        "{worker}"
    );
}

fn watching_looks_again_and_again(db: &TestDb) {
    fill(db);
    let watch = ["status", "--watch", "--every", "1ms", "--times", "3"];
    let said = windlass(&db.url, &[&watch[..], &["--json"]].concat());
    assert!(said.is_done(), "{said:?}");
    let lines: Vec<serde_json::Value> = said
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[2]["queues"][0]["ready"], 2);
    let said = windlass(&db.url, &watch);
    assert_eq!(said.out.matches("QUEUE ").count(), 3, "{}", said.out);
    // A wrong address is told at once.
    let said = windlass("sqlite:///no/such/file.db", &["status", "--watch"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(windlass(&db.url, &["status", "--times", "3"]).code, Some(2));
}
