//! The tests that every change must pass: all pages once, one action, and a live update, on one
//! database.

use super::check::{LOOKS, check};
use super::chrome::Chrome;
use super::site::Site;
use super::world::World;
use crate::support::TestDb;
use crate::support::wait::until;
use std::time::Duration;
use windlass::jobs::TaskStatus;
use windlass::{Function, JobId, JobResult, Registry, Worker};

#[test]
fn pages_an_action_and_a_live_update() {
    let db = TestDb::sqlite();
    let world = World::new(&db);
    let site = Site::of(&world);
    let chrome = Chrome::start();
    let page = chrome.page(&world.origin());
    page.brings_axe();
    let mut wrong = site.problems();
    let first = site.pages.values().map(|addresses| &addresses[0]);
    for (address, (width, dark)) in first.zip(LOOKS.iter().cycle()) {
        page.look(*width, *dark);
        page.goto(address);
        let found = check(&page);
        wrong.extend(
            found
                .into_iter()
                .map(|line| format!("{address} ({width}, dark: {dark}): {line}")),
        );
    }
    let address = format!("/jobs/{}", cancelled(&db));
    page.look(375, false);
    page.goto(&address);
    wrong.extend(
        check(&page)
            .into_iter()
            .map(|line| format!("{address}: {line}")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const LOOP: Function<()> = Function::new("regenerate_the_thumbnails").queue("until_cancelled");

/// Runs a job until it is cancelled, and returns its id.
fn cancelled(db: &TestDb) -> JobId {
    let registry = Registry::new().function(LOOP, |(), cx| -> JobResult {
        loop {
            cx.sleep(Duration::from_millis(5))?;
        }
    });
    let worker = Worker::new(&db.database, registry)
        .queues(["until_cancelled"])
        .unwrap()
        .heartbeat_interval(Duration::from_millis(50))
        .alive_threshold(Duration::from_secs(60));
    let _worker = worker.start().unwrap();
    let mut conn = db.connect();
    let job = LOOP.enqueue(&mut conn, &()).unwrap().id;
    let status = || {
        windlass::jobs::status(&mut db.connection(), job)
            .unwrap()
            .unwrap()
            .status
    };
    until("it runs", || status() == TaskStatus::Running);
    windlass::jobs::cancel(&mut conn, job).unwrap();
    until("it is cancelled", || status() == TaskStatus::Cancelled);
    job
}
