//! The page of the recurring tasks.

use super::{LONG_AGO, audited, change, now, page, post, row, serve, serve_viewers, text};
use crate::support::TestDb;
use windlass::{RecurringTask, recurring};

fn schedule(db: &TestDb, key: &str, schedule: &str) {
    let task = RecurringTask::of_class(key, schedule, "rollup", "{}").unwrap();
    let task = task.queue("sums").description("Sums of the day");
    recurring::schedule(&mut db.connection(), &task).unwrap();
}

fn tasks_are_shown_in_words_with_their_next_ticks(db: &TestDb) {
    schedule(db, "nightly", "0 2 * * * Europe/Berlin");
    schedule(db, "often", "every 5m");
    let page = page(&serve(&db.database), "/recurring");
    let nightly = row(&page, ">nightly<");
    assert!(nightly.contains("Sums of the day"), "{nightly}");
    assert!(
        nightly.contains("At 02:00 every day, Europe/Berlin 0 2 * * * Europe/Berlin"),
        "{nightly}"
    );
    assert!(nightly.contains(" 02:00, and 4 more"), "{nightly}");
    assert!(nightly.contains("no tick whose job is kept"), "{nightly}");
    assert!(
        row(&page, ">often<").contains("Every 5 minutes every 5m in "),
        "{page}"
    );
    let hour = page.split("The next hour").nth(1).unwrap();
    assert!(hour.matches("<td>often</td>").count() >= 11, "{hour}");
    assert!(text(hour).contains("rollup sums"), "{hour}");
    assert!(
        text(&page).contains("All 2 tasks are on time. No scheduler runs."),
        "{page}"
    );
}

fn the_last_ticks_are_marked(db: &TestDb) {
    schedule(db, "often", "every 5m");
    for (minute, place) in ["", "", "failed", "claimed"].iter().enumerate() {
        let job = super::enqueue(db, "sums", "rollup");
        db.execute(&format!(
            "DELETE FROM solid_queue_ready_executions WHERE job_id = {job}"
        ));
        db.execute(&format!(
            "INSERT INTO solid_queue_recurring_executions (job_id, task_key, run_at, created_at) \
             VALUES ({job}, 'often', '2026-01-01 00:0{minute}:00.000000', {})",
            now(db)
        ));
        match *place {
            "" => db.execute(&format!("UPDATE solid_queue_jobs SET finished_at = {} WHERE id = {job}", now(db))),
            place => db.execute(&format!(
                "INSERT INTO solid_queue_{place}_executions (job_id, created_at) VALUES ({job}, {})",
                now(db)
            )),
        };
    }
    let page = page(&serve(&db.database), "/recurring");
    assert!(
        page.contains("aria-label=\"the last 4, oldest first: 2 finished, 1 failed, 1 running\""),
        "{page}"
    );
    assert!(
        page.contains("<title>2026-01-01 00:02:00 UTC: failed</title>"),
        "{page}"
    );
    assert!(row(&page, ">often<").contains("running for"), "{page}");
}

fn overdue_and_paused_tasks_come_first(db: &TestDb) {
    for key in ["a", "b", "c"] {
        schedule(db, key, "0 2 * * *");
    }
    recurring::pause(&mut db.connection(), "b").unwrap();
    db.execute(&format!(
        "UPDATE solid_queue_recurring_tasks SET next_run_at = '{LONG_AGO}' WHERE key = 'c'"
    ));
    let page = page(&serve(&db.database), "/recurring");
    let place = |key: &str| page.find(&format!(">{key}</a>")).unwrap();
    assert!(place("c") < place("b") && place("b") < place("a"), "{page}");
    assert!(
        row(&page, ">b</a>").contains("none while it is paused"),
        "{page}"
    );
    assert!(row(&page, ">c</a>").contains("overdue for"), "{page}");
    assert!(
        text(&page).contains("Of 3 tasks, c is overdue and 1 is paused."),
        "{page}"
    );
}

fn a_task_is_run_paused_and_resumed(db: &TestDb) {
    schedule(db, "report/42", "0 2 * * *");
    let server = serve(&db.database);
    let shown = change(&server, "/recurring/report%2F42/run", "back=%2Frecurring");
    assert!(
        shown.contains("Enqueued job ") && shown.contains(" of report/42."),
        "{shown}"
    );
    assert_eq!(db.rows("ready_executions"), 1);
    assert_eq!(
        audited(db),
        "local page 127.0.0.1 recurring.run report/42 -"
    );
    let shown = change(&server, "/recurring/report%2F42/pause", "back=%2Frecurring");
    assert!(shown.contains("Paused report/42."), "{shown}");
    assert_eq!(
        audited(db),
        "local page 127.0.0.1 recurring.pause report/42 -"
    );
    assert!(
        recurring::list(&mut db.connection()).unwrap()[0]
            .paused_at
            .is_some()
    );
    let shown = change(
        &server,
        "/recurring/report%2F42/resume",
        "back=%2Frecurring",
    );
    assert!(shown.contains("Resumed report/42"), "{shown}");
    assert!(
        recurring::list(&mut db.connection()).unwrap()[0]
            .paused_at
            .is_none()
    );
    let unknown = post(&server, "/recurring/none/run", "");
    assert!((400..500).contains(&unknown.status), "{unknown:?}");
}

fn a_viewer_runs_nothing(db: &TestDb) {
    schedule(db, "a", "0 2 * * *");
    let audited = windlass::audit::AuditLog::new()
        .list(&mut db.connection())
        .unwrap()
        .len();
    let server = serve_viewers(db);
    for change in ["run", "pause", "resume"] {
        assert_eq!(
            post(&server, &format!("/recurring/a/{change}"), "").status,
            403
        );
    }
    assert_eq!(db.rows("jobs"), 0);
    assert_eq!(
        windlass::audit::AuditLog::new()
            .list(&mut db.connection())
            .unwrap()
            .len(),
        audited
    );
    assert!(page(&server, "/recurring").contains("aria-label=\"Run now: a\""));
}

fn pages_go_on_after_a_key(db: &TestDb) {
    for number in 100..203 {
        schedule(db, &format!("t{number}"), "0 2 * * *");
    }
    let server = serve(&db.database);
    let first = page(&server, "/recurring");
    let keys = |page: &str| {
        (100..203)
            .filter(|key| page.contains(&format!(">t{key}</a>")))
            .count()
    };
    let second = page(&server, "/recurring?after=t199");
    assert_eq!((keys(&first), keys(&second)), (100, 3));
    assert!(first.contains("/recurring?after=t199"), "{first}");
    assert!(text(&first).contains("All 103 tasks are on time."));
}

crate::on_each_database!(
    tasks_are_shown_in_words_with_their_next_ticks,
    the_last_ticks_are_marked,
    overdue_and_paused_tasks_come_first,
    a_task_is_run_paused_and_resumed,
    a_viewer_runs_nothing,
    pages_go_on_after_a_key,
);
