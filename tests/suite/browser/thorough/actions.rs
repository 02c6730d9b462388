//! Every change of a single job, queue, class, limit, task and operation, clicked through: with scripts and without.

use crate::browser::chrome::{Chrome, Page};
use crate::browser::work::How;
use crate::browser::work::job;
use crate::browser::world::World;
use crate::support::TestDb;
use crate::support::wait::until;
use windlass::enqueue_all;

/// Returns the message of the page after a change.
fn done(page: &Page) -> String {
    page.text(".why.done")
}

/// Returns the number of audit entries of an action on a page.
fn audited(db: &TestDb, action: &str) -> i64 {
    db.count(&format!(
        "SELECT count(*) AS n FROM windlass_audit WHERE action = '{action}' AND via = 'page'"
    ))
}

/// With scripts and without, each in a world of its own.
macro_rules! in_both_ways {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            fn with_scripts(db: &crate::support::TestDb) {
                super::in_world(db, true, super::$name);
            }

            fn without_scripts(db: &crate::support::TestDb) {
                super::in_world(db, false, super::$name);
            }

            crate::on_each_database!(with_scripts, without_scripts);
        }
    )+};
}

fn in_world(db: &TestDb, scripts: bool, test: fn(&World<'_>, &Page)) {
    let world = World::new(db);
    let chrome = Chrome::start();
    let page = chrome.page(&world.origin());
    page.scripts(scripts);
    test(&world, &page);
    assert_eq!(page.problems(), [""; 0]);
}

in_both_ways!(
    a_job_is_changed,
    many_jobs_are_changed,
    many_jobs_are_discarded,
    an_operation_is_stopped,
    the_theme_is_kept,
);

fn a_job_is_changed(world: &World<'_>, page: &Page) {
    let db = world.db;
    let failed = world.job("ChargeCard", "failed");
    page.goto(&format!("/jobs/{failed}"));
    page.follow("button", "Retry");
    assert!(!done(page).is_empty(), "{}", page.text("main"));
    until("it has failed again", || {
        audited(db, "jobs.retry") == 1 && world.job("ChargeCard", "failed") == failed
    });
    page.goto(&format!("/jobs/{failed}"));
    page.follow("a", "Discard");
    assert!(page.shows("ChargeCard"));
    page.fill("#reason", "the customer has paid in cash");
    page.follow("button.danger", "");
    assert!(!done(page).is_empty(), "{}", page.text("main"));
    let gone =
        format!("SELECT count(*) AS n FROM solid_queue_failed_executions WHERE job_id = {failed}");
    assert_eq!(db.count(&gone), 0);
    let reasons = db.texts("SELECT reason AS t FROM windlass_audit WHERE action = 'jobs.discard'");
    assert_eq!(reasons, ["the customer has paid in cash"]);

    let running = world.job("BuildReport", "claimed");
    page.goto(&format!("/jobs/{running}"));
    page.follow("a", "Cancel");
    page.follow("main form button", "");
    let claim = format!(
        "SELECT count(*) AS n FROM solid_queue_claimed_executions WHERE job_id = {running}"
    );
    until("it was cancelled", || db.count(&claim) == 0);

    let ready = world.job("ChargeCard", "ready");
    page.goto(&format!("/jobs/{ready}"));
    page.fill("input[name=queue]", "archive");
    page.fill("input[name=priority]", "7");
    page.follow("button", "Change");
    assert!(!done(page).is_empty(), "{}", page.text("main"));
    let places = db.texts(&format!("SELECT queue_name || priority AS t FROM solid_queue_ready_executions WHERE job_id = {ready}"));
    assert_eq!(places, ["archive7"]);

    let scheduled = world.job("SendWelcome", "scheduled");
    page.goto(&format!("/jobs/{scheduled}"));
    page.follow("button", "Run now");
    let still = format!(
        "SELECT count(*) AS n FROM solid_queue_scheduled_executions WHERE job_id = {scheduled}"
    );
    assert_eq!(db.count(&still), 0);
    // A job that has ended cannot be cancelled: a text beside the button gives the reason.
    let ended = db.count("SELECT max(id) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL");
    page.goto(&format!("/jobs/{ended}"));
    assert!(page.is("document.querySelector('button[disabled][aria-describedby]') !== null"));
    assert!(!page.text("#not").is_empty());
}

/// Waits until an operation has ended, as a page shows it.
fn wait_for_end(page: &Page) {
    until("the operation has ended", || {
        if !page.has_scripts() {
            page.goto(&page.address());
        }
        page.has(".why", "100 %")
    });
}

fn many_jobs_are_changed(world: &World<'_>, page: &Page) {
    let db = world.db;
    page.goto("/jobs?queue=partners&state=ready");
    page.click("input[name=which][value=matching]", "");
    page.follow("button[name=do]", "Move");
    assert!(page.shows("25"), "{}", page.text("main"));
    page.fill("input[name=to_queue]", "archive");
    page.follow("main form button.go", "");
    assert!(
        page.address().starts_with("/operations/"),
        "{}",
        page.address()
    );
    wait_for_end(page);
    let moved =
        "SELECT count(*) AS n FROM solid_queue_ready_executions WHERE queue_name = 'archive'";
    assert_eq!(db.count(moved), 25);
    // Only those that are selected.
    page.goto("/jobs?queue=archive&state=ready");
    for number in [0, 1, 2] {
        page.click(
            &format!("tbody tr:nth-child({}) input[name=job]", number + 1),
            "",
        );
    }
    page.follow("button[name=do]", "Priority");
    page.fill("input[name=to_priority]", "-3");
    page.follow("main form button.go", "");
    wait_for_end(page);
    let urgent = "SELECT count(*) AS n FROM solid_queue_ready_executions WHERE priority = -3";
    assert_eq!(db.count(urgent), 3);
}

fn many_jobs_are_discarded(world: &World<'_>, page: &Page) {
    let db = world.db;
    page.goto("/jobs?class=SendWelcome&state=failed");
    page.click("input[name=which][value=matching]", "");
    page.follow("button[name=do]", "Discard");
    assert!(
        page.shows("Nothing has changed yet."),
        "{}",
        page.text("main")
    );
    page.fill("input[name=typed]", "13");
    page.follow("main form button.danger", "");
    let left = "SELECT count(*) AS n FROM solid_queue_failed_executions f JOIN solid_queue_jobs j ON j.id = f.job_id \
         WHERE j.class_name = 'SendWelcome'";
    assert_eq!(db.count(left), 14, "{}", page.text("main"));
    // That is not the number: refused, and nothing was changed.
    page.problems();
    page.goto("/jobs?class=SendWelcome&state=failed");
    page.click("input[name=which][value=matching]", "");
    page.follow("button[name=do]", "Discard");
    page.fill("input[name=typed]", "14");
    page.follow("main form button.danger", "");
    wait_for_end(page);
    assert_eq!(db.count(left), 0);
}

fn an_operation_is_stopped(world: &World<'_>, page: &Page) {
    let db = world.db;
    // It must last for longer than a browser takes to stop it.
    let mut jobs = 60_000;
    let stopped = |jobs| stop_an_operation(world, page, jobs);
    while !stopped(jobs) {
        jobs *= 2;
        assert!(jobs < 500_000, "an operation ends before it can be stopped");
    }
    let left = db
        .count("SELECT count(*) AS n FROM solid_queue_ready_executions WHERE queue_name = 'many'");
    assert!(left > 0, "it was not stopped");
    let ends = "SELECT state AS t FROM windlass_operations ORDER BY id DESC LIMIT 1";
    assert_eq!(db.texts(ends), ["stopped"]);
    assert_eq!(audited(db, "operations.stop"), 1);
    // The page shows that, and nothing that was read before: not even for a moment.
    let lead = || page.text("[data-live='operation/progress'] .lead");
    assert!(lead().contains("stopped"), "{}", page.text("main"));
    if page.has_scripts() {
        let as_of = page.text(".asof");
        until("a live update", || page.text(".asof") != as_of);
        assert!(lead().contains("stopped"), "{}", page.text("main"));
    }
}

/// Returns `false` if the operation had ended before.
fn stop_an_operation(world: &World<'_>, page: &Page, jobs: u32) -> bool {
    let jobs = (0..jobs).map(|number| job("ChargeCard", How::Finish, number).queue("many"));
    enqueue_all(&mut world.db.connection(), jobs).unwrap();
    page.goto("/jobs?queue=many&state=ready");
    page.click("input[name=which][value=matching]", "");
    page.follow("button[name=do]", "Cancel");
    page.follow("main form button.go", "");
    if !page.has("button", "Stop") {
        return false;
    }
    page.follow("button", "Stop");
    let says = done(page);
    assert!(
        says.starts_with("Stopped.") || says.starts_with("Nothing was stopped"),
        "{}",
        page.text("main")
    );
    says.starts_with("Stopped.")
}

fn the_theme_is_kept(_: &World<'_>, page: &Page) {
    page.goto("/jobs?state=failed");
    for name in ["dark", "light"] {
        page.follow("button[name=theme]", name);
        assert_eq!(page.address(), "/jobs?state=failed");
        assert!(page.is(&format!(
            "document.documentElement.dataset.theme === '{name}'"
        )));
        page.goto("/");
        assert!(page.is(&format!(
            "document.documentElement.dataset.theme === '{name}'"
        )));
        page.goto("/jobs?state=failed");
    }
    page.follow("button[name=theme]", "auto");
    assert!(page.is("document.documentElement.dataset.theme === undefined"));
}
