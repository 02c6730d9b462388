//! The list of jobs, its filters, and the search box.

use super::world::{World, world};
use super::{link, listed, read, text};
use crate::support::TestDb;
use crate::support::wait::{eventually, until};
use crate::web::client::{get, serve};
use std::collections::BTreeSet;
use windlass::NewJob;
use windlass_console::web::RunningServer;

crate::on_each_database!(
    each_state_has_its_jobs,
    rows_say_why,
    filters_select,
    the_list_goes_back_and_forth,
    a_search_without_an_index_stops_and_goes_on,
    jobs_far_apart_are_found,
    finished_jobs_are_found_behind_many_that_wait,
    the_search_box_goes_to_what_it_names,
    hidden_arguments_are_not_found,
    a_search_stops_when_it_has_read_much,
    where_a_search_stops_tells_nothing_of_what_is_hidden,
    wrong_filters_are_explained,
);

crate::through_a_pooler_in_all!(
    each_state_has_its_jobs,
    rows_say_why,
    filters_select,
    the_list_goes_back_and_forth,
    a_search_without_an_index_stops_and_goes_on,
    jobs_far_apart_are_found,
    finished_jobs_are_found_behind_many_that_wait,
    the_search_box_goes_to_what_it_names,
    hidden_arguments_are_not_found,
    where_a_search_stops_tells_nothing_of_what_is_hidden,
    wrong_filters_are_explained,
);

fn ids(server: &RunningServer, query: &str) -> Vec<i64> {
    listed(&get(server, &format!("/jobs{query}")).expect(200))
}

fn named(world: &World, names: &[&str]) -> Vec<i64> {
    let mut ids: Vec<i64> = names.iter().map(|name| world.job(name)).collect();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids
}

fn sorted(mut ids: Vec<i64>) -> Vec<i64> {
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids
}

fn each_state_has_its_jobs(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    for (state, names) in [
        (
            "ready",
            &["paused", "elsewhere", "unknown", "recurring", "of_ruby"][..],
        ),
        ("scheduled", &["retried", "first", "later"]),
        ("running", &["running", "unique"]),
        ("blocked", &["limited", "behind", "second"]),
        (
            "failed",
            &["failed", "panicked", "timed_out", "once", "failed_in_ruby"],
        ),
        ("finished", &["finished"]),
        ("cancelled", &["cancelled"]),
        ("discarded", &["discarded"]),
    ] {
        let found = sorted(ids(&server, &format!("?state={state}")));
        assert_eq!(found, named(&world, names), "{state}");
    }
    let all: Vec<&str> = world.jobs.keys().copied().collect();
    let page = get(&server, "/jobs").expect(200);
    assert_eq!(listed(&page), named(&world, &all));
    let tabs = text(&page);
    assert!(
        tabs.contains(&format!("All {} Ready 5 Scheduled 3 Running 2 Blocked 3 Failed 5 Finished Cancelled 1 Discarded 1", all.len())),
        "{tabs}"
    );
}

fn rows_say_why(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    let page = read(&server, "/jobs");
    let unique = world.job("unique");
    for part in [
        "but its queue is paused",
        "but no running worker serves its queue",
        "running at 64 %, for ",
        &format!("behind {unique} : same unique id"),
        "waits for a slot of sync/7",
        "waits for a slot of line/a",
        ", for attempt 2",
        "connection reset by peer (os error 104)",
        "panic: it met no account",
        "Net::ReadTimeout: Net::ReadTimeout with #&#60;TCPSocket:(closed)&#62;",
        "the account was closed",
        "{&#34;account&#34;: 7, &#34;api_token&#34;: hidden",
        "2 of 2",
        "1 of 5",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

fn filters_select(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    for (query, names) in [
        ("?queue=webhooks", &["paused"][..]),
        (
            "?state=ready&queue=media",
            &["elsewhere", "unknown", "recurring"],
        ),
        ("?class=unregistered", &["unknown"]),
        ("?class=ReportJob&state=failed", &["failed_in_ruby"]),
        ("?error=reset+by+peer", &["failed", "once"]),
        ("?state=discarded&error=closed", &["discarded"]),
        ("?uid=sync%2Fcustomer%2F7", &["unique", "behind"]),
        ("?uid=sync%2Fcustomer%2F7&state=blocked", &["behind"]),
        ("?tag=eu", &["finished"]),
        ("?args=mode%3A+late", &["timed_out"]),
        ("?args=%22mode%22%3A%22panic%22&state=failed", &["panicked"]),
        ("?queue=media&class=unregistered&state=ready", &["unknown"]),
        ("?queue=nowhere", &[]),
        ("?tag=nowhere", &[]),
        ("?from=2100-01-01", &[]),
        ("?to=2000-01-01T00:00&state=failed", &[]),
        ("?since=1h&tag=eu", &["finished"]),
        (
            "?from=2020-01-01&to=2100-01-01&state=failed&error=met+no",
            &["panicked"],
        ),
    ] {
        assert_eq!(sorted(ids(&server, query)), named(&world, names), "{query}");
    }
    let page = get(&server, "/jobs?queue=media&since=1h").expect(200);
    let without = link(&page, "queue media ×").unwrap();
    assert_eq!(without, "/jobs?since=1h");
    assert!(text(&page).contains("enqueued in the last hour ×"));
}

fn the_list_goes_back_and_forth(db: &TestDb) {
    let mut conn = db.connect();
    let jobs: Vec<NewJob> = (0..120)
        .map(|n| NewJob::of_class("page", format!(r#"{{"n":{n}}}"#)).priority(n % 3))
        .collect();
    NewJob::of_class("other", "{}").enqueue(&mut conn).unwrap();
    windlass::enqueue_all(&mut conn, jobs).unwrap();
    let server = serve(&db.database);
    // With an index, with a filter that has none, and by the priorities of a queue.
    for start in [
        "/jobs?state=ready",
        "/jobs?class=page",
        "/jobs?state=ready&queue=default&class=page",
    ] {
        let (mut pages, mut path) = (Vec::new(), start.to_owned());
        loop {
            let page = get(&server, &path).expect(200);
            pages.push((path, listed(&page)));
            match link(&page, "Older") {
                Some(older) => path = older,
                None => break,
            }
        }
        let all: Vec<i64> = pages.iter().flat_map(|(_, ids)| ids.clone()).collect();
        let newest = sorted(all.clone());
        assert_eq!(all, newest, "{start}");
        assert_eq!(all.len(), if start.contains("class") { 120 } else { 121 });
        assert_eq!(pages.len(), 3);
        // And back again, to the same pages.
        let mut page = get(&server, &pages[2].0).expect(200);
        for (_, expected) in pages[..2].iter().rev() {
            page = get(&server, &link(&page, "Newer").unwrap()).expect(200);
            assert_eq!(listed(&page), *expected);
        }
        let again = get(&server, &link(&page, "Newer").unwrap_or(start.to_owned())).expect(200);
        assert_eq!(listed(&again), pages[0].1);
    }
}

fn a_search_without_an_index_stops_and_goes_on(db: &TestDb) {
    let mut conn = db.connect();
    let wanted = NewJob::of_class("wanted", "{}")
        .enqueue(&mut conn)
        .unwrap()
        .id;
    let many = (0..10_050).map(|_| NewJob::of_class("many", "{}"));
    for part in many.collect::<Vec<_>>().chunks(1_000) {
        windlass::enqueue_all(&mut conn, part.to_vec()).unwrap();
    }
    let server = serve(&db.database);
    let page = get(&server, "/jobs?class=wanted").expect(200);
    assert_eq!(listed(&page), [] as [i64; 0]);
    let said = text(&page);
    assert!(said.contains("No job found yet."), "{said}");
    assert!(
        said.contains("looks at 10,000 jobs, or for 50 ms, at a time."),
        "{said}"
    );
    let further = link(&page, "Search further").unwrap();
    let page = get(&server, &further).expect(200);
    assert_eq!(listed(&page), [wanted.0]);
    assert_eq!(link(&page, "Search further"), None);
    // No job is finished, and the page says so without reading all of them.
    let page = get(&server, "/jobs?state=finished").expect(200);
    assert!(text(&page).contains("No job matches."), "{page}");
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET finished_at = created_at WHERE id = {}",
        wanted.0
    ));
    db.execute("DELETE FROM solid_queue_ready_executions WHERE job_id < 10");
    // It is found at once, behind more than 10,000 newer jobs that wait.
    let page = get(&server, "/jobs?state=finished").expect(200);
    assert_eq!(listed(&page), [wanted.0]);
    assert_eq!(link(&page, "Search further"), None);
    // From the other end, the search goes forward.
    let page = get(&server, "/jobs?class=none&after=0").expect(200);
    assert!(text(&page).contains("Searched forward to job "), "{page}");
}

/// The newest finished jobs are shown at once, and none is passed, wherever they are between jobs that wait.
fn finished_jobs_are_found_behind_many_that_wait(db: &TestDb) {
    let mut conn = db.connect();
    for _ in 0..25 {
        let many = (0..1_000).map(|_| NewJob::of_class("many", "{}"));
        windlass::enqueue_all(&mut conn, many).unwrap();
    }
    let (newer, older) = ([9_000, 8_999], [4_000, 17]);
    for id in newer.iter().chain(&older) {
        db.execute(&format!(
            "UPDATE solid_queue_jobs SET finished_at = created_at WHERE id = {id}"
        ));
        db.execute(&format!(
            "DELETE FROM solid_queue_ready_executions WHERE job_id = {id}"
        ));
    }
    let server = serve(&db.database);
    let (mut found, mut path) = (Vec::new(), Some("/jobs?state=finished".to_owned()));
    while let Some(at) = path {
        let page = get(&server, &at).expect(200);
        let ids = listed(&page);
        assert!(
            !found.is_empty() || !ids.is_empty(),
            "the first page has the newest"
        );
        found.extend(ids);
        path = link(&page, "Search further").or_else(|| link(&page, "Older"));
    }
    assert_eq!(found, [9_000, 8_999, 4_000, 17]);
}

/// Ids with gaps of any length: of jobs that were deleted, or that another program chose itself.
fn jobs_far_apart_are_found(db: &TestDb) {
    const FAR: i64 = 1_000_000_000_000;
    let mut conn = db.connect();
    let mut enqueue = || {
        let job = NewJob::of_class("far", "{}").enqueue(&mut conn).unwrap();
        job.id.0
    };
    let mut all = vec![enqueue()];
    let server = serve(&db.database);
    // As far as the search goes in its time, and then further. Forward, it ends with the newest page.
    let found = |start: &str| {
        let (mut found, mut path) = (BTreeSet::new(), Some(start.to_owned()));
        while let Some(at) = path {
            let page = get(&server, &at).expect(200);
            found.extend(listed(&page));
            path = link(&page, "Search further");
        }
        sorted(found.into_iter().collect())
    };
    db.execute(&format!(
        "INSERT INTO solid_queue_jobs (id, queue_name, class_name, arguments, created_at, updated_at) \
         SELECT {FAR}, queue_name, class_name, arguments, created_at, updated_at FROM solid_queue_jobs"
    ));
    all.insert(0, FAR);
    for round in 0..2 {
        for list in ["/jobs", "/jobs?class=far", "/jobs?class=far&after=0"] {
            assert_eq!(found(list), all, "{list}");
        }
        assert_eq!(found("/jobs?class=near"), [] as [i64; 0]);
        if round == 0 {
            if db.is_postgres() {
                let next =
                    format!("setval(pg_get_serial_sequence('solid_queue_jobs', 'id'), {FAR})");
                db.execute(&format!("SELECT {next}"));
            }
            all.insert(0, enqueue());
        }
    }
    assert_eq!(all[0], FAR + 1);
}

fn the_search_box_goes_to_what_it_names(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    let goes = |text: &str, to: &str| {
        let query: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        let reply = get(&server, &format!("/jobs?q={query}"));
        assert_eq!(
            (reply.status, reply.header("location")),
            (303, Some(to)),
            "{text}"
        );
    };
    let job = |name: &str| format!("/jobs/{}", world.job(name));
    goes(&world.job("finished").to_string(), &job("finished"));
    goes(&format!(" #{} ", world.job("failed")), &job("failed"));
    goes("sync/customer/7", &job("behind"));
    goes("order-77", &job("elsewhere"));
    goes("sync_account", "/jobs?class=sync_account");
    goes("ReportJob", "/jobs?class=ReportJob");
    goes("webhooks", "/queues/webhooks");
    goes("reports", "/queues/reports");
    goes("999999999", "/jobs?args=999999999");
    goes("<b>&", "/jobs?args=%3Cb%3E%26");
    goes("account: 7", "/jobs?args=account%3A+7");
    db.execute(&format!(
        "INSERT INTO solid_queue_recurring_tasks (key, schedule, created_at, updated_at) VALUES ('nightly', 'x', {0}, {0})",
        super::world::now(db)
    ));
    goes("nightly", "/recurring?key=nightly");
}

fn hidden_arguments_are_not_found(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    for text in [
        super::world::SECRET,
        "hunter2",
        "api_token: hunter2-never-shown",
    ] {
        let query: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        assert_eq!(
            ids(&server, &format!("?args={query}")),
            [] as [i64; 0],
            "{text}"
        );
    }
    // Text beside the secret is found, but not in arguments that are hidden as a whole.
    assert!(ids(&server, "?args=Ada").len() > 10);
    assert_eq!(
        ids(&server, "?args=token&class=unregistered"),
        [] as [i64; 0]
    );
    // Nor does a bulk action tell it.
    let all = "/preview?which=matching&do=cancel&args=hunter2";
    assert!(get(&server, all).expect(400).contains("one by one"));
    drop(world);
}

/// Large arguments cost as much as many small ones.
fn a_search_stops_when_it_has_read_much(db: &TestDb) {
    db.execute(&format!(
        "INSERT INTO windlass_classes (class_name, queue_name, redact, internal, seen_at) VALUES ('big', 'q', '[]', {}, {})",
        if db.is_postgres() { "false" } else { "0" },
        super::world::now(db)
    ));
    let text = "x".repeat(60_000);
    let jobs: Vec<NewJob> = (0..300)
        .map(|n| {
            NewJob::of_class(
                "big",
                format!(r#"{{"n":{n},"found":"needle","text":"{text}"}}"#),
            )
        })
        .collect();
    windlass::enqueue_all(&mut db.connection(), jobs).unwrap();
    db.execute("UPDATE windlass_classes SET redact = '[\"found\"]'");
    let server = serve(&db.database);
    // On a busy machine, a page may be late.
    let further = eventually("it has not read all", || {
        let page = get(&server, "/jobs?args=needle").expect(200);
        assert_eq!(listed(&page), [] as [i64; 0]);
        link(&page, "Search further")
    });
    until("it has read all", || {
        link(&get(&server, &further).expect(200), "Search further").is_none()
    });
}

fn where_a_search_stops_tells_nothing_of_what_is_hidden(db: &TestDb) {
    let world = world(db);
    let sync = serde_json::to_string(&super::world::Sync::new("finish")).unwrap();
    // More than one search reads.
    let jobs = (0..2_100).map(|_| NewJob::of_class("sync_account", &*sync).queue("unserved"));
    windlass::enqueue_all(&mut db.connection(), jobs).unwrap();
    let server = serve(&db.database);
    let stop = |guess: &str| {
        let page = get(&server, &format!("/jobs?class=sync_account&args={guess}")).expect(200);
        let (_, stop) = page.split_once("Searched back to job").unwrap();
        let (stop, _) = stop.split_once("</section>").unwrap();
        stop.replace(guess, "GUESS")
    };
    assert_eq!(stop("hunter2-never"), stop("hunter2-wrong"));
    drop(world);
}

fn wrong_filters_are_explained(db: &TestDb) {
    let server = serve(&db.database);
    for (query, part) in [
        ("?state=nonsense", "A state is one of: all, ready"),
        ("?from=yesterday", "A time is written as 2026-11-24T14:02"),
    ] {
        let page = get(&server, &format!("/jobs{query}")).expect(400);
        assert!(page.contains(part), "{page}");
    }
    let page = read(&server, "/jobs");
    assert!(page.contains("No jobs yet."), "{page}");
    let page = read(&server, "/jobs?queue=x&before=7&after=x");
    assert!(page.contains("No job matches."), "{page}");
}
