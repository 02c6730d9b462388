//! The groups of failed jobs.

use super::world::world;
use super::{link, listed, read, text};
use crate::support::TestDb;
use crate::support::wait::until;
use crate::web::client::{get, serve};

crate::on_each_database!(
    failures_are_grouped_by_what_they_have_in_common,
    a_group_leads_to_its_jobs_and_their_preview,
    a_failure_of_ruby_is_in_its_group_when_a_supervisor_has_read_it,
    groups_are_filtered,
    without_failures_it_says_so,
);

fn failures_are_grouped_by_what_they_have_in_common(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    let page = read(&server, "/failed");
    for part in [
        "5 jobs have failed, in 4 groups.",
        "4 groups have grown within the last 5 min.",
        "connection reset by peer (os error n )",
        "it met no account",
        "tests/suite/web/job_pages/world.rs",
        "timeout",
        "ReportJob Net::ReadTimeout",
        "1 failure stored by another program",
        "40 %",
        "20 %",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    drop(world);
}

fn a_group_leads_to_its_jobs_and_their_preview(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    let page = get(&server, "/failed?kind=panic").expect(200);
    let jobs = link(&page, "sync_account").unwrap();
    let list = get(&server, &jobs).expect(200);
    assert_eq!(listed(&list), [world.job("panicked")]);
    let preview = get(&server, &link(&page, "Discard…").unwrap()).expect(200);
    let said = text(&preview);
    assert!(said.contains("Discard 1 job?"), "{said}");
    assert!(
        said.contains("failed") && said.contains("it met no account"),
        "{said}"
    );
    let preview = read(&server, &link(&page, "Retry…").unwrap());
    assert!(preview.contains("Retry 1 job?"), "{preview}");
    let newest = link(&page, "The job that failed last").unwrap();
    assert_eq!(newest, format!("/jobs/{}", world.job("panicked")));
}

fn a_failure_of_ruby_is_in_its_group_when_a_supervisor_has_read_it(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    let page = get(&server, "/failed?class=Report").expect(200);
    let retry = link(&page, "Retry…").unwrap();
    let preview = read(&server, &retry);
    assert!(
        preview.contains("when a supervisor has read them"),
        "{preview}"
    );
    let supervisor = windlass::Supervisor::new(&db.database).start().unwrap();
    until("it has its fingerprint", || {
        db.count(
            "SELECT count(*) AS n FROM solid_queue_failed_executions WHERE fingerprint IS NULL",
        ) == 0
    });
    drop(supervisor);
    let preview = read(&server, &retry);
    assert!(preview.contains("Retry 1 job?"), "{preview}");
    let page = read(&server, "/failed");
    assert!(!page.contains("stored by another program"), "{page}");
    drop(world);
}

fn groups_are_filtered(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    for (query, lead) in [
        ("?class=Report", "1 job has failed, in 1 group."),
        ("?class=sync", "4 jobs have failed, in 3 groups."),
        ("?text=reset", "2 jobs have failed, in 1 group."),
        ("?since=1h", "5 jobs have failed, in 4 groups."),
    ] {
        let page = read(&server, &format!("/failed{query}"));
        assert!(page.contains(lead), "{query}: {page}");
    }
    let page = read(&server, "/failed?class=nothing");
    assert!(page.contains("No group matches."), "{page}");
    drop(world);
}

fn without_failures_it_says_so(db: &TestDb) {
    let page = read(&serve(&db.database), "/failed");
    assert!(page.contains("No job has failed."), "{page}");
}
