//! Changes of many jobs: preview, confirmation, operation.

use super::world::{now, world};
use super::{hidden, link, listed, read, sent, text};
use crate::support::TestDb;
use crate::support::wait::until;
use crate::web::client::{get, post, serve};
use std::time::Duration;
use windlass::{NewJob, operations};
use windlass_console::web::Server;

crate::on_each_database!(
    a_bulk_action_is_previewed_confirmed_and_run,
    selected_jobs_are_changed_and_no_others,
    jobs_that_come_later_are_not_changed,
    the_same_form_twice_starts_one_operation,
    many_are_discarded_only_with_their_number,
    retries_are_spread_over_a_time,
    each_action_changes_what_it_says,
    wrong_requests_change_nothing,
    an_operation_shows_its_progress_and_is_stopped,
    a_server_that_ends_in_the_middle_loses_nothing,
    a_read_only_server_changes_nothing,
);

crate::through_a_pooler_in_all!(
    a_bulk_action_is_previewed_confirmed_and_run,
    selected_jobs_are_changed_and_no_others,
    jobs_that_come_later_are_not_changed,
    the_same_form_twice_starts_one_operation,
    many_are_discarded_only_with_their_number,
    retries_are_spread_over_a_time,
    each_action_changes_what_it_says,
    wrong_requests_change_nothing,
    an_operation_shows_its_progress_and_is_stopped,
    a_server_that_ends_in_the_middle_loses_nothing,
    a_read_only_server_changes_nothing,
);

/// Jobs that have failed, `count` of them.
fn fail(db: &TestDb, class: &str, count: usize) {
    let mut conn = db.connect();
    let jobs: Vec<NewJob> = (0..count).map(|_| NewJob::of_class(class, "{}")).collect();
    windlass::enqueue_all(&mut conn, jobs).unwrap();
    let error = r#"{"exception_class":"io","message":"no","backtrace":[]}"#;
    db.in_transaction(&[
        &format!(
            "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
             SELECT j.id, '{error}', {} FROM solid_queue_jobs j JOIN solid_queue_ready_executions r ON r.job_id = j.id \
             WHERE j.class_name = '{class}' ORDER BY j.id",
            now(db)
        ),
        &format!(
            "DELETE FROM solid_queue_ready_executions WHERE job_id IN (SELECT id FROM solid_queue_jobs WHERE class_name = '{class}')"
        ),
    ]);
}

fn operations_of(db: &TestDb) -> i64 {
    db.rows_of("windlass_operations")
}

fn until_done(db: &TestDb) {
    until("the operation has ended", || {
        db.count("SELECT count(*) AS n FROM windlass_operations WHERE ended_at IS NULL") == 0
    });
}

fn a_bulk_action_is_previewed_confirmed_and_run(db: &TestDb) {
    fail(db, "mail", 1_204);
    fail(db, "other", 3);
    let server = serve(&db.database);
    let path = "/preview?state=failed&class=mail&which=matching&do=retry";
    let page = get(&server, path).expect(200);
    let said = text(&page);
    for part in [
        "Retry 1,204 jobs?",
        "Nothing has changed yet.",
        "Jobs that are failed",
        "With class mail",
        "Number 1,204",
        "Some of them",
        "over 10 minutes",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_eq!(
        db.rows("failed_executions"),
        1_207,
        "a preview changes nothing"
    );
    let to = sent(
        &server,
        "/preview",
        &format!("{}&reason=fixed", hidden(&page)),
    );
    until_done(db);
    assert_eq!(
        (db.rows("failed_executions"), db.rows("ready_executions")),
        (3, 1_204)
    );
    let page = read(&server, &to);
    for part in [
        "Retry jobs",
        "done",
        "100 %",
        "1,204 of 1,204 jobs",
        "changed 1,204",
        "Class mail",
        "Reason fixed",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let list = read(&server, "/operations");
    assert!(
        list.contains("Retry jobs operation 1 done 100 % 100 % 1,204 1,204"),
        "{list}"
    );
    let audit = read(&server, "/audit?operation=1");
    assert!(audit.contains("jobs.retry operation"), "{audit}");
}

fn selected_jobs_are_changed_and_no_others(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    let (first, second) = (world.job("failed"), world.job("panicked"));
    let running = world.job("running");
    let path = format!("/preview?which=selected&do=discard&job={first}&job={second}&job={running}");
    let page = get(&server, &path).expect(200);
    assert!(text(&page).contains("Discard 2 jobs?"), "{page}");
    assert!(!text(&page).contains("Type the number"), "two are not many");
    sent(&server, "/preview", &hidden(&page));
    until_done(db);
    let left = listed(&get(&server, "/jobs").expect(200));
    assert!(!left.contains(&first) && !left.contains(&second));
    assert_eq!(left.len(), world.jobs.len() - 2);
    let none = get(&server, "/preview?which=selected&do=discard").expect(400);
    assert!(none.contains("No job is selected."), "{none}");
}

fn jobs_that_come_later_are_not_changed(db: &TestDb) {
    fail(db, "mail", 20);
    let server = serve(&db.database);
    let page = get(&server, "/preview?state=failed&which=matching&do=retry").expect(200);
    fail(db, "later", 5);
    sent(&server, "/preview", &hidden(&page));
    until_done(db);
    assert_eq!(
        (db.rows("failed_executions"), db.rows("ready_executions")),
        (5, 20)
    );
}

fn the_same_form_twice_starts_one_operation(db: &TestDb) {
    fail(db, "mail", 30);
    let server = serve(&db.database);
    let page = get(&server, "/preview?state=failed&which=matching&do=retry").expect(200);
    let form = hidden(&page);
    // Two clicks at once, and a third later.
    let address = server.address();
    let clicks: Vec<_> = (0..2)
        .map(|_| {
            let form = form.clone();
            std::thread::spawn(move || {
                let ask = crate::web::client::Ask::new(address, "POST", "/preview").form(&form);
                ask.send().header("location").unwrap().to_owned()
            })
        })
        .collect();
    let places: Vec<String> = clicks
        .into_iter()
        .map(|click| click.join().unwrap())
        .collect();
    until_done(db);
    let third = sent(&server, "/preview", &form);
    assert_eq!((&places[0], &places[0]), (&places[1], &third));
    assert_eq!(operations_of(db), 1);
    let starts = "SELECT count(*) AS n FROM windlass_audit WHERE part_of IS NULL";
    assert_eq!(db.count(starts), 1);
    // A new preview is a new operation.
    fail(db, "again", 2);
    let page = get(&server, "/preview?state=failed&which=matching&do=retry").expect(200);
    assert_ne!(sent(&server, "/preview", &hidden(&page)), third);
    assert_eq!(operations_of(db), 2);
}

fn many_are_discarded_only_with_their_number(db: &TestDb) {
    fail(db, "mail", 1_002);
    let server = serve(&db.database);
    let path = "/preview?state=failed&class=mail&which=matching&do=discard";
    let page = get(&server, path).expect(200);
    assert!(
        text(&page).contains("Type the number of jobs, 1,002 , to confirm"),
        "{page}"
    );
    for typed in ["", "&typed=", "&typed=1001", "&typed=yes"] {
        let to = sent(&server, "/preview", &format!("{}{typed}", hidden(&page)));
        assert!(to.starts_with("/preview?"), "{to}");
    }
    assert_eq!(
        (operations_of(db), db.rows("failed_executions")),
        (0, 1_002)
    );
    sent(
        &server,
        "/preview",
        &format!("{}&typed=1%2C002", hidden(&page)),
    );
    until_done(db);
    assert_eq!((db.rows("failed_executions"), db.rows("jobs")), (0, 0));
}

fn retries_are_spread_over_a_time(db: &TestDb) {
    fail(db, "mail", 60);
    let server = serve(&db.database);
    let page = get(&server, "/preview?state=failed&which=matching&do=retry").expect(200);
    sent(
        &server,
        "/preview",
        &format!("{}&spread=over+600", hidden(&page)),
    );
    until_done(db);
    // The first is due at once.
    let waiting = db.rows("scheduled_executions") + db.rows("ready_executions");
    assert_eq!((waiting, db.rows("failed_executions")), (60, 0));
    assert!(db.rows("scheduled_executions") >= 59);
    let spread = match db.is_postgres() {
        true => "CAST(extract(epoch FROM max(scheduled_at) - min(scheduled_at)) AS bigint)",
        false => {
            "CAST((julianday(max(scheduled_at)) - julianday(min(scheduled_at))) * 86400 AS integer)"
        }
    };
    let seconds = db.count(&format!(
        "SELECT {spread} AS n FROM solid_queue_scheduled_executions"
    ));
    assert!((560..=600).contains(&seconds), "{seconds}");
    fail(db, "more", 5);
    let page = get(&server, "/preview?state=failed&which=matching&do=retry").expect(200);
    for wrong in ["over+7", "5%2Fday", "over+x"] {
        let reply = post(
            &server,
            "/preview",
            &format!("{}&spread={wrong}", hidden(&page)),
        );
        assert_eq!(reply.status, 400, "{wrong}: {reply:?}");
    }
    sent(
        &server,
        "/preview",
        &format!("{}&spread=100%2Fmin", hidden(&page)),
    );
    until_done(db);
    let page = read(&server, "/operations/2");
    assert!(page.contains("Retry jobs, 100/min"), "{page}");
}

fn each_action_changes_what_it_says(db: &TestDb) {
    let mut conn = db.connect();
    for n in 0..4 {
        NewJob::of_class("wait", "{}").enqueue(&mut conn).unwrap();
        let later = NewJob::of_class("wait", "{}").after(Duration::from_secs(3600 + n));
        later.enqueue(&mut conn).unwrap();
    }
    let server = serve(&db.database);
    let act = |query: &str, form: &str| {
        let page = get(&server, &format!("/preview?which=matching&{query}")).expect(200);
        sent(&server, "/preview", &format!("{}&{form}", hidden(&page)));
        until_done(db);
    };
    let of_queue = |queue: &str| {
        db.count(&format!(
            "SELECT count(*) AS n FROM solid_queue_jobs WHERE queue_name = '{queue}'"
        ))
    };
    act("do=move&class=wait&state=ready", "to_queue=slow");
    assert_eq!((of_queue("slow"), of_queue("default")), (4, 4));
    act("do=priority&class=wait", "to_priority=-3");
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE priority = -3"),
        8
    );
    act("do=run&queue=default", "");
    assert_eq!(
        (db.rows("ready_executions"), db.rows("scheduled_executions")),
        (8, 0)
    );
    act("do=cancel&queue=slow", "");
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL"),
        4
    );
    act("do=discard&class=wait", "");
    assert_eq!((db.rows("ready_executions"), db.rows("jobs")), (0, 4));
    let page = read(&server, "/operations");
    for part in [
        "Move jobs to the queue slow",
        "Set the priority of jobs to -3",
        "Run jobs now",
        "Cancel jobs",
        "Discard jobs",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

fn wrong_requests_change_nothing(db: &TestDb) {
    fail(db, "mail", 3);
    let server = serve(&db.database);
    for (query, part) in [
        (
            "do=explode&which=matching",
            "What is done to jobs is one of",
        ),
        (
            "do=retry&which=matching&state=ready",
            "Only failed jobs can be retried.",
        ),
        (
            "do=cancel&which=matching&state=finished",
            "Only jobs that wait or run can be cancelled.",
        ),
        ("do=retry&job=x", "The id of a job is a number."),
    ] {
        let page = get(&server, &format!("/preview?{query}")).expect(400);
        assert!(page.contains(part), "{part} in {page}");
    }
    // A form without its preview is previewed first.
    let to = sent(&server, "/preview", "do=retry&which=matching&state=failed");
    assert_eq!(to, "/preview?state=failed&which=matching&do=retry");
    let page = get(&server, "/preview?do=move&which=matching&state=ready").expect(200);
    assert!(
        text(&page).contains("No job matches: there is nothing to change."),
        "{page}"
    );
    assert_eq!((operations_of(db), db.rows("failed_executions")), (0, 3));
    for path in ["/operations/77", "/operations/x"] {
        assert_eq!(get(&server, path).status, 404);
    }
}

fn an_operation_shows_its_progress_and_is_stopped(db: &TestDb) {
    fail(db, "mail", 1_100);
    let mut conn = db.connect();
    let jobs = windlass::jobs::Jobs::failed().by("ada");
    let retry = windlass::jobs::Change::Retry {
        even_at_most_once: false,
    };
    // No server runs it yet.
    let started = jobs.in_background(retry).start(&mut conn).unwrap();
    let server = Server::new(&db.database)
        .listen("127.0.0.1:0")
        .read_only(true);
    let server = server.start().unwrap();
    let path = format!("/operations/{}", started.id);
    let page = read(&server, &path);
    assert!(page.contains("waiting 0 % 0 %, 0 of 1,100 jobs"), "{page}");
    operations::run(&mut conn, Duration::ZERO).unwrap();
    while operations::list(&mut conn, None, 1).unwrap()[0].changed == 0 {
        operations::run(&mut conn, Duration::from_millis(1)).unwrap();
    }
    let page = read(&server, &path);
    let is_between = page.contains("running 45 % 45 %, 500 of 1,100 jobs");
    let is_further = page.contains("1,000 of 1,100 jobs") || page.contains("done 100 %");
    assert!(is_between || is_further, "{page}");
    drop(server);
    fail(db, "slow", 10);
    let slow = windlass::jobs::Jobs::failed().class("slow");
    let slow = slow
        .in_background(windlass::jobs::Change::Discard)
        .start(&mut conn)
        .unwrap();
    operations::stop(&mut conn, started.id).unwrap();
    // Stopped by the page before any batch: this server may be too late for that, and says so.
    let server = serve(&db.database);
    let reply = post(&server, &format!("/operations/{}/stop", slow.id), "");
    assert_eq!(reply.status, 303);
    let page = read(&server, &format!("/operations/{}", slow.id));
    assert!(page.contains("stopped") || page.contains("done"), "{page}");
    assert_eq!(link(&page, "Stop"), None);
}

fn a_server_that_ends_in_the_middle_loses_nothing(db: &TestDb) {
    fail(db, "mail", 3_000);
    let server = serve(&db.database);
    let page = get(&server, "/preview?state=failed&which=matching&do=retry").expect(200);
    let to = sent(&server, "/preview", &hidden(&page));
    until("some have been retried", || db.rows("ready_executions") > 0);
    drop(server);
    let server = serve(&db.database);
    until_done(db);
    assert_eq!(
        (db.rows("failed_executions"), db.rows("ready_executions")),
        (0, 3_000)
    );
    let page = read(&server, &to);
    assert!(
        page.contains("3,000 of 3,000 jobs") && page.contains("changed 3,000"),
        "{page}"
    );
    // Each job was counted once, and each batch has its row of the audit.
    let jobs =
        "SELECT CAST(sum(jobs) AS bigint) AS n FROM windlass_audit WHERE operation_id IS NOT NULL";
    assert_eq!(db.count(jobs), 3_000);
}

fn a_read_only_server_changes_nothing(db: &TestDb) {
    let world = world(db);
    let server = Server::new(&db.database)
        .listen("127.0.0.1:0")
        .read_only(true);
    let server = server.start().unwrap();
    let job = world.job("failed");
    for (path, form) in [
        (format!("/jobs/{job}/retry"), ""),
        (format!("/jobs/{job}/discard"), ""),
        (format!("/jobs/{job}/change"), "queue=x&priority=1"),
        (
            "/preview".to_owned(),
            "do=retry&which=matching&state=failed",
        ),
        ("/operations/1/stop".to_owned(), ""),
    ] {
        let reply = post(&server, &path, form);
        assert_eq!(reply.status, 403, "{path}: {reply:?}");
    }
    for path in [
        "/jobs",
        "/failed",
        &format!("/jobs/{job}"),
        "/preview?do=retry&which=matching&state=failed",
    ] {
        let page = get(&server, path).expect(200);
        assert!(
            text(&page).contains("Only an operator may change jobs."),
            "{path}: {page}"
        );
        let (_, main) = page.split_once("<main").unwrap();
        let (main, _) = main.split_once("</main>").unwrap();
        let buttons = main.split("<button").skip(1);
        let enabled =
            buttons.filter(|button| !button.split('>').next().unwrap().contains("disabled"));
        let enabled: Vec<&str> = enabled
            .filter(|button| !button.contains(">Filter<"))
            .collect();
        assert!(
            enabled.iter().all(|button| button.starts_with(">Filter")),
            "{path}: {enabled:?}"
        );
    }
    assert_eq!((db.rows("failed_executions"), operations_of(db)), (5, 0));
}
