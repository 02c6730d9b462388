//! The pages of batches.

use super::{hidden, link, listed, read, sent, text};
use crate::support::TestDb;
use crate::support::wait::until;
use crate::web::client::{get, post, serve};
use windlass::{Batch, BatchId, NewJob};
use windlass_console::web::Server;

crate::on_each_database!(
    batches_are_listed_by_state,
    a_list_of_batches_goes_on_page_by_page,
    a_batch_shows_its_jobs_and_what_follows,
    a_batch_is_cancelled_by_an_operation,
    failed_jobs_of_a_batch_are_retried_by_an_operation,
    a_batch_of_ruby_is_shown_and_not_changed,
    wrong_requests_about_batches_change_nothing,
    a_bulk_action_on_a_batch_changes_no_other_job,
    a_read_only_server_changes_no_batch,
    no_text_of_a_batch_becomes_html,
);

fn job() -> NewJob {
    NewJob::of_class("import", "{}")
}

fn enqueued(db: &TestDb) -> BatchId {
    let inner = Batch::new("inner").add([job()]);
    let batch = Batch::new("night-import").add([job(), job()]);
    let batch = batch.add_batch(inner).metadata(&["of the night"]);
    let batch = batch.on_success(NewJob::of_class("report", "{}"));
    batch.enqueue(&mut db.connection()).unwrap().id
}

/// Lets all ready jobs fail.
fn fail(db: &TestDb) {
    db.in_transaction(&[
        "INSERT INTO windlass_batch_failures (job_id, batch_id, created_at) SELECT job_id, batch_id, created_at \
         FROM solid_queue_batch_executions WHERE job_id IN (SELECT job_id FROM solid_queue_ready_executions)",
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         SELECT job_id, '{\"exception_class\":\"io\",\"message\":\"disk full\"}', created_at \
         FROM solid_queue_ready_executions ORDER BY id",
        "DELETE FROM solid_queue_batch_executions WHERE job_id IN (SELECT job_id FROM solid_queue_ready_executions)",
        "DELETE FROM solid_queue_ready_executions",
    ]);
}

fn until_done(db: &TestDb) {
    until("the operation has ended", || {
        db.count("SELECT count(*) AS n FROM windlass_operations WHERE ended_at IS NULL") == 0
    });
}

fn batches_are_listed_by_state(db: &TestDb) {
    let server = serve(&db.database);
    assert!(read(&server, "/batches").contains("No batches yet."));
    enqueued(db);
    let page = read(&server, "/batches");
    for part in [
        "inner batch 2 open 0 % 0 % 1 1 0",
        "night-import batch 1 open 0 % 0 % 3 3 0",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(read(&server, "/batches?state=over").contains("No such batch."));
    db.execute(
        "UPDATE solid_queue_batches SET finished_at = created_at, failed_at = created_at, failed_jobs = 1 WHERE id = 2",
    );
    db.execute("DELETE FROM solid_queue_batch_executions WHERE batch_id = 2");
    for state in ["over", "failed"] {
        let page = read(&server, &format!("/batches?state={state}"));
        assert!(page.contains("inner batch 2 failed 100 %"), "{page}");
        assert!(!page.contains("night-import"), "{page}");
    }
    assert!(!read(&server, "/batches?state=open").contains("inner"));
    get(&server, "/batches?state=none").expect(400);
}

fn a_list_of_batches_goes_on_page_by_page(db: &TestDb) {
    let mut conn = db.connect();
    for number in 0..120 {
        let batch = Batch::new(format!("number-{number}-of-all"));
        batch.add([job()]).enqueue(&mut conn).unwrap();
    }
    let server = serve(&db.database);
    let (mut path, mut seen) = ("/batches?state=open".to_owned(), Vec::new());
    loop {
        let page = get(&server, &path).expect(200);
        let names = page.matches("-of-all</a>").count();
        seen.push(names);
        match link(&page, "Older") {
            Some(older) => path = older,
            None => break,
        }
    }
    assert_eq!(seen, [50, 50, 20]);
}

fn a_batch_shows_its_jobs_and_what_follows(db: &TestDb) {
    let batch = enqueued(db);
    let server = serve(&db.database);
    let path = format!("/batches/{batch}");
    let page = read(&server, &path);
    for part in [
        "night-import batch 1",
        "open 0 % 0 %, 3 of 3 jobs are open",
        "report on success waits for the end of the batch",
        "Batch in it batch 2",
        "of the night",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(read(&server, "/batches/2").contains("Batch around it batch 1"));
    fail(db);
    let page = get(&server, &path).expect(200);
    let said = text(&page);
    for part in ["2 failed, or were cancelled", "import failed io: disk full"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let jobs = get(&server, &link(&page, "failed").unwrap()).expect(200);
    assert_eq!(listed(&jobs).len(), 2);
    let jobs = get(&server, &format!("/jobs?batch={batch}")).expect(200);
    assert_eq!(listed(&jobs).len(), 3, "with the batch in it");
    let job = listed(&jobs)[2];
    let page = get(&server, &format!("/jobs/{job}")).expect(200);
    assert_eq!(link(&page, "batch 1").as_deref(), Some("/batches/1"));
    get(&server, "/jobs?batch=x").expect(400);
    get(&server, "/batches/99").expect(404);
    get(&server, "/batches/x").expect(404);
}

fn a_batch_is_cancelled_by_an_operation(db: &TestDb) {
    let batch = enqueued(db);
    job().enqueue(&mut db.connection()).unwrap();
    let server = serve(&db.database);
    let path = format!("/batches/{batch}/cancel");
    let page = get(&server, &path).expect(200);
    let said = text(&page);
    for part in [
        "Cancel night-import?",
        "Number 3 jobs",
        "Nothing has changed yet.",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_eq!(db.rows("ready_executions"), 4, "a preview changes nothing");
    let form = format!("{}&reason=wrong", hidden(&page));
    let to = sent(&server, &path, &form);
    assert_eq!(sent(&server, &path, &form), to, "the same form again");
    until_done(db);
    assert_eq!(db.rows("ready_executions"), 1, "of no batch");
    let page = read(&server, &to);
    for part in [
        "Cancel jobs",
        "3 of 3 jobs",
        "changed 3",
        "Whole batch 1",
        "Reason wrong",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert_eq!(db.rows_of("windlass_operations"), 1);
    let none = read(&server, &path);
    assert!(none.contains("No job of it is open"), "{none}");
    db.execute("UPDATE solid_queue_batches SET finished_at = created_at");
    let over = get(&server, &format!("/batches/{batch}")).expect(200);
    assert_eq!(link(&over, "Cancel…"), None);
    assert!(text(&over).contains("The batch is over"), "{over}");
}

fn failed_jobs_of_a_batch_are_retried_by_an_operation(db: &TestDb) {
    let batch = enqueued(db);
    fail(db);
    let server = serve(&db.database);
    let path = format!("/batches/{batch}/retry");
    let page = get(&server, &path).expect(200);
    // Also the job of the batch in it, which is not over yet.
    assert!(text(&page).contains("Number 3 jobs"), "{page}");
    sent(&server, &path, &hidden(&page));
    until_done(db);
    assert_eq!(
        (db.rows("failed_executions"), db.rows("ready_executions")),
        (0, 3)
    );
}

fn a_batch_of_ruby_is_shown_and_not_changed(db: &TestDb) {
    let batch = enqueued(db);
    db.execute(&format!(
        "UPDATE solid_queue_batches SET active_job_batch_id = '5d1c', description = NULL WHERE id = {batch}"
    ));
    let server = serve(&db.database);
    assert!(read(&server, "/batches").contains("batch 1 batch 1 · of Ruby"));
    let page = read(&server, &format!("/batches/{batch}"));
    assert!(
        page.contains("A batch of Ruby is not changed as a whole"),
        "{page}"
    );
    let path = format!("/batches/{batch}/cancel");
    get(&server, &path).expect(400);
    let form =
        "preview=%7B%22count%22%3A3%2C%22is_exact%22%3Atrue%2C%22bounds%22%3A%5B%5D%7D&request=r";
    assert_eq!(post(&server, &path, form).status, 400);
    assert_eq!(db.rows("ready_executions"), 3);
}

fn wrong_requests_about_batches_change_nothing(db: &TestDb) {
    let batch = enqueued(db);
    let server = serve(&db.database);
    let path = format!("/batches/{batch}/cancel");
    for form in ["", "preview=x&request=y", "request=z"] {
        assert_eq!(sent(&server, &path, form), path);
    }
    assert_eq!(post(&server, "/batches/99/cancel", "").status, 404);
    assert_eq!(db.rows_of("windlass_operations"), 0);
    assert_eq!(db.rows("ready_executions"), 3);
}

fn a_bulk_action_on_a_batch_changes_no_other_job(db: &TestDb) {
    let batch = enqueued(db);
    job().enqueue(&mut db.connection()).unwrap();
    let server = serve(&db.database);
    let path = format!("/preview?state=ready&batch={batch}&which=matching&do=cancel");
    let page = get(&server, &path).expect(200);
    let said = text(&page);
    assert!(
        said.contains("Cancel 2 jobs?") && said.contains("With batch 1"),
        "{said}"
    );
    sent(&server, "/preview", &hidden(&page));
    until_done(db);
    assert_eq!(db.rows("ready_executions"), 2);
}

fn a_read_only_server_changes_no_batch(db: &TestDb) {
    let batch = enqueued(db);
    let server = Server::new(&db.database)
        .listen("127.0.0.1:0")
        .read_only(true)
        .start()
        .unwrap();
    let page = read(&server, &format!("/batches/{batch}"));
    assert!(
        page.contains("Only an operator may change batches."),
        "{page}"
    );
    let path = format!("/batches/{batch}/cancel");
    let reply = post(&server, &path, "preview=x&request=y");
    assert_eq!(reply.status, 403, "{reply:?}");
}

fn no_text_of_a_batch_becomes_html(db: &TestDb) {
    let hostile = "<img src=x onerror=alert(1)>\"'&#60;--</textarea></script>";
    let batch = Batch::new("hostile").add([job()]);
    let batch = batch.metadata(&hostile).on_success(job());
    let batch = batch.enqueue(&mut db.connection()).unwrap().id;
    let sql = hostile.replace('\'', "''");
    fail(db);
    db.execute(&format!(
        "UPDATE solid_queue_batches SET description = '{sql}'"
    ));
    db.execute(&format!("UPDATE solid_queue_jobs SET class_name = '{sql}'"));
    db.execute(&format!(
        "UPDATE solid_queue_failed_executions SET error = '{sql}'"
    ));
    let server = serve(&db.database);
    for path in [
        "/batches".to_owned(),
        format!("/batches/{batch}"),
        format!("/batches/{batch}/cancel"),
        format!("/batches/{batch}/retry"),
    ] {
        let page = get(&server, &path).expect(200);
        assert!(!page.contains("<img"), "{page}");
        assert!(page.contains("&#60;img"), "{path}: {page}");
    }
}
