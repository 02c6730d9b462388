//! The pages of the overview, queues, processes, limits, recurring tasks and `doctor`.

mod doctor;
mod hostile;
mod late;
mod limits;
mod overview;
mod processes;
mod queue;
mod queues;
mod recurring;
mod saturation;

use super::client::{Reply, get, post, serve};
use crate::support::TestDb;
use windlass::NewJob;
use windlass::audit::AuditLog;
use windlass_console::web::{RunningServer, Server};

/// A time in a form that both databases take.
const LONG_AGO: &str = "2026-01-01 00:00:00.000000";

fn enqueue(db: &TestDb, queue: &str, class: &str) -> i64 {
    let job = NewJob::of_class(class, "{}").queue(queue);
    job.enqueue(&mut db.connection()).unwrap().id.0
}

/// Adds a worker's row, as a process of Windlass writes it.
fn worker(db: &TestDb, pid: u32, queues: &str, heartbeat: &str) {
    process(
        db,
        "Worker",
        pid,
        &format!(r#"{{"queues":"{queues}","thread_pool_size":5,"windlass":"0.1.0"}}"#),
        heartbeat,
    );
}

fn process(db: &TestDb, kind: &str, pid: u32, metadata: &str, heartbeat: &str) {
    db.execute(&format!(
        "INSERT INTO solid_queue_processes (kind, name, pid, hostname, metadata, last_heartbeat_at, created_at) \
         VALUES ('{kind}', '{kind}-{pid}', {pid}, 'app-1', '{metadata}', {heartbeat}, {})",
        now(db)
    ));
}

/// The time of the database, as an expression.
fn now(db: &TestDb) -> &'static str {
    match db.is_postgres() {
        true => "(statement_timestamp() AT TIME ZONE 'UTC')",
        false => "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
    }
}

/// A page without its tags, each run of spaces as one.
fn text(page: &str) -> String {
    let mut text = String::new();
    let mut is_tag = false;
    for c in page.chars() {
        match c {
            '<' => {
                is_tag = true;
                text.push(' ');
            }
            '>' => is_tag = false,
            c if !is_tag => text.push(c),
            _ => {}
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The row of a table that contains a text.
#[track_caller]
fn row(page: &str, part: &str) -> String {
    let rows = page.split("<tr").filter(|row| row.contains(part));
    let row = rows.into_iter().next();
    let row = row.unwrap_or_else(|| panic!("no row has {part}: {page}"));
    text(&format!("<tr{}", row.split("</tr>").next().unwrap()))
}

/// The page of a path.
#[track_caller]
fn page(server: &RunningServer, path: &str) -> String {
    get(server, path).expect(200)
}

/// A server whose viewers may change nothing.
fn serve_viewers(db: &TestDb) -> RunningServer {
    let server = Server::new(&db.database).listen("127.0.0.1:0");
    server.read_only(true).start().unwrap()
}

/// Sends a form, which must lead back to a page; returns that page, which shows a message.
#[track_caller]
fn change(server: &RunningServer, path: &str, form: &str) -> String {
    let reply = post(server, path, form);
    assert_eq!(reply.status, 303, "{reply:?}");
    flash(server, &reply)
}

#[track_caller]
fn flash(server: &RunningServer, reply: &Reply) -> String {
    let location = reply.header("location").unwrap();
    let path = location.split('#').next().unwrap();
    let cookie = reply.cookies()[0].split(';').next().unwrap();
    let ask = super::client::Ask::new(server.address(), "GET", path);
    text(&ask.header("Cookie", cookie).send().expect(200))
}

/// The last change, as the audit has it: who, by what way, from where, what, and on what.
#[track_caller]
fn audited(db: &TestDb) -> String {
    let entries = AuditLog::new().list(&mut db.connection()).unwrap();
    let entry = entries.first().expect("nothing was audited");
    format!(
        "{} {} {} {} {} {}",
        entry.actor.split('@').next().unwrap_or_default(),
        entry.via,
        entry.origin.as_deref().unwrap_or("-"),
        entry.action,
        entry.target.as_deref().unwrap_or("-"),
        entry.reason.as_deref().unwrap_or("-")
    )
}

/// Returns whether the audit log is empty, so nothing was changed.
fn nothing_is_audited(db: &TestDb) -> bool {
    AuditLog::new()
        .list(&mut db.connection())
        .unwrap()
        .is_empty()
}

fn every_page_answers_without_anything(db: &TestDb) {
    let server = serve(&db.database);
    for path in [
        "/",
        "/?range=day",
        "/?range=week",
        "/?range=month",
        "/?range=year",
        "/?range=nonsense",
        "/queues",
        "/queues?sort=oldest",
        "/queues/none",
        "/processes",
        "/processes?open=7",
        "/limits",
        "/limits?key=a&waiting=1",
        "/limits?after=zzz",
        "/batches",
        "/batches?state=over",
        "/batches?state=failed&before=7",
        "/recurring",
        "/recurring?after=zzz",
        "/doctor",
        "/doctor?full=1",
    ] {
        let page = page(&server, path);
        assert!(!page.contains("This panel"), "{path}: {page}");
        assert!(!page.contains(" style="), "{path}: the policy forbids it");
        assert_eq!(page.matches("<h1>").count(), 1, "{path}");
    }
}

crate::on_each_database!(every_page_answers_without_anything);
