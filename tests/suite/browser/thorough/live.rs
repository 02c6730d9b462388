//! Pages that are kept up to date while they are open.

use crate::browser::chrome::{Chrome, Page};
use crate::browser::work::{How, job};
use crate::browser::world::World;
use crate::support::TestDb;
#[cfg(feature = "postgres")]
use crate::support::proxy::Proxy;
use crate::support::wait::until;
use std::path::Path;
use windlass::jobs::{Change, Jobs};
use windlass::{Database, JobId, queues};
use windlass_console::web::Server;

crate::on_each_database!(
    what_happens_elsewhere_appears,
    what_is_in_use_stays,
    a_database_that_is_away_leaves_what_was_last_seen,
);

/// Marks the page: it is another one after a reload.
fn mark(page: &Page) {
    page.eval("window.same = true");
}

fn is_same(page: &Page) -> bool {
    page.is("window.same === true")
}

fn what_happens_elsewhere_appears(db: &TestDb) {
    let world = World::new(db);
    let chrome = Chrome::start();
    let page = chrome.page(&world.origin());
    page.goto("/");
    mark(&page);
    page.wait("document.querySelector('.reload').textContent === 'live'");
    let mut conn = db.connect();
    job("ChargeCard", How::Finish, 1)
        .queue("brand-new")
        .enqueue(&mut conn)
        .unwrap();
    page.wait_for("brand-new");
    assert!(is_same(&page), "the page was loaded anew");
    // A job that fails, on its own page.
    let id = job("SendWelcome", How::Refused("x".to_owned()), 2)
        .after(std::time::Duration::from_secs(900));
    let id = id.enqueue(&mut conn).unwrap().id.0;
    page.goto(&format!("/jobs/{id}"));
    mark(&page);
    page.wait("document.querySelector('.reload').textContent === 'live'");
    run_now(db, id);
    page.wait_for("connect to x: connection refused");
    page.wait("document.querySelector('[data-live=\"job/why\"]').classList.contains('bad')");
    assert!(is_same(&page));
    // Held, it stays as it is.
    page.press(".");
    page.wait("document.querySelector('.reload').textContent === 'held'");
    page.press(".");
    page.wait("document.querySelector('.reload').textContent === 'live'");
    assert_eq!(page.problems(), [""; 0]);
}

fn run_now(db: &TestDb, id: i64) {
    let changed = Jobs::unfinished().ids([JobId(id)]).change(
        &mut db.connection(),
        Change::RunIn(std::time::Duration::ZERO),
    );
    assert_eq!(changed.unwrap().changed, 1);
}

/// An element that is kept up to date, as it is seen.
fn part(name: &str) -> String {
    format!("document.querySelector('[data-live=\"{name}\"]')")
}

/// Of a part of the page.
const FIRST_DETAILS: &str = "[data-live='job/timeline'] details";

fn what_is_in_use_stays(db: &TestDb) {
    let world = World::new(db);
    let chrome = Chrome::start();
    let page = chrome.page(&world.origin());
    let failed = fails_with_details(&world);
    page.goto(&format!("/jobs/{failed}"));
    mark(&page);
    page.wait("document.querySelector('.reload').textContent === 'live'");
    page.click(&format!("{FIRST_DETAILS} summary"), "");
    page.eval("document.activeElement.blur()");
    let is_open = format!("document.querySelector(\"{FIRST_DETAILS}\").open");
    assert!(page.is(&is_open));
    // It waits then: the page shows that where it is not in use.
    queues::pause(&mut db.connection(), "payments", "ada", "").unwrap();
    retry_job(db, failed);
    page.wait(&format!("{}.innerText.includes('paused')", part("job/why")));
    let timeline = part("job/timeline");
    let is_old = format!("{timeline}.innerText.includes('it is kept until it is retried')");
    assert!(page.is(&format!("{is_open} && {is_old}")));
    // The part shows the new state once it is not in use any more.
    page.click(&format!("{FIRST_DETAILS} summary"), "");
    page.eval("document.activeElement.blur()");
    page.wait(&format!("!{is_old}"));
    assert!(is_same(&page));
    what_is_typed_stays(&world, &page);
    assert_eq!(page.problems(), [""; 0]);
}

/// Enqueues a job that fails with an error of two lines, and waits for that.
fn fails_with_details(world: &World<'_>) -> i64 {
    let how = How::Invalid("order 9: the amount is negative\nin line 3".to_owned());
    let job = job("ChargeCard", how, 9);
    let id = job.enqueue(&mut world.db.connection()).unwrap().id.0;
    until("it has failed", || world.job("ChargeCard", "failed") == id);
    id
}

fn what_is_typed_stays(world: &World<'_>, page: &Page) {
    let scheduled = world.job("SendWelcome", "scheduled");
    page.goto(&format!("/jobs/{scheduled}"));
    mark(page);
    page.wait("document.querySelector('.reload').textContent === 'live'");
    page.fill("input[name=queue]", "archive");
    let priority = |priority: i32| {
        let changed = Jobs::waiting()
            .ids([JobId(scheduled)])
            .change(&mut world.db.connection(), Change::Priority(priority));
        assert_eq!(changed.unwrap().changed, 1);
        page.wait(&format!(
            "{}.innerText.includes('mail, {priority}')",
            part("job/facts")
        ));
        assert!(page.is("document.querySelector('input[name=queue]').value === 'archive'"));
    };
    priority(9);
    // Nor is it lost when the focus leaves the field.
    page.eval("document.activeElement.blur()");
    priority(11);
    page.eval("document.querySelector('input[name=queue]').value = 'mail'");
    page.wait("document.querySelector('input[name=priority]').value === '11'");
    assert!(is_same(page));
}

fn retry_job(db: &TestDb, id: i64) {
    let retry = Change::Retry {
        even_at_most_once: false,
    };
    let changed = Jobs::failed()
        .ids([JobId(id)])
        .change(&mut db.connection(), retry);
    assert_eq!(changed.unwrap().changed, 1);
}

/// A way to make a database unreachable, and to bring it back.
enum Outage {
    #[cfg(feature = "postgres")]
    Proxy(Proxy),
    /// The file, and where it is meanwhile.
    File(std::path::PathBuf, std::path::PathBuf),
}

impl Outage {
    /// Returns it with the address of the database that it is for.
    fn of(db: &TestDb) -> (Self, String) {
        #[cfg(feature = "postgres")]
        if db.is_postgres() {
            let proxy = Proxy::opened(&db.url);
            let url = proxy.url(&db.url);
            return (Outage::Proxy(proxy), url);
        }
        let file = Path::new(db.address());
        let outage = Outage::File(file.to_owned(), file.with_extension("away"));
        (outage, db.url.clone())
    }

    fn begin(&mut self) {
        match self {
            #[cfg(feature = "postgres")]
            Outage::Proxy(proxy) => proxy.close(),
            Outage::File(file, away) => std::fs::rename(file, away).unwrap(),
        }
    }

    fn end(&mut self) {
        match self {
            #[cfg(feature = "postgres")]
            Outage::Proxy(proxy) => proxy.open(),
            Outage::File(file, away) => std::fs::rename(away, file).unwrap(),
        }
    }
}

fn a_database_that_is_away_leaves_what_was_last_seen(db: &TestDb) {
    let (mut outage, url) = Outage::of(db);
    let world = World::served_by(db, Server::new(&Database::open(&url).unwrap()));
    let chrome = Chrome::start();
    let page = chrome.page(&world.origin());
    page.goto("/");
    mark(&page);
    page.wait("document.querySelector('.reload').textContent === 'live'");
    assert!(page.shows("partners"));
    outage.begin();
    page.wait("document.querySelector('main').classList.contains('stale')");
    page.wait("/ \\d+ s/.test(document.getElementById('away')?.innerText)");
    assert!(
        page.shows("partners") && page.shows("Database away"),
        "{}",
        page.text("body")
    );
    let color = page.eval("getComputedStyle(document.querySelector('main')).filter + getComputedStyle(document.querySelector('main')).opacity");
    assert_ne!(color, "none1", "it is not grey");
    // A page that is loaded meanwhile shows the same.
    let other = chrome.page(&world.origin());
    other.goto("/");
    assert!(
        other.shows("partners") && other.shows("Database away"),
        "{}",
        other.text("body")
    );
    outage.end();
    page.wait("!document.querySelector('main').classList.contains('stale')");
    job("ChargeCard", How::Finish, 1)
        .queue("afterwards")
        .enqueue(&mut db.connection())
        .unwrap();
    page.wait_for("afterwards");
    assert!(is_same(&page), "the page was loaded anew");
    assert!(!page.shows("Database away"));
}
