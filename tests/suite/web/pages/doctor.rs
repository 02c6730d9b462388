//! The page of `doctor`.

use super::{enqueue, now, page, row, serve, text};
use crate::support::TestDb;

fn a_database_in_order_is_fine(db: &TestDb) {
    let server = serve(&db.database);
    for path in ["/doctor", "/doctor?full=1"] {
        let text = text(&page(&server, path));
        assert!(text.contains("checks are fine."), "{path}: {text}");
        assert!(
            text.contains("schema fine all tables, columns and indexes are there"),
            "{text}"
        );
    }
}

/// Each rule is broken by another program in one way; both looks find it.
fn jobs_that_are_inconsistent_are_named(db: &TestDb) {
    let lost = enqueue(db, "a", "x");
    db.execute(&format!(
        "DELETE FROM solid_queue_ready_executions WHERE job_id = {lost}"
    ));
    let twice = enqueue(db, "a", "x");
    db.execute(&format!(
        "INSERT INTO solid_queue_failed_executions (job_id, created_at) VALUES ({twice}, {})",
        now(db)
    ));
    let left = enqueue(db, "a", "x");
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET finished_at = {} WHERE id = {left}",
        now(db)
    ));
    let claimed = enqueue(db, "a", "x");
    db.execute(&format!(
        "DELETE FROM solid_queue_ready_executions WHERE job_id = {claimed}"
    ));
    db.execute(&format!(
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at) VALUES ({claimed}, 7, {})",
        now(db)
    ));
    let orphan = 1_000_000;
    db.execute(&format!(
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) VALUES ({orphan}, 'a', 0, {})",
        now(db)
    ));
    let server = serve(&db.database);
    for path in ["/doctor", "/doctor?full=1"] {
        let page = page(&server, path);
        for (check, job) in [
            ("lost", lost),
            ("places", twice),
            ("finished", left),
            ("claims", claimed),
            ("orphans", orphan),
        ] {
            let found = row(&page, &format!(">{check}<"));
            assert!(found.contains("problem 1 "), "{path} {check}: {found}");
            assert!(
                page.contains(&format!("/jobs/{job}\"")),
                "{path} {check}: {page}"
            );
        }
    }
    let overview = page(&server, "/");
    assert!(
        text(&overview).contains("Problem lost : 1 unfinished jobs have no state"),
        "{overview}"
    );
}

crate::on_each_database!(
    a_database_in_order_is_fine,
    jobs_that_are_inconsistent_are_named
);

crate::through_a_pooler_in_all!(
    a_database_in_order_is_fine,
    jobs_that_are_inconsistent_are_named,
);
