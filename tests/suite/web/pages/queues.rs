//! The page of all queues.

use super::{audited, post};
use super::{
    change, enqueue, nothing_is_audited, now, page, row, serve, serve_viewers, text, worker,
};
use crate::support::TestDb;
use windlass::{NewJob, classes, queues};

fn each_queue_has_its_counts(db: &TestDb) {
    worker(db, 1, "mail", now(db));
    for _ in 0..3 {
        enqueue(db, "mail", "send");
    }
    let later = NewJob::of_class("send", "{}").queue("mail");
    later
        .after(std::time::Duration::from_secs(3600))
        .enqueue(&mut db.connection())
        .unwrap();
    for (place, queue) in [("failed", "mail"), ("failed", "idle"), ("claimed", "mail")] {
        let job = enqueue(db, queue, "send");
        db.execute(&format!(
            "DELETE FROM solid_queue_ready_executions WHERE job_id = {job}"
        ));
        db.execute(&format!(
            "INSERT INTO solid_queue_{place}_executions (job_id, created_at) VALUES ({job}, {})",
            now(db)
        ));
    }
    let page = page(&serve(&db.database), "/queues");
    let mail = row(&page, "/queues/mail\"");
    // Ready, scheduled, running, blocked, failed.
    assert!(mail.contains(" 3 1 1 0 1 "), "{mail}");
    let idle = row(&page, "/queues/idle\"");
    assert!(idle.contains("empty – 0 0 0 0 1 "), "{idle}");
    assert!(text(&page).contains("All 3 1 1 0 2"), "{page}");
    assert!(
        text(&page).contains("None of the 2 queues needs attention."),
        "{page}"
    );
}

fn counts_stop_at_a_limit_and_say_so(db: &TestDb) {
    let jobs = vec![NewJob::of_class("send", "{}").queue("big"); 10_001];
    windlass::enqueue_all(&mut db.connection(), jobs).unwrap();
    enqueue(db, "small", "send");
    let server = serve(&db.database);
    let page = page(&server, "/queues");
    assert!(row(&page, "/queues/big\"").contains(" 10,000+ "), "{page}");
    assert!(row(&page, "/queues/small\"").contains(" 1 0 "), "{page}");
    assert!(text(&super::page(&server, "/queues/big")).contains("Ready 10,000+"));
    assert!(text(&super::page(&server, "/")).contains("estimated; 10,000+ ready"));
}

fn paused_queues_and_queues_without_workers_come_first(db: &TestDb) {
    worker(db, 1, "mail,paused", now(db));
    for queue in ["mail", "paused", "unserved"] {
        enqueue(db, queue, "send");
    }
    queues::pause(&mut db.connection(), "paused", "ada", "an outage").unwrap();
    let page = page(&serve(&db.database), "/queues");
    let place = |queue: &str| page.find(&format!("/queues/{queue}\"")).unwrap();
    assert!(
        place("unserved") < place("paused") && place("paused") < place("mail"),
        "{page}"
    );
    assert!(
        row(&page, "/queues/paused\"").contains("paused 0 s ago, by ada: “an outage”")
            || row(&page, "/queues/paused\"").contains("ago, by ada: “an outage”"),
        "{page}"
    );
    assert!(
        text(&page).contains("Of 3 queues, unserved has no worker and paused is paused ."),
        "{page}"
    );
    let by_name = super::page(&serve(&db.database), "/queues?sort=name");
    let place = |queue: &str| by_name.find(&format!("/queues/{queue}\"")).unwrap();
    assert!(place("mail") < place("paused") && place("paused") < place("unserved"));
}

fn classes_are_paused_and_resumed(db: &TestDb) {
    let server = serve(&db.database);
    for unknown in ["%7B%7D", "send_invoice"] {
        let refused = post(&server, "/classes/pause", &format!("class={unknown}"));
        assert_eq!(refused.status, 400, "{unknown}");
    }
    assert!(classes::paused(&mut db.connection()).unwrap().is_empty());
    NewJob::of_class("send_invoice", "{}")
        .enqueue(&mut db.connection())
        .unwrap();
    let shown = change(
        &server,
        "/classes/pause",
        "class=send_invoice&reason=wrong+amounts&back=%2Fqueues%23classes",
    );
    assert!(shown.contains("Paused the class send_invoice."), "{shown}");
    assert!(shown.contains("send_invoice since"), "{shown}");
    assert_eq!(
        audited(db),
        "local page 127.0.0.1 classes.pause send_invoice wrong amounts"
    );
    let paused = classes::paused(&mut db.connection()).unwrap();
    assert_eq!(paused[0].pause_reason.as_deref(), Some("wrong amounts"));
    let shown = change(&server, "/classes/send_invoice/resume", "back=%2Fqueues");
    assert!(shown.contains("Resumed the class send_invoice."), "{shown}");
    assert!(classes::paused(&mut db.connection()).unwrap().is_empty());
    assert_eq!(post(&server, "/classes/pause", "class=").status, 400);
}

fn a_viewer_changes_no_class(db: &TestDb) {
    classes::pause(&mut db.connection(), "a", "ada", "").unwrap();
    let before = windlass::audit::AuditLog::new()
        .list(&mut db.connection())
        .unwrap()
        .len();
    let server = serve_viewers(db);
    for path in ["/classes/pause", "/classes/a/resume"] {
        assert_eq!(post(&server, path, "class=b").status, 403, "{path}");
    }
    assert_eq!(
        windlass::audit::AuditLog::new()
            .list(&mut db.connection())
            .unwrap()
            .len(),
        before
    );
    assert_eq!(classes::paused(&mut db.connection()).unwrap().len(), 1);
    let page = page(&server, "/queues");
    assert!(
        page.contains("<button disabled aria-describedby=\"viewer-only\""),
        "{page}"
    );
    assert!(page.contains("id=\"viewer-only\""), "{page}");
}

fn an_operator_sees_no_disabled_button(db: &TestDb) {
    classes::pause(&mut db.connection(), "a", "ada", "").unwrap();
    let page = page(&serve(&db.database), "/queues");
    assert!(!page.contains("disabled"), "{page}");
    assert!(!nothing_is_audited(db));
}

crate::on_each_database!(
    each_queue_has_its_counts,
    counts_stop_at_a_limit_and_say_so,
    paused_queues_and_queues_without_workers_come_first,
    classes_are_paused_and_resumed,
    a_viewer_changes_no_class,
    an_operator_sees_no_disabled_button,
);

crate::through_a_pooler_in_all!(
    each_queue_has_its_counts,
    counts_stop_at_a_limit_and_say_so,
    paused_queues_and_queues_without_workers_come_first,
    classes_are_paused_and_resumed,
    a_viewer_changes_no_class,
    an_operator_sees_no_disabled_button,
);
