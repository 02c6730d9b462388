//! Hostile texts in every column: no page shows one as HTML.

use super::world::{now, world};
use crate::support::TestDb;
use crate::web::client::{Ask, serve};

crate::on_each_database!(no_text_becomes_html);

/// The end of an attribute and of a text, a tag and a handler.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&#60;--</textarea></script>";

/// Every text column that a page may show, and how rows get it.
const COLUMNS: [(&str, &[&str]); 13] = [
    (
        "solid_queue_jobs",
        &[
            "class_name",
            "queue_name",
            "arguments",
            "active_job_id",
            "concurrency_key",
            "unique_id",
            "policy",
        ],
    ),
    ("solid_queue_failed_executions", &["error"]),
    ("solid_queue_blocked_executions", &["concurrency_key"]),
    ("solid_queue_processes", &["hostname", "metadata"]),
    ("solid_queue_pauses", &["paused_by", "pause_reason"]),
    ("solid_queue_recurring_executions", &["task_key"]),
    (
        "windlass_attempts",
        &["kind", "message", "place", "process_name", "hostname"],
    ),
    ("windlass_results", &["result", "error"]),
    ("windlass_steps", &["value"]),
    ("windlass_classes", &["queue_name"]),
    ("windlass_job_logs", &["lines"]),
    (
        "windlass_operations",
        &[
            "action",
            "parameters",
            "filter",
            "error",
            "actor",
            "via",
            "origin",
            "reason",
        ],
    ),
    ("solid_queue_claimed_executions", &["note"]),
];

/// Returns the hostile text for a column, inside JSON if the column is read as JSON.
fn value(column: &str) -> String {
    let hostile = HOSTILE;
    let json = serde_json::Value::from(hostile);
    match column {
        "arguments" | "result" | "value" => format!("{{{json}:{json}}}"),
        "policy" => format!("{{\"extras\":{{\"tags\":[{json}],\"meta\":{{{json}:{json}}}}}}}"),
        "error" => {
            format!("{{\"exception_class\":{json},\"message\":{json},\"backtrace\":[{json}]}}")
        }
        "lines" => format!("[[1,\"INFO\",{json}]]"),
        "note" => {
            format!("{{\"thread\":{json},\"progress\":{{\"percent\":5,\"message\":{json}}}}}")
        }
        _ => hostile.to_owned(),
    }
}

fn no_text_becomes_html(db: &TestDb) {
    let world = world(db);
    let mut conn = db.connect();
    windlass::audit::Actor::named(HOSTILE)
        .origin(HOSTILE)
        .reason(HOSTILE)
        .pause_queue(&mut conn, "other")
        .unwrap();
    let jobs = windlass::jobs::Jobs::failed()
        .class(HOSTILE)
        .by(HOSTILE)
        .reason(HOSTILE);
    jobs.in_background(windlass::jobs::Change::Queue("x".to_owned()))
        .start(&mut conn)
        .unwrap();
    drop(conn);
    // The worker stops first: it would write its own texts again.
    let ids: Vec<i64> = world.jobs.values().copied().collect();
    for (table, columns) in COLUMNS {
        for column in columns {
            let text = value(column).replace('\'', "''");
            db.execute(&format!("UPDATE {table} SET {column} = '{text}'"));
        }
    }
    // As any other program could have stored it.
    let text = HOSTILE.replace('\'', "''");
    db.execute(&format!(
        "INSERT INTO windlass_classes (class_name, queue_name, redact, internal, seen_at) VALUES ('{text}', '{text}', '[]', {}, {})",
        if db.is_postgres() { "false" } else { "0" },
        now(db)
    ));
    let server = serve(&db.database);
    let encoded: String = form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
    let mut paths: Vec<String> = [
        "/",
        "/jobs",
        "/failed",
        "/operations",
        "/operations/1",
        "/audit",
        "/preview?which=matching&do=retry&state=failed",
        "/preview?which=matching&do=cancel",
    ]
    .map(str::to_owned)
    .into();
    for state in [
        "ready",
        "scheduled",
        "running",
        "blocked",
        "failed",
        "finished",
        "cancelled",
        "discarded",
    ] {
        paths.push(format!("/jobs?state={state}"));
    }
    for name in ["queue", "class", "error", "uid", "tag", "args", "group"] {
        paths.push(format!("/jobs?{name}={encoded}"));
        paths.push(format!("/preview?which=matching&do=retry&{name}={encoded}"));
    }
    for name in ["class", "kind", "text"] {
        paths.push(format!("/failed?{name}={encoded}"));
    }
    for name in ["actor", "action", "target", "operation"] {
        paths.push(format!("/audit?{name}={encoded}"));
    }
    for id in &ids {
        paths.push(format!("/jobs/{id}"));
        paths.push(format!("/jobs/{id}/discard"));
    }
    paths.push(format!("/jobs/{encoded}"));
    paths.push(format!("/operations/{encoded}"));
    let mut shown = 0;
    for path in paths {
        let ask = Ask::new(server.address(), "GET", &path).header("Accept", "text/html");
        let reply = ask.send();
        let kind = reply.header("content-type").unwrap();
        assert!(kind.starts_with("text/html"), "{path}: {kind}");
        assert!([200, 400, 404].contains(&reply.status), "{path}: {reply:?}");
        let page = reply.body;
        for raw in ["<img", "onerror=alert(1)>", "</textarea>", "\"'&#60;--"] {
            assert!(!page.contains(raw), "{path} has {raw}: {page}");
        }
        shown += page.matches("&#60;img src=x onerror=alert(1)&#62;").count();
        for attribute in [" style=", " onclick=", "javascript:"] {
            assert!(!page.contains(attribute), "{path} has {attribute}");
        }
    }
    assert!(shown > 300, "it was shown {shown} times only");
}
