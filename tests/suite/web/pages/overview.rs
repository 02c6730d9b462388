//! The first page.

use super::{LONG_AGO, enqueue, now, page, process, row, serve, text, worker};
use crate::support::TestDb;
use crate::support::wait::DEADLINE;
use std::time::Duration;
use windlass::{
    Context, Function, JobError, JobResult, RecurringTask, Registry, Worker, classes, queues,
    recurring,
};
use windlass_console::web::Server;

fn without_anything_nothing_needs_attention(db: &TestDb) {
    let page = page(&serve(&db.database), "/");
    let text = text(&page);
    assert!(
        text.contains("No worker runs, and no job is ready. Nothing needs attention."),
        "{text}"
    );
    assert!(
        text.contains("No job runs. Jobs appear here while a process runs them."),
        "{text}"
    );
    assert!(
        text.contains("Nothing has ended in the last hour."),
        "{text}"
    );
    assert!(text.contains("Overview Queues"), "no number: {text}");
}

fn what_needs_attention_is_listed_worst_first(db: &TestDb) {
    let mut conn = db.connect();
    worker(db, 1, "mail,import*", now(db));
    worker(db, 2, "mail", &format!("'{LONG_AGO}'"));
    process(db, "Dispatcher", 3, r#"{"windlass":"0.1.0"}"#, now(db));
    enqueue(db, "media", "transcode");
    queues::pause(&mut conn, "webhooks", "ada", "the provider is down").unwrap();
    enqueue(db, "webhooks", "deliver");
    classes::pause(&mut conn, "charge", "bob", "").unwrap();
    let nightly = RecurringTask::of_class("nightly", "0 2 * * *", "rollup", "{}").unwrap();
    recurring::schedule(&mut conn, &nightly).unwrap();
    db.execute(&format!(
        "UPDATE solid_queue_recurring_tasks SET next_run_at = '{LONG_AGO}'"
    ));
    for _ in 0..3 {
        let job = enqueue(db, "mail", "send");
        db.execute(&format!(
            "DELETE FROM solid_queue_ready_executions WHERE job_id = {job}"
        ));
        db.execute(&format!(
            "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
             VALUES ({job}, '{{\"exception_class\":\"io\",\"message\":\"no route\"}}', {})",
            now(db)
        ));
    }
    let server = serve(&db.database);
    let page = page(&server, "/");
    let (todo, rest) = page.split_once("Now, and the last hour").unwrap();
    // The checks of doctor that found nothing are not called fine beside all this.
    assert!(!rest.contains("<span class=\"v ok\">fine</span>"), "{rest}");
    let rows: Vec<String> = todo
        .split("<tr class=")
        .skip(1)
        .map(|row| text(&format!("<tr {row}")))
        .collect();
    let kinds: Vec<&str> = rows
        .iter()
        .map(|row| row.split(' ').next().unwrap())
        .collect();
    let mut sorted = kinds.clone();
    let order = [
        "Failing", "Late", "Dead", "Problem", "Unserved", "Overdue", "Warning", "Paused",
    ];
    sorted.sort_by_key(|kind| order.iter().position(|other| other == kind));
    assert_eq!(kinds, sorted);
    for part in [
        "3 send failed: no route",
        "worker app-1:2 had its last heartbeat",
        "media : 1 job is ready, and no worker serves the queue",
        "nightly was due at 2026-01-01 00:00, and no scheduler has fired it",
        "webhooks , by ada: “the provider is down”; 1 job is ready",
        "class charge , by bob",
    ] {
        assert!(
            rows.iter().any(|row| row.contains(part)),
            "{part}: {rows:#?}"
        );
    }
    assert!(
        todo.contains("action=\"/queues/webhooks/resume\""),
        "{todo}"
    );
    assert!(todo.contains("action=\"/recurring/nightly/run\""), "{todo}");
    assert!(todo.contains("action=\"/classes/charge/resume\""), "{todo}");
    // The same number is in the navigation, on this page and on the others.
    let number = rows.len();
    assert!(
        text(&page).contains(&format!("Overview {number} Queues")),
        "{number}: {}",
        text(&page)
    );
    assert!(text(&super::page(&server, "/limits")).contains(&format!("Overview {number} Queues")));
    assert!(
        row(rest, "/queues/media").contains("no worker serves it"),
        "{rest}"
    );
}

fn a_queue_is_late_by_its_promise(db: &TestDb) {
    worker(db, 1, "*", now(db));
    enqueue(db, "mail", "send");
    enqueue(db, "reports", "build");
    db.execute(&format!("UPDATE solid_queue_ready_executions SET created_at = '{LONG_AGO}' WHERE queue_name = 'mail'"));
    let server = Server::new(&db.database).listen("127.0.0.1:0");
    let server = server
        .max_wait("mail", Duration::from_secs(2))
        .max_wait("reports", Duration::from_secs(100_000_000));
    let page = page(&server.start().unwrap(), "/");
    assert!(
        row(&page, "/queues/mail\">mail").contains("late: promises 2 s"),
        "{page}"
    );
    assert!(
        row(&page, "/queues/reports\">reports").contains("in time: promises"),
        "{page}"
    );
    assert!(text(&page).contains("mail is late"), "{page}");
    assert!(
        row(&page, ">Late<").contains("and 2 s is promised; 1 job is ready"),
        "{page}"
    );
    // Without a promise, nothing is judged.
    let text = text(&super::page(&serve(&db.database), "/"));
    assert!(
        !text.contains("late") && !text.contains("promises"),
        "{text}"
    );
}

const DO: Function<bool> = Function::new("do");

fn body(succeeds: bool, _: &Context<'_, ()>) -> JobResult {
    match succeeds {
        true => Ok(()),
        false => Err(JobError::from("as told").fail()),
    }
}

fn measures_and_charts_come_from_the_history(db: &TestDb) {
    for succeeds in [true, true, true, false] {
        DO.job(&succeeds)
            .unwrap()
            .queue("work")
            .enqueue(&mut db.connection())
            .unwrap();
    }
    let worker = Worker::new(&db.database, Registry::new().function(DO, body)).until_idle();
    assert!(worker.start().unwrap().join(DEADLINE).is_some());
    let server = serve(&db.database);
    let page = page(&server, "/");
    assert!(page.contains("finished 3</span>"), "{page}");
    assert!(
        page.contains("failed 1, below on a scale of its own</span>"),
        "{page}"
    );
    assert!(
        page.contains(
            "aria-label=\"3 finished, 0 retried, 0 discarded or cancelled, 1 failed between"
        ),
        "{page}"
    );
    let classes = page.split("Busiest classes").nth(1).unwrap();
    assert!(row(classes, "class=do").starts_with("do 4 1 "), "{classes}");
    assert!(
        text(&page).contains("1 job has failed in the last hour"),
        "{page}"
    );
    // The history is younger than a week: nothing is called usual, and a failure is not called fine.
    assert!(!page.contains("class=\"v ok\">1 job has failed"), "{page}");
    assert!(!text(&page).contains("usual"), "{page}");
    let of_queue = super::page(&server, "/queues/work");
    assert!(of_queue.contains("finished 3</span>"), "{of_queue}");
    assert!(
        text(&of_queue).contains("of the 4 runs of the last hour"),
        "{of_queue}"
    );
    assert!(super::page(&server, "/?range=day").contains("finished 3</span>"));
}

crate::on_each_database!(
    without_anything_nothing_needs_attention,
    what_needs_attention_is_listed_worst_first,
    a_queue_is_late_by_its_promise,
    measures_and_charts_come_from_the_history,
);

crate::through_a_pooler_in_all!(
    without_anything_nothing_needs_attention,
    what_needs_attention_is_listed_worst_first,
    a_queue_is_late_by_its_promise,
    measures_and_charts_come_from_the_history,
);
