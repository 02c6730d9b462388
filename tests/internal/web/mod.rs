//! Effects of a defect in a page: these need pages that no release has.

use crate::db::Conn;
use crate::db::conn::statement::Statement;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::error::{Error, ErrorContext as _};
use crate::web::access::viewer::Need;
use crate::web::dispatch::queue::QUEUE;
use crate::web::http::{PageError, Response};
use crate::web::request::panels::Panel;
use crate::web::request::route::{Cx, Route};
use crate::web::server::Server;
use crate::web::site::Section;
use crate::with_conn;
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

const INSERT: &str =
    "INSERT INTO solid_queue_pauses (queue_name, created_at) VALUES ('faulty', '2026-01-01')";

/// Runs statements as they are.
fn batch(conn: &mut Conn<'_>, sql: &str) -> crate::error::Result<()> {
    with_conn!(conn, |c| c.batch_execute(sql)).during("do what a page must not")
}

/// Everything that a defect may try with a connection to read.
fn write_by_reading(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let mut tried = Vec::new();
    for sql in [
        INSERT.to_owned(),
        format!("COMMIT; {INSERT}"),
        format!("COMMIT; BEGIN; {INSERT}; COMMIT"),
        format!("ROLLBACK; {INSERT}"),
        format!("PRAGMA query_only = OFF; {INSERT}"),
        "DELETE FROM solid_queue_jobs".to_owned(),
        "CREATE TABLE faulty (id integer)".to_owned(),
    ] {
        tried.push(cx.read(|conn| batch(conn, &sql)).is_ok());
    }
    let nested = cx.read(|conn| {
        conn.transaction(|conn| Statement::new(INSERT).execute(conn))
            .during("write in a transaction")
    });
    tried.push(nested.is_ok());
    Ok(Response::text(format!("{tried:?}")))
}

fn write(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    cx.write(|conn| batch(conn, INSERT))?;
    Ok(cx.done("/", "written"))
}

/// A page with a panel that takes longer than it may, and one that does not.
fn slow(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let slow = cx.panel("what takes long", |conn| {
        let sql = match conn.dialect() {
            crate::database::Dialect::Postgres => "SELECT count(*) FROM generate_series(1, 1000000000)",
            crate::database::Dialect::Sqlite => {
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT count(*) FROM n"
            }
        };
        Statement::new(sql).execute(conn).during("count for long")
    });
    let quick = cx.panel("the time", |conn| {
        Statement::new("SELECT 1").execute(conn).during("read")
    });
    let shell = cx.shell("Slow", Section::Other)?;
    let Panel::Missing(missing) = slow else {
        return Ok(Response::text("it was not slow"));
    };
    let quick = quick.ready().is_some();
    Ok(Response::html(format!("{missing} {quick} {}", shell.title)))
}

/// A page with a panel of many statements, none of which takes long.
fn many(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let many = cx.panel("a lot", |conn| {
        let sql = match conn.dialect() {
            crate::database::Dialect::Postgres => "SELECT count(*) FROM generate_series(1, 100000)",
            crate::database::Dialect::Sqlite => {
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT count(*) FROM n"
            }
        };
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            Statement::new(sql).execute(conn).during("count")?;
        }
        Ok(())
    });
    let quick = cx.panel("the time", |conn| {
        Statement::new("SELECT 1").execute(conn).during("read")
    });
    let Panel::Missing(missing) = many else {
        return Ok(Response::text("it was not slow"));
    };
    let quick = quick.ready().is_some();
    Ok(Response::html(format!("{missing} {quick}")))
}

fn panics(_: &mut Cx<'_>) -> Result<Response, PageError> {
    panic!("a defect")
}

/// Handlers wait here until the test lets them go.
static GATE: (Mutex<(usize, bool)>, Condvar) = (Mutex::new((0, false)), Condvar::new());

fn blocks(_: &mut Cx<'_>) -> Result<Response, PageError> {
    let mut state = GATE.0.lock().unwrap();
    state.0 += 1;
    GATE.1.notify_all();
    let _state = GATE
        .1
        .wait_timeout_while(state, Duration::from_secs(60), |state| !state.1)
        .unwrap();
    Ok(Response::text("went on"))
}

static RENDERED: AtomicUsize = AtomicUsize::new(0);

fn counts(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let count = RENDERED.fetch_add(1, Ordering::SeqCst);
    cx.shell("Counted", Section::Other)?;
    Ok(Response::html(format!(
        "<p data-live=\"count\">{count}</p>"
    )))
}

const ROUTES: &[Route] = &[
    Route::get("/read", write_by_reading),
    Route::get("/write", write),
    Route::post("/viewer", write).needs(Need::Viewer),
    Route::post("/operator", write),
    Route::get("/slow", slow),
    Route::get("/many", many),
    Route::get("/panics", panics),
    Route::get("/blocks", blocks),
    Route::get("/counts", counts).live(),
];

fn server(db: &TestDb) -> Server {
    Server {
        routes: ROUTES,
        ..Server::new(&db.database).listen("127.0.0.1:0")
    }
}

/// Waits until `condition` gives a value.
fn eventually<T>(mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn open(address: SocketAddr, method: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n"
    );
    stream
        .write_all((head + "Content-Length: 0\r\n\r\n").as_bytes())
        .unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn ask(address: SocketAddr, method: &str, path: &str) -> String {
    answer(open(address, method, path))
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    n: i64,
}

fn pauses(db: &TestDb) -> i64 {
    let mut connection = db.connect();
    let text = "SELECT count(*) AS n FROM solid_queue_pauses";
    let count: Result<Count, Error> = connection
        .with_write_lock(|conn| Statement::new(text).get_result(conn))
        .during("count");
    count.unwrap().n
}

fn a_defect_cannot_write_for_a_viewer(db: &TestDb) {
    for read_only in [true, false] {
        let server = server(db).read_only(read_only).start().unwrap();
        let said = ask(server.address(), "GET", "/read");
        assert!(said.contains("200 OK"), "{said}");
        assert!(!said.contains("true"), "{said}");
        // A page has no connection that writes, not even for an operator.
        let said = ask(server.address(), "GET", "/write");
        assert!(said.contains("403 Forbidden"), "{said}");
    }
    let server = server(db).read_only(true).start().unwrap();
    for path in ["/viewer", "/operator"] {
        let said = ask(server.address(), "POST", path);
        assert!(said.contains("403 Forbidden"), "{said}");
    }
    assert_eq!(pauses(db), 0);
    drop(server);
    let server = self::server(db).start().unwrap();
    let said = ask(server.address(), "POST", "/operator");
    assert!(said.contains("303 See Other"), "{said}");
    assert_eq!(pauses(db), 1);
}

fn a_panel_that_is_late_says_so(db: &TestDb) {
    let server = server(db).start().unwrap();
    for _ in 0..2 {
        let start = Instant::now();
        let said = ask(server.address(), "GET", "/slow");
        assert!(
            said.contains("This panel was not ready within 1 s."),
            "{said}"
        );
        assert!(said.ends_with(" true Slow"), "{said}");
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{:?}",
            start.elapsed()
        );
    }
}

/// The database limits each statement, and the client all of them: what the client gives up is late,
/// and says nothing of the database.
fn many_statements_that_are_late_together_are_no_outage(db: &TestDb) {
    let server = server(db).start().unwrap();
    for _ in 0..2 {
        let said = ask(server.address(), "GET", "/many");
        assert!(
            said.contains("This panel was not ready within 1 s."),
            "{said}"
        );
        assert!(said.ends_with(" true"), "{said}");
    }
}

fn a_panic_is_an_internal_error(db: &TestDb) {
    let server = server(db).threads(2).start().unwrap();
    for _ in 0..5 {
        let said = ask(server.address(), "GET", "/panics");
        assert!(said.contains("500 Internal Server Error"), "{said}");
        assert!(!said.contains("a defect"), "{said}");
    }
    assert!(server.is_running());
}

#[test]
fn a_full_queue_refuses_at_once() {
    let db = TestDb::sqlite();
    let server = server(&db).threads(2).start().unwrap();
    let address = server.address();
    let mut waiting: Vec<TcpStream> = (0..2).map(|_| open(address, "GET", "/blocks")).collect();
    let state = GATE.0.lock().unwrap();
    let waited = GATE
        .1
        .wait_timeout_while(state, Duration::from_secs(60), |state| state.0 < 2);
    drop(waited.unwrap());
    // Until it is full, requests wait; the next one is refused.
    waiting.extend((0..QUEUE).map(|_| open(address, "GET", "/blocks")));
    let refused = eventually(|| {
        let mut stream = open(address, "GET", "/blocks");
        stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let mut text = String::new();
        match stream.read_to_string(&mut text) {
            Ok(_) => Some(text),
            Err(_) => {
                waiting.push(stream);
                None
            }
        }
    });
    assert!(refused.contains("503 Service Unavailable"), "{refused}");
    assert!(refused.contains("retry-after: 1"), "{refused}");
    // A request that needs no thread is answered.
    assert!(ask(address, "GET", "/livez").contains("200 OK"));
    GATE.0.lock().unwrap().1 = true;
    GATE.1.notify_all();
    assert!(answer(waiting.swap_remove(0)).contains("went on"));
}

#[test]
fn fifty_viewers_cost_as_much_as_one() {
    let db = TestDb::sqlite();
    let server = server(&db).start().unwrap();
    let viewers: Vec<TcpStream> = (0..50)
        .map(|_| open(server.address(), "GET", "/live?path=%2Fcounts"))
        .collect();
    // Each gets every rendering: the tenth message of the last has come after ten renderings.
    let mut last = viewers.last().unwrap().try_clone().unwrap();
    let mut text = String::new();
    while text.matches("event: fragments").count() < 3 {
        let mut bytes = [0; 4096];
        let count = last
            .read(&mut bytes)
            .unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(count > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    let rendered = RENDERED.load(Ordering::SeqCst);
    assert!((3..=6).contains(&rendered), "{rendered}");
    drop(viewers);
    drop(last);
    // And without viewers nothing is rendered.
    eventually(|| server.site.hub.topics().is_empty().then_some(()));
}

on_each_database!(
    a_defect_cannot_write_for_a_viewer,
    a_panel_that_is_late_says_so,
    many_statements_that_are_late_together_are_no_outage,
    a_panic_is_an_internal_error,
);
