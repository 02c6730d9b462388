//! The page of one queue.

use super::{
    LONG_AGO, audited, change, enqueue, nothing_is_audited, now, page, post, row, serve,
    serve_viewers, text, worker,
};
use crate::support::TestDb;
use std::time::Duration;
use windlass::{NewJob, queues};
use windlass_console::web::Server;

fn its_next_jobs_are_in_order(db: &TestDb) {
    worker(db, 1, "mail", now(db));
    let mut conn = db.connect();
    let first = enqueue(db, "mail", "send");
    let urgent = NewJob::of_class("alarm", r#"{"secret":"hunter2"}"#)
        .queue("mail")
        .priority(-5);
    let urgent = urgent.enqueue(&mut conn).unwrap().id.0;
    enqueue(db, "other", "send");
    let page = page(&serve(&db.database), "/queues/mail");
    let next = page.split("Next in line").nth(1).unwrap();
    let place = |job: i64| next.find(&format!("/jobs/{job}\"")).unwrap();
    assert!(place(urgent) < place(first), "{next}");
    assert!(
        row(next, &format!("/jobs/{urgent}\"")).contains("alarm [hidden] -5"),
        "{next}"
    );
    assert!(
        !page.contains("hunter2"),
        "no worker has said what is secret"
    );
    assert!(row(next, "app-1:1").contains("mail 0 of 5 0"), "{next}");
    assert!(row(&page, ">Ready<").starts_with("Ready 2"), "{page}");
    assert!(
        text(&page).contains("0 of the 5 threads of the workers that serve it are busy"),
        "{page}"
    );
}

fn arguments_are_shown_but_for_secret_fields(db: &TestDb) {
    db.execute(&format!(
        "INSERT INTO windlass_classes (class_name, queue_name, redact, internal, seen_at) \
         VALUES ('alarm', 'mail', '[\"secret\"]', {}, {})",
        if db.is_postgres() { "false" } else { "0" },
        now(db)
    ));
    let job = NewJob::of_class("alarm", r#"{"secret":"hunter2","to":"<b>"}"#).queue("mail");
    job.enqueue(&mut db.connection()).unwrap();
    let page = page(&serve(&db.database), "/queues/mail");
    assert!(
        !page.contains("hunter2") && !page.contains("\"<b>\""),
        "{page}"
    );
    assert!(page.contains("&#60;b&#62;"), "{page}");
    assert!(page.contains("[hidden]"), "{page}");
}

fn why_its_jobs_wait_is_on_top(db: &TestDb) {
    let lead = |server: &windlass_console::web::RunningServer| {
        let page = page(server, "/queues/mail");
        let top = page.split("data-live=\"queue/why\"").nth(1).unwrap();
        text(&format!("<div{}", top.split("</div>").next().unwrap()))
    };
    let server = serve(&db.database);
    assert_eq!(lead(&server), "No job is ready on this queue.");
    enqueue(db, "mail", "send");
    assert!(lead(&server).starts_with("Unserved: 1 job is ready, and no worker serves the queue."));
    worker(db, 1, "mail", &format!("'{LONG_AGO}'"));
    assert!(
        lead(&server).contains("have had no heartbeat for 60 s"),
        "{}",
        lead(&server)
    );
    worker(db, 2, "ma*", now(db));
    assert!(
        lead(&server).starts_with("Its oldest ready job has waited for"),
        "{}",
        lead(&server)
    );
    db.execute(&format!(
        "UPDATE solid_queue_ready_executions SET created_at = '{LONG_AGO}'"
    ));
    let promising = Server::new(&db.database).listen("127.0.0.1:0");
    let promising = promising
        .max_wait("mail", Duration::from_secs(2))
        .start()
        .unwrap();
    assert!(
        lead(&promising).starts_with("Late: its oldest ready job has waited for"),
        "{}",
        lead(&promising)
    );
    assert!(page(&promising, "/queues/mail").contains("promised 2 s, red above it"));
    queues::pause(&mut db.connection(), "mail", "ada", "an outage").unwrap();
    assert!(
        lead(&promising).contains("by ada: “an outage”. 1 job is ready."),
        "{}",
        lead(&promising)
    );
}

fn it_is_paused_with_a_reason_and_resumed(db: &TestDb) {
    enqueue(db, "mail", "send");
    let server = serve(&db.database);
    let form = "reason=the+provider+is+down&back=%2Fqueues%2Fmail";
    let shown = change(&server, "/queues/mail/pause", form);
    assert!(
        shown.contains("Paused mail. Workers take no more of its jobs"),
        "{shown}"
    );
    assert!(shown.contains("Resume the queue"), "{shown}");
    assert_eq!(
        audited(db),
        "local page 127.0.0.1 queues.pause mail the provider is down"
    );
    let queue = &queues::list(&mut db.connection()).unwrap()[0];
    assert!(queue.paused && queue.paused_by.as_deref().unwrap().starts_with("local@"));
    assert!(change(&server, "/queues/mail/pause", form).contains("mail was paused already."));
    assert!(change(&server, "/queues/mail/resume", "").contains("Resumed mail."));
    assert_eq!(audited(db), "local page 127.0.0.1 queues.resume mail -");
    assert!(!queues::list(&mut db.connection()).unwrap()[0].paused);
    assert!(change(&server, "/queues/mail/resume", "").contains("mail was not paused."));
}

fn a_change_leads_back_to_this_site_only(db: &TestDb) {
    let server = serve(&db.database);
    for back in [
        "%2F%2Fevil.example",
        "https%3A%2F%2Fevil.example",
        "%2F%5Cevil",
    ] {
        let reply = post(&server, "/queues/mail/pause", &format!("back={back}"));
        assert_eq!((reply.status, reply.header("location")), (303, Some("/")));
    }
}

fn a_viewer_pauses_nothing(db: &TestDb) {
    enqueue(db, "mail", "send");
    let server = serve_viewers(db);
    for change in ["pause", "resume"] {
        let reply = post(&server, &format!("/queues/mail/{change}"), "reason=x");
        assert_eq!(reply.status, 403, "{reply:?}");
    }
    assert!(nothing_is_audited(db));
    assert_eq!(db.rows("pauses"), 0);
    let page = page(&server, "/queues/mail");
    assert!(
        page.contains("<button disabled aria-describedby=\"viewer-only\">Pause the queue"),
        "{page}"
    );
}

crate::on_each_database!(
    its_next_jobs_are_in_order,
    arguments_are_shown_but_for_secret_fields,
    why_its_jobs_wait_is_on_top,
    it_is_paused_with_a_reason_and_resumed,
    a_change_leads_back_to_this_site_only,
    a_viewer_pauses_nothing,
);

crate::through_a_pooler_in_all!(
    its_next_jobs_are_in_order,
    arguments_are_shown_but_for_secret_fields,
    why_its_jobs_wait_is_on_top,
    it_is_paused_with_a_reason_and_resumed,
    a_change_leads_back_to_this_site_only,
    a_viewer_pauses_nothing,
);
