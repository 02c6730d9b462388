//! The page of the audit.

use super::{link, read, text};
use crate::support::TestDb;
use crate::web::client::{get, serve};
use windlass::NewJob;
use windlass::audit::Actor;
use windlass::jobs::Jobs;

crate::on_each_database!(
    changes_are_listed_the_newest_first,
    it_goes_back_page_by_page,
    filters_select_by_actor_action_target_and_time,
);

fn changes_are_listed_the_newest_first(db: &TestDb) {
    let mut conn = db.connect();
    let server = serve(&db.database);
    let page = read(&server, "/audit");
    assert!(page.contains("No changes."), "{page}");
    Actor::named("ada")
        .reason("the provider is down")
        .pause_queue(&mut conn, "mail")
        .unwrap();
    let jobs: Vec<NewJob> = (0..3).map(|_| NewJob::of_class("x", "{}")).collect();
    windlass::enqueue_all(&mut conn, jobs).unwrap();
    let change = windlass::jobs::Change::Priority(5);
    Jobs::waiting()
        .class("x")
        .by("bob")
        .change(&mut conn, change)
        .unwrap();
    let page = read(&server, "/audit");
    let row = |part: &str| {
        page.find(part)
            .unwrap_or_else(|| panic!("{part} in {page}"))
    };
    // The names of the actions are in the filter as well, before the rows.
    assert!(
        row("class: x priority: 5 3 bob") < row("queues.pause mail"),
        "{page}"
    );
    for part in [
        "queues.pause mail",
        "the provider is down",
        "ada library from ",
        "jobs.priority state: scheduled, blocked, ready; class: x priority: 5 3 bob",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

fn it_goes_back_page_by_page(db: &TestDb) {
    let mut conn = db.connect();
    for number in 0..120 {
        Actor::default()
            .pause_queue(&mut conn, &format!("q{number:03}"))
            .unwrap();
    }
    let server = serve(&db.database);
    let (mut path, mut seen) = ("/audit".to_owned(), Vec::new());
    loop {
        let page = get(&server, &path).expect(200);
        let rows = page.split("href=\"/queues/q").skip(1);
        seen.extend(rows.map(|rest| rest.split('"').next().unwrap().to_owned()));
        match link(&page, "Older") {
            Some(older) => path = older,
            None => {
                assert_eq!(link(&page, "Newest"), Some("/audit".to_owned()));
                break;
            }
        }
    }
    let expected: Vec<String> = (0..120)
        .rev()
        .map(|number| format!("{number:03}"))
        .collect();
    assert_eq!(seen, expected);
}

fn filters_select_by_actor_action_target_and_time(db: &TestDb) {
    let mut conn = db.connect();
    for (name, queue) in [("ada", "mail"), ("bob", "mail"), ("ada", "sms")] {
        Actor::named(name).pause_queue(&mut conn, queue).unwrap();
        Actor::named(name).resume_queue(&mut conn, queue).unwrap();
    }
    let server = serve(&db.database);
    let rows = |query: &str| {
        let page = get(&server, &format!("/audit{query}")).expect(200);
        let page = text(page.split("<tbody>").nth(1).unwrap_or_default());
        page.matches("queues.").count()
    };
    for (query, count) in [
        ("", 6),
        ("?actor=ada", 4),
        ("?action=queues.pause", 3),
        ("?target=sms", 2),
        ("?actor=bob&action=queues.resume", 1),
        ("?since=1h", 6),
        ("?to=2000-01-01", 0),
        ("?from=2100-01-01T00:00", 0),
        ("?actor=nobody", 0),
    ] {
        assert_eq!(rows(query), count, "{query}");
    }
    assert_eq!(get(&server, "/audit?from=x").status, 400);
}
