//! Names and texts that other programs may have stored.

use super::{enqueue, now, page, process, serve};
use crate::support::TestDb;
use windlass::{classes, limits, queues};

/// Text that a browser must not take as markup.
const HOSTILE: &str =
    "<script>alert(1)</script>\"'&amp;<img src=x onerror=alert(2)>\u{202e}\u{200d}\u{1f3f4}";

fn every_name_is_shown_as_text(db: &TestDb) {
    let mut conn = db.connect();
    let quoted = HOSTILE.replace('\'', "''");
    let long = "x".repeat(10_000);
    for (queue, class) in [("q", "c"), ("r", "d")] {
        enqueue(db, queue, class);
    }
    let job = enqueue(db, "run", "run");
    db.execute(&format!(
        "DELETE FROM solid_queue_ready_executions WHERE job_id = {job}"
    ));
    process(
        db,
        "Worker",
        1,
        r#"{"queues":"<i>","thread_pool_size":1,"windlass":"<u>"}"#,
        now(db),
    );
    db.execute(&format!(
        "UPDATE solid_queue_processes SET hostname = '{quoted}', name = '{quoted}', kind = 'Worker'"
    ));
    db.execute(&format!(
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at, note) \
         SELECT {job}, id, {}, '{{\"thread\":\"<b>\",\"progress\":{{\"percent\":5,\"message\":\"<s>\"}}}}' FROM solid_queue_processes",
        now(db)
    ));
    let failed = enqueue(db, "f", "f");
    db.execute(&format!(
        "DELETE FROM solid_queue_ready_executions WHERE job_id = {failed}"
    ));
    db.execute(&format!(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         VALUES ({failed}, '{{\"exception_class\":\"<e>\",\"message\":\"<script>m</script>{long}\"}}', {})",
        now(db)
    ));
    db.execute(&format!(
        "UPDATE solid_queue_ready_executions SET queue_name = '{quoted}' WHERE queue_name = 'q'"
    ));
    db.execute(&format!("UPDATE solid_queue_jobs SET queue_name = '{quoted}', class_name = '{quoted}' WHERE queue_name <> 'r'"));
    db.execute(&format!("UPDATE solid_queue_jobs SET class_name = '{long}', arguments = '<b>no json' WHERE queue_name = 'r'"));
    queues::pause(&mut conn, HOSTILE, HOSTILE, HOSTILE).unwrap();
    classes::pause(&mut conn, HOSTILE, HOSTILE, &long).unwrap();
    limits::set(&mut conn, &format!("g/{HOSTILE}"), 1, HOSTILE, HOSTILE).unwrap();
    let rate = limits::Rate::per_second(1).key(HOSTILE);
    limits::set_rate(&mut conn, HOSTILE, &rate, HOSTILE, HOSTILE).unwrap();
    db.execute(&format!(
        "INSERT INTO windlass_fair_queues (queue_name, created_at) VALUES ('{quoted}', {})",
        now(db)
    ));
    db.execute(&format!("INSERT INTO windlass_tenants (queue_name, tenant, weight, created_at) VALUES ('{quoted}', '{quoted}', 2, {})", now(db)));
    db.execute(&format!("INSERT INTO windlass_rates (rate_key, number, period, burst, level, counted_at) VALUES ('{quoted}', 1, 1, 1, 1, 1)"));
    db.execute(&format!(
        "INSERT INTO solid_queue_recurring_tasks (key, schedule, class_name, queue_name, description, next_run_at, static, created_at, updated_at) \
         VALUES ('{quoted}', '<x>', '{quoted}', '{quoted}', '{quoted}{long}', '2026-01-01 00:00:00.000000', {}, {now}, {now})",
        if db.is_postgres() { "false" } else { "0" },
        now = now(db)
    ));
    let server = serve(&db.database);
    let name = "%3Cscript%3Ealert%281%29%3C%2Fscript%3E%22%27%26amp%3B%3Cimg%20src%3Dx%20onerror%3Dalert%282%29%3E%E2%80%AE%E2%80%8D%F0%9F%8F%B4";
    let of_queue = format!("/queues/{name}");
    for path in [
        "/",
        "/queues",
        &of_queue,
        "/queues/r",
        "/processes",
        "/limits",
        "/recurring",
        "/doctor",
    ] {
        let page = page(&server, path);
        for tag in [
            "<script>alert",
            "<script>m",
            "<img",
            "<e>",
            "<i>",
            "<u>",
            "<s>",
            "<x>",
            "<b>no",
            "onerror=\"",
        ] {
            assert!(!page.contains(tag), "{path} has {tag}: {page}");
        }
        // Text after a quote would be an attribute of its own.
        assert!(!page.contains("\"'&"), "{path}: {page}");
        assert!(page.len() < 200_000, "{path} has {} bytes", page.len());
    }
    let shown = page(&server, &of_queue);
    assert!(
        shown.contains("&#60;script&#62;alert(1)&#60;/script&#62;"),
        "{shown}"
    );
    let queues = page(&server, "/queues");
    assert!(
        queues.contains(&format!("href=\"/queues/{name}\"")),
        "{queues}"
    );
}

fn names_that_cannot_be_are_not_found(db: &TestDb) {
    let server = serve(&db.database);
    assert_eq!(super::get(&server, "/queues/a%00b").status, 404);
    assert_eq!(super::get(&server, "/jobs?class=a%00b").status, 400);
    for form in ["class=a%00b", "class=%20"] {
        assert_eq!(
            super::post(&server, "/classes/pause", form).status,
            400,
            "{form}"
        );
    }
    page(&server, "/queues/%FF%FE");
    page(&server, &format!("/queues/{}", "y".repeat(5_000)));
}

crate::on_each_database!(
    every_name_is_shown_as_text,
    names_that_cannot_be_are_not_found
);
