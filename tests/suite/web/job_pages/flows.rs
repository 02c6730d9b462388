//! The pages of flows.

use super::{link, read, text};
use crate::support::TestDb;
use crate::web::client::{get, serve};
use windlass::flows::{FlowGraph, On};
use windlass::{Batch, BatchId, JobId, NewJob};
use windlass_console::web::RunningServer;

crate::on_each_database!(
    a_flow_is_drawn_and_is_a_table,
    a_batch_has_a_flow_with_the_batches_in_it,
    jobs_that_are_alike_are_one_box,
    chains_that_are_alike_are_boxes_side_by_side,
    the_one_that_was_asked_for_has_a_box_of_its_own,
    a_circle_is_drawn,
    what_undoes_steps_is_named,
    a_job_alone_has_no_flow,
    a_large_flow_is_cut,
    a_job_and_a_batch_link_to_their_flows,
    what_is_not_kept_is_named,
    an_unknown_id_is_a_page,
    no_text_of_a_flow_becomes_html,
    arguments_are_not_in_a_flow,
);

fn job(class: &str) -> NewJob {
    NewJob::of_class(class, "{}")
}

fn enqueued(db: &TestDb, job: NewJob) -> JobId {
    job.enqueue(&mut db.connection()).unwrap().id
}

/// Two readers, a merge that waits for them, and what follows it.
fn merge(db: &TestDb) -> [JobId; 5] {
    let [orders, rates] = ["read_orders", "read_rates"].map(|class| enqueued(db, job(class)));
    let merge = job("merge").after([("orders", orders), ("rates", rates)]);
    let merge = enqueued(db, merge);
    let report = enqueued(db, job("report").after(merge).when(On::Finish));
    let alarm = enqueued(db, job("alarm").after(merge).when(On::Failure));
    [orders, rates, merge, report, alarm]
}

fn flow(server: &RunningServer, job: JobId) -> String {
    get(server, &format!("/jobs/{}/flow", job.0)).expect(200)
}

/// The picture of a page, and its texts.
fn picture(page: &str) -> (&str, Vec<&str>) {
    let start = page.find("<svg class=\"flow\"").expect("a picture");
    let end = page[start..].rfind("</a></svg>").expect("its end") + start;
    let picture = &page[start..end];
    let texts = picture.split("<text ").skip(1);
    let texts = texts.filter_map(|text| text.split(['>', '<']).nth(1));
    (picture, texts.collect())
}

/// The left and upper corners of the boxes with this name.
fn places(page: &str, name: &str) -> Vec<(i64, i64)> {
    let boxes = page.split("<svg class=\"").skip(1);
    let boxes = boxes.filter(|one| one.contains(&format!("\">{name}</text>")));
    let at = |one: &str, name: &str| {
        let value = one.split_once(&format!("{name}=\"")).unwrap().1;
        value.split(['"', '.']).next().unwrap().parse().unwrap()
    };
    boxes.map(|one| (at(one, " x"), at(one, " y"))).collect()
}

fn column(page: &str, name: &str) -> i64 {
    let found = places(page, name);
    assert_eq!(found.len(), 1, "{name}: {found:?} in {page}");
    found[0].0
}

fn a_flow_is_drawn_and_is_a_table(db: &TestDb) {
    let [orders, _, merge, _, _] = merge(db);
    let server = serve(&db.database);
    let page = flow(&server, merge);
    let columns =
        ["read_orders", "read_rates", "merge", "report", "alarm"].map(|name| column(&page, name));
    assert!(
        columns[0] == columns[1] && columns[1] < columns[2],
        "{columns:?}"
    );
    assert!(
        columns[2] < columns[3] && columns[3] == columns[4],
        "{columns:?}"
    );
    let (svg, texts) = picture(&page);
    assert_eq!(texts[0..2], ["read_orders", "waits · job 1"]);
    for part in [
        "role=\"group\" aria-label=\"5 jobs and batches",
        "class=\"way\"",
        "class=\"way undo\"",
        "class=\"node here\"",
        &format!("<a href=\"/jobs/{}\">", orders.0),
    ] {
        assert!(svg.contains(part), "{part} in {svg}");
    }
    assert!(!page.contains(" style="), "{page}");
    let said = text(&page);
    for part in [
        "Flow of job 3",
        "merge job 3 waits on success of job 1 as orders , job 2 as rates",
        "report job 4 waits on any end of job 3",
        "alarm job 5 waits on failure of job 3",
        "on success, or on any end on failure, or to undo a step",
        "windlass flows show 3",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_eq!(link(&page, "job 3").as_deref(), Some("/jobs/3"));
    assert_eq!(link(&page, "merge").as_deref(), Some("/jobs/3"));
}

/// A batch with a batch in it, and what waits for it.
fn night(db: &TestDb) -> BatchId {
    let inner = Batch::new("inner").add([job("part")]);
    let batch = Batch::new("night-import").add([job("part"), job("part")]);
    let batch = batch.add_batch(inner).on_success(job("report"));
    batch.enqueue(&mut db.connection()).unwrap().id
}

fn a_batch_has_a_flow_with_the_batches_in_it(db: &TestDb) {
    let batch = night(db);
    let server = serve(&db.database);
    let page = get(&server, &format!("/batches/{batch}/flow")).expect(200);
    assert!(
        column(&page, "inner") < column(&page, "night-import"),
        "{page}"
    );
    assert!(
        column(&page, "night-import") < column(&page, "report"),
        "{page}"
    );
    assert!(picture(&page).0.contains("class=\"way in\""), "{page}");
    let said = text(&page);
    for part in [
        "Flow of batch 1",
        "night-import batch 1 · 3 open open in it: batch 2",
        "waits on success of batch 1",
        "is in the batch",
        "windlass flows show --batch 1",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

fn jobs_that_are_alike_are_one_box(db: &TestDb) {
    let mut conn = db.connect();
    let first = job("split").enqueue(&mut conn).unwrap();
    let parts: Vec<_> = (0..180)
        .map(|_| job("resize").after(first.id).enqueue(&mut conn).unwrap().id)
        .collect();
    let last = job("publish").after(&parts[..]).enqueue(&mut conn).unwrap();
    let server = serve(&db.database);
    let page = flow(&server, last.id);
    let (svg, texts) = picture(&page);
    assert_eq!(
        texts,
        [
            "split",
            "waits · job 1",
            "180 × resize",
            "waits",
            "publish",
            "waits · job 182"
        ]
    );
    assert_eq!(svg.matches("class=\"way\"").count(), 2);
    assert!(svg.contains("<a href=\"#job-2\">"), "{svg}");
    assert!(page.contains("<tr id=\"job-2\""), "{page}");
    assert_eq!(page.matches("<tr id=\"job-").count(), 182);
    db.execute("DELETE FROM solid_queue_blocked_executions WHERE job_id = 7");
    db.execute("UPDATE solid_queue_jobs SET finished_at = created_at WHERE id = 7");
    let page = flow(&server, last.id);
    let (_, texts) = picture(&page);
    assert!(
        texts.contains(&"179 × resize") && texts.contains(&"finished · job 7"),
        "{texts:?}"
    );
}

fn chains_that_are_alike_are_boxes_side_by_side(db: &TestDb) {
    let mut conn = db.connect();
    let mut ends = Vec::new();
    for _ in 0..20 {
        let read = job("read").enqueue(&mut conn).unwrap();
        ends.push(job("resize").after(read.id).enqueue(&mut conn).unwrap().id);
    }
    let last = job("publish").after(&ends[..]).enqueue(&mut conn).unwrap();
    let server = serve(&db.database);
    let page = flow(&server, last.id);
    assert!(
        column(&page, "20 × read") < column(&page, "20 × resize"),
        "{page}"
    );
    assert!(
        column(&page, "20 × resize") < column(&page, "publish"),
        "{page}"
    );
}

fn the_one_that_was_asked_for_has_a_box_of_its_own(db: &TestDb) {
    let mut conn = db.connect();
    let first = job("split").enqueue(&mut conn).unwrap();
    let parts = [0; 3].map(|_| job("resize").after(first.id).enqueue(&mut conn).unwrap().id);
    let server = serve(&db.database);
    let page = flow(&server, parts[1]);
    let (svg, _) = picture(&page);
    assert_eq!(column(&page, "resize"), column(&page, "2 × resize"));
    assert_eq!(svg.matches("node here").count(), 1);
    assert_eq!(page.matches(" class=\"now\"").count(), 1);
}

fn a_circle_is_drawn(db: &TestDb) {
    let [first, .., last] = merge(db);
    db.execute(&format!(
        "UPDATE windlass_edges SET parent_job_id = {last} WHERE child_job_id = 3 AND parent_job_id = {first}"
    ));
    let server = serve(&db.database);
    let page = flow(&server, last);
    assert!(column(&page, "merge") < column(&page, "alarm"), "{page}");
    let said = text(&page);
    assert!(
        said.contains("merge job 3 waits on success of job 2 as rates , job 5 as orders"),
        "{said}"
    );
}

fn what_undoes_steps_is_named(db: &TestDb) {
    let trip = enqueued(db, job("trip"));
    let [hotel, flight] =
        ["cancel_hotel", "cancel_flight"].map(|class| enqueued(db, job(class).after(trip)));
    enqueued(db, job("other").after([hotel, flight]));
    // As a step of a job stores it.
    for (id, name) in [(hotel, "hotel"), (flight, "flight")] {
        db.execute(&format!(
            "UPDATE windlass_edges SET otherwise = 'undo', name = '{name}' WHERE child_job_id = {}",
            id.0
        ));
    }
    let graph = FlowGraph::around(&mut db.connection(), trip).unwrap();
    assert_eq!(graph.edges[0].kind, "undoes", "{graph:?}");
    let server = serve(&db.database);
    let page = flow(&server, trip);
    let said = text(&page);
    assert!(
        said.contains("cancel_hotel job 2 waits undoes step hotel of job 1"),
        "{said}"
    );
    assert!(page.contains("class=\"way undo\""), "{page}");
}

fn a_job_alone_has_no_flow(db: &TestDb) {
    let alone = enqueued(db, job("alone"));
    let server = serve(&db.database);
    let page = flow(&server, alone);
    let said = text(&page);
    assert!(
        said.contains("It waits for nothing, and nothing waits for it."),
        "{said}"
    );
    assert!(!page.contains("<svg class=\"flow\""), "{page}");
    assert!(said.contains("alone job 1 waits"), "{said}");
}

fn a_large_flow_is_cut(db: &TestDb) {
    let mut conn = db.connect();
    let first = job("first").enqueue(&mut conn).unwrap();
    for _ in 0..230 {
        job("part").after(first.id).enqueue(&mut conn).unwrap();
    }
    let server = serve(&db.database);
    let page = flow(&server, first.id);
    assert!(
        text(&page).contains("There is more: this page has 200 jobs and batches at most."),
        "{page}"
    );
    assert!(picture(&page).1.contains(&"199 × part"), "{page}");
}

fn a_job_and_a_batch_link_to_their_flows(db: &TestDb) {
    let batch = night(db);
    let [orders, _, merge, _, _] = merge(db);
    let alone = enqueued(db, job("alone"));
    let server = serve(&db.database);
    let of = |path: String| link(&get(&server, &path).expect(200), "what waits for what");
    for job in [orders, merge, JobId(1)] {
        assert_eq!(
            of(format!("/jobs/{}", job.0)),
            Some(format!("/jobs/{}/flow", job.0))
        );
    }
    assert_eq!(of(format!("/jobs/{}", alone.0)), None);
    assert_eq!(
        of(format!("/batches/{batch}")),
        Some(format!("/batches/{batch}/flow"))
    );
}

fn what_is_not_kept_is_named(db: &TestDb) {
    let [orders, _, merge, _, _] = merge(db);
    db.execute(&format!(
        "DELETE FROM solid_queue_jobs WHERE id = {}",
        orders.0
    ));
    let server = serve(&db.database);
    let page = flow(&server, merge);
    assert!(
        text(&page).contains("job 1 job 1 not kept any more"),
        "{page}"
    );
    assert_eq!(link(&page, "job 1"), None);
}

fn an_unknown_id_is_a_page(db: &TestDb) {
    let server = serve(&db.database);
    for (path, says) in [
        ("/jobs/99/flow", "Nothing is stored about job 99"),
        ("/jobs/x/flow", "The id of a job is a number."),
        ("/batches/99/flow", "There is no batch 99"),
        ("/batches/x/flow", "There is no batch x"),
    ] {
        let page = get(&server, path).expect(404);
        assert!(page.contains(says), "{page}");
    }
}

fn no_text_of_a_flow_becomes_html(db: &TestDb) {
    let hostile = "<img src=x onerror=alert(1)>\"'&#60;--</text></svg></script>";
    let sql = hostile.replace('\'', "''");
    let batch = night(db);
    let [.., last] = merge(db);
    db.execute(&format!(
        "UPDATE solid_queue_batches SET description = '{sql}'"
    ));
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET class_name = '{sql}' WHERE class_name <> 'windlass_batch'"
    ));
    db.execute(&format!("UPDATE windlass_edges SET name = '{sql}'"));
    let server = serve(&db.database);
    for path in [
        format!("/jobs/{}/flow", last.0),
        format!("/batches/{batch}/flow"),
    ] {
        let page = get(&server, &path).expect(200);
        assert!(
            !page.contains("<img") && !page.contains("</text></svg></script>"),
            "{page}"
        );
        assert!(page.matches("&#60;img").count() > 3, "{path}: {page}");
        assert!(
            page.contains(">&#60;img src=x onerror=ale…</text>"),
            "{page}"
        );
    }
}

fn arguments_are_not_in_a_flow(db: &TestDb) {
    let first = enqueued(db, NewJob::of_class("first", r#"{"token":"tok_5ecret"}"#));
    enqueued(
        db,
        NewJob::of_class("second", r#"["tok_5ecret"]"#).after(("a", first)),
    );
    db.execute(
        "INSERT INTO windlass_results (job_id, class_name, outcome, result, attempt, finished_at, expires_at) \
         SELECT id, class_name, 'succeeded', '\"tok_5ecret\"', 1, created_at, '2999-01-01' FROM solid_queue_jobs WHERE id = 1",
    );
    let server = serve(&db.database);
    assert!(!flow(&server, first).contains("5ecret"));
    assert!(read(&server, "/jobs/1/flow").contains("second job 2 waits on success of job 1 as a"));
}
