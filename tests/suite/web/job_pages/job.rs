//! The page of a job, and what can be done to it.

use super::world::{SECRET, world};
use super::{read, sent, text};
use crate::support::TestDb;
use crate::support::process::{Do, Scene, Work, signal};
use crate::support::wait::until;
use crate::web::client::{get, post, serve};
use rustix::process::Signal;
use windlass::jobs::{self, TaskStatus};
use windlass::{Job as _, JobId};

crate::on_each_database!(
    the_explanation_comes_first,
    the_timeline_has_what_happened_and_what_comes_next,
    arguments_results_and_steps_are_shown_without_secrets,
    a_crash_is_part_of_the_timeline,
    a_job_without_a_row_still_has_its_outcome,
    actions_change_the_job_and_say_so,
    what_is_not_possible_says_why,
    a_job_that_runs_at_most_once_is_retried_only_when_asked,
);

crate::through_a_pooler_in_all!(
    the_explanation_comes_first,
    the_timeline_has_what_happened_and_what_comes_next,
    arguments_results_and_steps_are_shown_without_secrets,
    a_crash_is_part_of_the_timeline,
    a_job_without_a_row_still_has_its_outcome,
    actions_change_the_job_and_say_so,
    what_is_not_possible_says_why,
    a_job_that_runs_at_most_once_is_retried_only_when_asked,
);

fn the_explanation_comes_first(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    let page = |name: &str| read(&server, &format!("/jobs/{}", world.job(name)));
    let running = world.job("running");
    for (name, part) in [
        ("running", "It runs : worker-"),
        ("running", "It is at 64 %: page 27 of 42"),
        (
            "limited",
            &format!(
                "It waits for a slot of the concurrency key sync/7 , which job {running} holds."
            ),
        ),
        (
            "behind",
            &format!(
                "It starts when job {} has ended, which runs with the unique id sync/customer/7.",
                world.job("unique")
            ),
        ),
        (
            "second",
            &format!(
                "It waits for its turn in the ordered concurrency key line/a behind job {}",
                world.job("first")
            ),
        ),
        ("later", "It is scheduled for "),
        ("retried", ", for its attempt 2."),
        ("retried", "Its last attempt ended with "),
        ("paused", "But its queue has been paused since "),
        ("elsewhere", "But no running worker serves its queue."),
        ("failed", "It failed at "),
        ("failed", ", with attempt 2."),
        (
            "failed_in_ruby",
            "It ended with Net::ReadTimeout: Net::ReadTimeout with #&#60;TCPSocket",
        ),
        ("finished", "It finished at "),
        ("cancelled", "It was cancelled at "),
        ("discarded", "It was discarded at "),
        ("once", "delivery at most once"),
    ] {
        let page = page(name);
        let found = page.contains(part) || page.to_lowercase().contains(&part.to_lowercase());
        assert!(found, "{name}: {part} in {page}");
    }
    // The words are those of the command.
    let said =
        crate::support::program::windlass(&db.url, &["explain", &world.job("limited").to_string()]);
    assert!(said.out.contains(&format!(
        "It waits for a slot of the concurrency key sync/7, which job {running} holds."
    )));
}

fn the_timeline_has_what_happened_and_what_comes_next(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    let timeline = |name: &str| {
        let page = get(&server, &format!("/jobs/{}", world.job(name))).expect(200);
        let (_, rest) = page.split_once("<h2 id=\"h-timeline\">").unwrap();
        text(rest.split_once("</section>").unwrap().0)
    };
    let has = |name: &str, parts: &[&str]| {
        let timeline = timeline(name);
        let mut rest = &timeline[..];
        for part in parts {
            let at = rest.find(part);
            let at = at.unwrap_or_else(|| panic!("{name}: {part} in {timeline}"));
            rest = &rest[at + part.len()..];
        }
    };
    has(
        "failed",
        &[
            "enqueued",
            "on import, priority 0",
            "waited",
            "for a thread",
            "attempt 1 failed",
            "connection reset by peer (os error 104)",
            ", by worker-",
            " on ",
            ", pid ",
            "Details",
            "caused by: reading page 12",
            "for its retry",
            "attempt 2 failed",
            "next",
            "nothing",
            "kept until it is retried or discarded",
        ],
    );
    has(
        "retried",
        &[
            "attempt 1 failed",
            "scheduled",
            "for ",
            "next",
            "attempt 2 of 5",
            "when it is due, at ",
        ],
    );
    has(
        "running",
        &[
            "enqueued",
            "waited",
            "attempt 1 runs",
            "at 64 %: page 27 of 42",
            "next",
        ],
    );
    has(
        "limited",
        &[
            "blocked",
            "by the concurrency key sync/7",
            "attempt 1",
            "as soon as it has a slot",
        ],
    );
    has(
        "behind",
        &[
            "blocked",
            "by job ",
            ", which has its unique id",
            "when job ",
        ],
    );
    has(
        "second",
        &[
            "blocked",
            "in the line of line/a",
            "when those before it have ended",
        ],
    );
    has(
        "paused",
        &[
            "ready",
            "next on its queue",
            ", but its queue has been paused since ",
        ],
    );
    has(
        "later",
        &["enqueued", "scheduled", "attempt 1", "when it is due"],
    );
    has(
        "panicked",
        &[
            "attempt 1 failed",
            "panic",
            "it met no account",
            "Details",
            "at tests/suite/web/",
        ],
    );
    has("timed_out", &["attempt 1 failed", "timeout"]);
    has(
        "cancelled",
        &["enqueued", "was cancelled", "while it waited"],
    );
    has(
        "discarded",
        &["attempt 1 was discarded", "the account was closed"],
    );
    has("finished", &["enqueued", "waited", "attempt 1 finished"]);
    has(
        "failed_in_ruby",
        &[
            "by Active Job",
            "failed",
            "Net::ReadTimeout",
            "app/jobs/report_job.rb:12",
        ],
    );
    has("recurring", &["by the recurring task nightly"]);
}

fn arguments_results_and_steps_are_shown_without_secrets(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    for name in world.jobs.keys() {
        let html = get(&server, &format!("/jobs/{}", world.job(name))).expect(200);
        assert!(!html.contains(SECRET), "{name}: {html}");
        assert!(!html.contains("style="), "{name}");
    }
    let page = |name: &str| read(&server, &format!("/jobs/{}", world.job(name)));
    let finished = page("finished");
    for part in [
        "&#34;account&#34;: 7, &#34;api_token&#34;: hidden , &#34;card&#34;: { &#34;name&#34;: &#34;Ada&#34;, &#34;number&#34;: hidden }",
        "2 fields are hidden by the job’s class",
        "Result { &#34;api_token&#34;: hidden , &#34;rows&#34;: 1204 }",
        "Tags eu",
        "Metadata ticket: &#34;T-1&#34;",
        "Log Attempt 1, started",
        "info starts account 7",
        "Result kept until ",
    ] {
        assert!(finished.contains(part), "{part} in {finished}");
    }
    let running = page("running");
    assert!(running.contains("open_session 1"), "{running}");
    assert!(
        running.contains("{&#34;api_token&#34;: hidden , &#34;id&#34;: &#34;s-81f2&#34;}"),
        "{running}"
    );
    let unknown = page("unknown");
    assert!(
        unknown.contains("Hidden. No worker has registered this class"),
        "{unknown}"
    );
    for (name, part) in [
        ("elsewhere", "Idempotency key order-77"),
        (
            "behind",
            "Unique id sync/customer/7 held until it has finished or failed",
        ),
        ("limited", "Concurrency key sync/7 limit 1, the others wait"),
        ("second", "Concurrency key line/a limit 1, in order"),
        ("retried", "Attempts 1 of 5 1 h between attempts"),
        ("timed_out", "Timeout 50 ms of each attempt"),
        ("recurring", "Recurring task nightly"),
        ("failed_in_ruby", "Active Job id 0199-aj-2"),
    ] {
        let page = page(name);
        assert!(page.contains(part), "{name}: {part} in {page}");
    }
}

fn a_crash_is_part_of_the_timeline(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    let work = Work::new("a", Do::WaitFor(scene.gate("a")));
    let job = work.enqueue(&mut db.connection()).unwrap().id;
    signal(scene.started("a", 1).pid, Signal::KILL);
    scene.started("a", 2);
    let server = serve(&db.database);
    until("the page has the crash", || {
        let page = read(&server, &format!("/jobs/{job}"));
        page.contains("was cut short")
            && page.contains("for a supervisor and another process")
            && page.contains("crashed")
            && page.contains("Crashes 1 of ")
    });
    scene.open("a");
    scene.drained();
    let page = read(&server, &format!("/jobs/{job}"));
    assert!(page.contains("attempt 2 finished"), "{page}");
}

fn a_job_without_a_row_still_has_its_outcome(db: &TestDb) {
    let world = world(db);
    let job = world.job("finished");
    db.execute(&format!("DELETE FROM solid_queue_jobs WHERE id = {job}"));
    let server = serve(&db.database);
    let page = read(&server, &format!("/jobs/{job}"));
    assert!(page.contains("Its row was deleted."), "{page}");
    // Its class has secret fields, and without the arguments their values are not known.
    assert!(
        page.contains("Result hidden") && !page.contains("1204"),
        "{page}"
    );
    assert!(page.contains("It has ended."), "{page}");
    for path in ["/jobs/987654321", "/jobs/x", "/jobs/987654321/discard"] {
        let page = get(&server, path).expect(404);
        assert!(page.contains("Not found"), "{page}");
    }
}

fn status(db: &TestDb, job: i64) -> Option<TaskStatus> {
    let info = jobs::status(&mut db.connection(), JobId(job)).unwrap();
    info.map(|info| info.status)
}

fn actions_change_the_job_and_say_so(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    let act = |name: &str, action: &str, form: &str| {
        let job = world.job(name);
        let reply = post(&server, &format!("/jobs/{job}/{action}"), form);
        assert_eq!(reply.status, 303, "{reply:?}");
        let flash = reply.cookies().join("; ");
        (
            reply.header("location").unwrap().to_owned(),
            flash.replace("%20", " "),
        )
    };
    let path = |name: &str| format!("/jobs/{}", world.job(name));
    let (to, said) = act("failed", "retry", "");
    assert_eq!(to, path("failed"));
    assert!(said.contains("is ready again"), "{said}");
    // A second click changes nothing.
    until("it has failed again", || db.rows("failed_executions") == 5);
    let (_, said) = act("retried", "retry", "");
    assert!(said.contains("has not failed"), "{said}");
    let (_, said) = act("later", "run", "");
    assert!(said.contains("is ready now"), "{said}");
    until("it has run", || {
        status(db, world.job("later")) == Some(TaskStatus::Succeeded)
    });
    let (_, said) = act(
        "paused",
        "change",
        "was=webhooks&ranked=0&queue=media&priority=-7",
    );
    assert!(said.contains("was moved to the queue media"), "{said}");
    assert!(said.contains("has the priority -7"), "{said}");
    let page = read(&server, &path("paused"));
    assert!(page.contains("Queue, priority media , -7"), "{page}");
    let (_, said) = act(
        "paused",
        "change",
        "was=media&ranked=-7&queue=media&priority=-7",
    );
    assert!(said.contains("are the same"), "{said}");
    assert_eq!(
        post(
            &server,
            &format!("{}/change", path("paused")),
            "was=a&ranked=0&queue=a&priority=high"
        )
        .status,
        400
    );
    let ask = read(&server, &format!("{}/cancel", path("elsewhere")));
    assert!(
        ask.contains("Cancel sync_account") && ask.contains("It will not run."),
        "{ask}"
    );
    let (_, said) = act("elsewhere", "cancel", "reason=asked+twice");
    assert!(said.contains("was cancelled"), "{said}");
    assert_eq!(
        status(db, world.job("elsewhere")),
        Some(TaskStatus::Cancelled)
    );
    let ask = read(&server, &format!("{}/cancel", path("running")));
    assert!(ask.contains("Its process is asked to stop it."), "{ask}");
    let (_, said) = act("running", "cancel", "");
    assert!(said.contains("was asked to stop it"), "{said}");
    let page = read(&server, &path("running"));
    assert!(
        page.contains("Cancel: its cancellation was requested already."),
        "{page}"
    );
    let ask = read(&server, &format!("{}/discard", path("unknown")));
    assert!(ask.contains("This cannot be undone."), "{ask}");
    let (to, said) = act("unknown", "discard", "");
    assert_eq!(to, "/jobs");
    assert!(said.contains("was discarded"), "{said}");
    assert_eq!(status(db, world.job("unknown")), None);
    let (_, said) = act("unique", "discard", "");
    assert!(said.contains("a process runs the job"), "{said}");
    // Each of them is a row of the audit, with its actor and reason.
    let audit = read(&server, "/audit");
    for part in [
        "jobs.retry job",
        "jobs.cancel job",
        "asked twice",
        "jobs.discard job",
        "jobs.move job",
        "jobs.priority job",
        "jobs.reschedule job",
        "page from 127.0.0.1",
    ] {
        assert!(audit.contains(part), "{part} in {audit}");
    }
}

fn what_is_not_possible_says_why(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    let page = |name: &str| read(&server, &format!("/jobs/{}", world.job(name)));
    for (name, part) in [
        ("finished", "It has ended."),
        ("limited", "Run now: it waits for no time."),
        ("limited", "Retry: it has not failed."),
        ("running", "Discard, Change, Run now: a process runs it."),
        ("failed", "Cancel, Change, Run now: it has failed."),
    ] {
        let page = page(name);
        assert!(page.contains(part), "{name}: {part} in {page}");
    }
    let ask = get(&server, &format!("/jobs/{}/discard", world.job("running"))).expect(200);
    assert!(ask.contains("<button disabled"), "{ask}");
}

fn a_job_that_runs_at_most_once_is_retried_only_when_asked(db: &TestDb) {
    let world = world(db);
    let server = serve(&db.database);
    let job = world.job("once");
    let page = get(&server, &format!("/jobs/{job}")).expect(200);
    assert!(
        page.contains(&format!(
            "<a class=\"b\" href=\"/jobs/{job}/retry\">Retry…</a>"
        )),
        "{page}"
    );
    let path = format!("/jobs/{job}/retry");
    assert_eq!(sent(&server, &path, ""), path, "it asks");
    assert_eq!(status(db, job), Some(TaskStatus::Failed));
    let ask = get(&server, &path).expect(200);
    assert!(
        ask.contains("may have done all or part of its work"),
        "{ask}"
    );
    assert_eq!(
        sent(&server, &path, &super::hidden(&ask)),
        format!("/jobs/{job}")
    );
    until("it has run again", || db.rows("failed_executions") == 5);
}
