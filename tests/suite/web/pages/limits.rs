//! The page of the limits.

use super::{
    LONG_AGO, audited, change, nothing_is_audited, now, page, post, row, serve, serve_viewers,
    text, worker,
};
use crate::support::TestDb;
use windlass::{Concurrency, NewJob, limits};

/// Blocks jobs of a key, and gives a slot to others.
fn key(db: &TestDb, key: &str, ready: usize, blocked: usize) {
    for place in 0..ready + blocked {
        let job = NewJob::of_class("import", "{}").queue("import");
        let job =
            job.concurrency(Concurrency::new(key).limit(u32::try_from(ready.max(1)).unwrap()));
        let job = job.enqueue(&mut db.connection()).unwrap().id.0;
        if place < ready {
            db.execute(&format!(
                "DELETE FROM solid_queue_blocked_executions WHERE job_id = {job}"
            ));
            db.execute(&format!(
                "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, concurrency_key, created_at) \
                 SELECT id, queue_name, 0, class_name, concurrency_key, {} FROM solid_queue_jobs WHERE id = {job}",
                now(db)
            ));
        }
    }
    db.execute("DELETE FROM windlass_wanted_keys");
}

fn keys_are_shown_with_their_slots(db: &TestDb) {
    key(db, "7", 2, 3);
    key(db, "8", 1, 0);
    let server = serve(&db.database);
    let shown = page(&server, "/limits");
    let waiting = row(&shown, ">import/7<");
    assert!(
        waiting.contains("ready jobs hold all slots, and no worker serves import"),
        "{waiting}"
    );
    assert!(waiting.contains("0 of 2 run 2 0 2 3"), "{waiting}");
    assert!(
        row(&shown, ">import/8<").contains("all slots are taken, and no job waits"),
        "{shown}"
    );
    assert!(
        text(&shown).contains("3 jobs wait for a slot, or for another job. 1 key stands still."),
        "{shown}"
    );
    worker(db, 1, "import", now(db));
    assert!(
        row(&page(&server, "/limits"), ">import/7<")
            .contains("all slots are taken: jobs wait their turn")
    );
    let only = page(&server, "/limits?waiting=1");
    assert!(
        only.contains(">import/7<") && !only.contains(">import/8<"),
        "{only}"
    );
    let found = page(&server, "/limits?key=import%2F8");
    assert!(
        found.contains(">import/8<") && !found.contains(">import/7<"),
        "{found}"
    );
    assert!(text(&page(&server, "/limits?key=none")).contains("No key matches."));
}

fn a_slot_that_is_never_given_is_reported(db: &TestDb) {
    key(db, "7", 0, 1);
    db.execute(&format!(
        "UPDATE solid_queue_blocked_executions SET created_at = '{LONG_AGO}'"
    ));
    let page = page(&serve(&db.database), "/limits");
    assert!(
        row(&page, ">import/7<").contains("is a dispatcher running?"),
        "{page}"
    );
}

/// Returns the address of the next page of keys.
fn next(page: &str) -> Option<String> {
    let link = page
        .split("href=\"")
        .find(|part| part.contains("rel=\"next\""))?;
    Some(link.split('"').next()?.replace("&#38;", "&"))
}

fn pages_go_on_after_a_key(db: &TestDb) {
    for number in 100..205 {
        key(db, &number.to_string(), 0, 1);
    }
    let server = serve(&db.database);
    let first = page(&server, "/limits");
    let next = next(&first).unwrap();
    let second = page(&server, &next);
    let keys = |page: &str| {
        (100..205)
            .filter(|key| page.contains(&format!(">import/{key}<")))
            .count()
    };
    assert_eq!((keys(&first), keys(&second)), (100, 5), "{next}");
    assert!(!second.contains("rel=\"next\""));
}

/// Jobs that run again after another one wait with a key that is no limit. It would be one too many for
/// a page here.
fn the_key_of_jobs_that_run_again_is_on_no_page(db: &TestDb) {
    for number in 100..200 {
        key(db, &number.to_string(), 0, 1);
    }
    key(db, "again", 0, 1);
    db.execute(
        "UPDATE solid_queue_blocked_executions SET concurrency_key = ' ' \
         WHERE concurrency_key = 'import/again'",
    );
    let server = serve(&db.database);
    for path in ["/limits", "/limits?waiting=1"] {
        let only = page(&server, path);
        assert!(only.contains(">import/199<"), "{only}");
        assert_eq!(next(&only), None);
    }
    let none = page(&server, "/limits?key=import%2Fagain");
    assert!(text(&none).contains("No key matches."), "{none}");
    // The key behind it is on the next page.
    let last = NewJob::of_class("import", "{}").queue("import");
    let last = last.concurrency(Concurrency::new("1").group("zip").limit(1));
    last.enqueue(&mut db.connection()).unwrap();
    let first = page(&server, "/limits");
    assert!(!first.contains(">zip/1<"), "{first}");
    let second = page(&server, &next(&first).unwrap());
    assert!(second.contains(">zip/1<"), "{second}");
    assert_eq!(next(&second), None);
}

fn a_limit_is_set_and_cleared(db: &TestDb) {
    let server = serve(&db.database);
    let form = "key=import%2F*&slots=3&reason=the+disk+is+slow&back=%2Flimits%23set";
    let shown = change(&server, "/limits/set", form);
    assert!(
        shown.contains("The limit of import/* is 3 jobs at once."),
        "{shown}"
    );
    assert!(shown.contains("import/* 3 – since"), "{shown}");
    assert_eq!(
        audited(db),
        "local page 127.0.0.1 limits.set import/* the disk is slow"
    );
    assert_eq!(
        limits::list(&mut db.connection()).unwrap()[0].slots,
        Some(3)
    );
    for form in [
        "key=import%2F7&slots=-1",
        "key=import%2F7&slots=x",
        "key=import%2F7",
        "key=nogroup&slots=1",
        "slots=1",
    ] {
        let reply = post(&server, "/limits/set", form);
        assert_eq!(reply.status, 400, "{form}: {reply:?}");
    }
    let shown = change(&server, "/limits/clear", "key=import%2F*&back=%2Flimits");
    assert!(shown.contains("Cleared the limit of import/*"), "{shown}");
    assert!(limits::list(&mut db.connection()).unwrap().is_empty());
    assert!(
        change(&server, "/limits/clear", "key=import%2F*").contains("had no limit that was set")
    );
}

fn a_viewer_sets_no_limit(db: &TestDb) {
    let server = serve_viewers(db);
    for path in ["set", "clear", "reopen", "share", "unshare", "weight"] {
        let form = "key=import%2F7&slots=0&queue=mail&tenant=acme&weight=2";
        let reply = post(&server, &format!("/limits/{path}"), form);
        assert_eq!(reply.status, 403, "{path}");
    }
    assert!(nothing_is_audited(db));
    limits::set(&mut db.connection(), "import/7", 2, "ada", "").unwrap();
    let page = page(&server, "/limits");
    assert!(
        row(&page, "<th scope=\"row\">import/7").contains("by ada"),
        "{page}"
    );
    assert!(
        page.contains("<button disabled aria-describedby=\"viewer-only\" aria-label=\"Clear"),
        "{page}"
    );
}

fn a_rate_is_set_shown_and_opened(db: &TestDb) {
    let server = serve(&db.database);
    let form = "key=api%2F*&rate=10%2Fh&burst=2&reason=they+asked&back=%2Flimits%23set";
    let shown = change(&server, "/limits/set", form);
    assert!(
        shown.contains("The limit of api/* is the rate 10/h, 2 at once."),
        "{shown}"
    );
    assert!(shown.contains("api/* – 10/h, 2 at once since"), "{shown}");
    assert!(audited(db).ends_with("limits.set api/* they asked"));
    for form in [
        "key=api%2F7&rate=10%2Fx",
        "key=api%2F7&rate=0%2Fs",
        "key=api%2F7&rate=10%2Fs&burst=0",
        "key=api%2F7&burst=3",
        "key=api%2F7&slots=1&burst=-3",
        "key=a%0Ab&rate=10%2Fs",
        "rate=10%2Fs",
    ] {
        let reply = post(&server, "/limits/set", form);
        assert_eq!(reply.status, 400, "{form}: {reply:?}");
    }
    let mut conn = db.connection();
    for _ in 0..5 {
        let rate = limits::Rate::per_second(100).burst(9).key("api/acme");
        let job = NewJob::of_class("push", "null").rate(rate);
        job.enqueue(&mut conn).unwrap();
    }
    let registry = windlass::Registry::new();
    drop(windlass::testing::drain(&mut conn, &registry).unwrap());
    db.execute("UPDATE windlass_rates SET closed_until = counted_at + 7200000000");
    let shown = page(&server, "/limits");
    let key = row(&shown, "<th scope=\"row\">api/acme");
    for words in ["10/h, 2 at once", "set as api/*", " 0 3 ", " 2 h ", "Open"] {
        assert!(key.contains(words), "{words}: {key}");
    }
    let opened = change(&server, "/limits/reopen", "key=api%2Facme&back=%2Flimits");
    assert!(opened.contains("api/acme is open"), "{opened}");
    let opened = change(&server, "/limits/reopen", "key=api%2Facme&back=%2Flimits");
    assert!(opened.contains("api/acme was not closed"), "{opened}");
    let cleared = change(&server, "/limits/clear", "key=api%2F*&back=%2Flimits");
    assert!(cleared.contains("Cleared the limit of api/*"), "{cleared}");
}

fn shares_are_shown_and_set(db: &TestDb) {
    let server = serve(&db.database);
    let none = page(&server, "/limits");
    assert!(text(&none).contains("No queue is shared."), "{none}");
    let form = "queue=mail&by=time&reason=they+asked&back=%2Flimits%23tenants";
    let shown = change(&server, "/limits/share", form);
    assert!(shown.contains("mail is shared by time."), "{shown}");
    assert!(audited(db).ends_with("tenants.share mail they asked"));
    let form = "queue=mail&tenant=acme&weight=3&back=%2Flimits%23tenants";
    let shown = change(&server, "/limits/weight", form);
    assert!(
        shown.contains("The weight of acme in mail is 3."),
        "{shown}"
    );
    crate::shares::seen::two_wait(db);
    let shown = page(&server, "/limits?queue=mail");
    let queue = row(&shown, ">mail</a>");
    assert!(queue.contains("mail jobs 2 Unshare"), "{queue}");
    let tenant = row(&shown, "<th scope=\"row\">acme");
    assert!(
        tenant.starts_with("acme 3 ") && tenant.ends_with(" %"),
        "{tenant}"
    );
    // It is the only one.
    assert!(page(&server, "/limits").contains("<th scope=\"row\">acme"));
    let other = page(&server, "/limits?queue=other");
    assert!(text(&other).contains("No tenant uses other."), "{other}");
    for (path, form) in [
        ("weight", "queue=mail&tenant=acme&weight=0"),
        ("weight", "queue=mail&tenant=acme&weight=x"),
        ("weight", "queue=mail&tenant=a%0Ab&weight=2"),
        ("share", "by=time"),
        ("share", "queue=a%0Ab"),
    ] {
        let reply = post(&server, &format!("/limits/{path}"), form);
        assert_eq!(reply.status, 400, "{form}: {reply:?}");
    }
    let shown = change(&server, "/limits/unshare", "queue=mail&back=%2Flimits");
    assert!(shown.contains("mail is shared no more."), "{shown}");
    let shown = change(&server, "/limits/unshare", "queue=mail&back=%2Flimits");
    assert!(shown.contains("mail was not shared."), "{shown}");
}

crate::on_each_database!(
    shares_are_shown_and_set,
    keys_are_shown_with_their_slots,
    a_slot_that_is_never_given_is_reported,
    pages_go_on_after_a_key,
    the_key_of_jobs_that_run_again_is_on_no_page,
    a_limit_is_set_and_cleared,
    a_rate_is_set_shown_and_opened,
    a_viewer_sets_no_limit,
);
