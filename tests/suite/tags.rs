//! Tags and metadata of jobs.

use crate::on_each_database;
use crate::support::TestDb;
use serde::{Deserialize, Serialize};
use serde_json::json;
use windlass::jobs::{self, JobState, Jobs};
use windlass::testing::{self, RunOutcome};
use windlass::{
    Context, Error, Job, JobId, JobResult, NewJob, OnConflict, Policy, RecurringTask, Registry,
    enqueue_all,
};

on_each_database!(
    a_job_carries_its_tags_and_metadata,
    tags_are_compared_exactly,
    tags_select_with_all_other_filters,
    tags_are_added_and_removed,
    any_policy_of_other_programs_is_passed_over,
    a_job_of_a_recurring_task_has_its_tags,
    what_is_too_much_is_refused,
);

/// Returns its tags, and its metadata `a`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Carrier;

impl Job for Carrier {
    const NAME: &'static str = "carrier";
    const MAX_ARGUMENTS: usize = 500;
    type State = ();
    type Output = serde_json::Value;

    fn policy() -> Policy {
        Policy::new().tag("of the type").meta("from", "type")
    }

    fn perform(self, cx: &Context<'_, ()>) -> JobResult<serde_json::Value> {
        Ok(json!([cx.tags(), cx.meta("a"), cx.meta("from")]))
    }
}

fn registry() -> Registry {
    let policy = Policy::new().tag("of the program");
    Registry::new().register::<Carrier>(()).defaults(policy)
}

fn tagged(db: &TestDb, tags: &[&str]) -> JobId {
    let job = NewJob::of_class("a", "{}").tags(tags.iter().copied());
    job.enqueue(&mut db.connection()).unwrap().id
}

fn ids(db: &TestDb, jobs: Jobs) -> Vec<i64> {
    let mut jobs: Vec<i64> = jobs
        .list(&mut db.connection())
        .unwrap()
        .iter()
        .map(|job| job.job_id)
        .collect();
    jobs.sort_unstable();
    jobs
}

fn a_job_carries_its_tags_and_metadata(db: &TestDb) {
    let conn = &mut db.connection();
    let job = NewJob::new(&Carrier)
        .unwrap()
        .tags(["b", "a", "b"])
        .meta("a", json!({"x": [1, 2.5, "ä"]}))
        .policy(Policy::new().tag("c").max_attempts(2));
    let job = job.enqueue(conn).unwrap().id;
    let seen = testing::assert_enqueued::<Carrier>(conn);
    assert_eq!(seen.tags, ["c", "of the type", "b", "a"]);
    assert_eq!(seen.meta["from"], "type");
    let shown = jobs::find(conn, job).unwrap().unwrap();
    assert_eq!(shown.explanation.task.tags, seen.tags);
    assert_eq!(seen.meta["a"]["x"][2], "ä");
    // No worker has stored yet which fields are secret.
    assert_eq!(shown.meta["a"], "[hidden]");
    assert_eq!(shown.arguments_version, Some(1));
    testing::drain(conn, &registry())
        .unwrap()
        .assert_all_finished(1);
    let info = jobs::status(conn, job).unwrap().unwrap();
    let expected = json!([
        ["c", "of the type", "b", "a"],
        {"x": [1, 2.5, "ä"]},
        "type"
    ]);
    assert_eq!(info.result, Some(expected));
    assert_eq!(info.tags.len(), 4);
    // A job without any stores nothing.
    tagged(db, &[]);
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE policy IS NULL"),
        1
    );
}

fn tags_are_compared_exactly(db: &TestDb) {
    let strange = [
        "a",
        "ab",
        "A",
        "%",
        "a%",
        "_",
        "\"",
        "\\",
        "\\\"",
        "ä",
        "a\u{308}",
        "a,b",
        "[\"a\"]",
        "'",
        " a",
        "\u{1f600}",
        "{now}",
        "$5",
        "tags\":[",
        "null",
        "1",
    ];
    for tag in strange {
        tagged(db, &[tag]);
    }
    // Text that only looks like a tag is not a tag.
    let meta = NewJob::of_class("a", "{}").meta("tags", json!(["a"]));
    let meta = meta.meta("extras", json!({"tags": ["a"]}));
    meta.enqueue(&mut db.connection()).unwrap();
    for (index, tag) in strange.into_iter().enumerate() {
        let id = index as i64 + 1;
        assert_eq!(ids(db, Jobs::waiting().tagged([tag])), [id], "{tag}");
        assert_eq!(ids(db, Jobs::waiting().tagged_any([tag])), [id], "{tag}");
    }
}

fn tags_select_with_all_other_filters(db: &TestDb) {
    tagged(db, &["a"]);
    tagged(db, &["a", "b"]);
    tagged(db, &["b", "c", "a"]);
    tagged(db, &[]);
    let waiting = Jobs::waiting;
    assert_eq!(ids(db, waiting().tagged(["a", "b"])), [2, 3]);
    assert_eq!(ids(db, waiting().tagged(["a", "a", "c"])), [3]);
    assert_eq!(ids(db, waiting().tagged_any(["c", "b"])), [2, 3]);
    assert_eq!(ids(db, waiting().tagged(["b"]).tagged_any(["c", "d"])), [3]);
    assert_eq!(ids(db, waiting().tagged(["d"])), [0; 0]);
    assert_eq!(ids(db, waiting().tagged([""; 0])).len(), 4);
    assert_eq!(ids(db, waiting().tagged_any([""; 0])), [0; 0]);
    assert_eq!(ids(db, waiting().tagged(["a"]).class("b")), [0; 0]);
    let conn = &mut db.connection();
    assert_eq!(waiting().tagged(["a"]).count(conn).unwrap(), 3);
    let priority = jobs::Change::Priority(7);
    let changed = waiting().tagged(["b"]).change(conn, priority).unwrap();
    assert_eq!(changed.changed, 2);
    let cancelled = waiting().tagged_any(["c"]);
    let cancelled = cancelled.change(conn, jobs::Change::Cancel).unwrap();
    assert_eq!(cancelled.changed, 1);
    let ended = Jobs::in_state(JobState::Cancelled).tagged(["c", "b"]);
    assert_eq!(ids(db, ended), [3]);
}

fn tags_are_added_and_removed(db: &TestDb) {
    let conn = &mut db.connection();
    let plain = tagged(db, &[]);
    let other = NewJob::of_class("a", "{}")
        .tag("x")
        .meta("m", 1.25)
        .policy(Policy::new().keep_finished(false))
        .enqueue(conn)
        .unwrap()
        .id;
    let all = Jobs::unfinished();
    let done = all.tag(conn, "x").unwrap();
    assert_eq!((done.changed, done.passed_over), (1, 1));
    assert_eq!(ids(db, Jobs::waiting().tagged(["x"])), [plain.0, other.0]);
    assert_eq!(all.tag(conn, "y").unwrap().changed, 2);
    assert_eq!(all.untag(conn, "none").unwrap().passed_over, 2);
    assert_eq!(all.untag(conn, "x").unwrap().changed, 2);
    assert_eq!(all.untag(conn, "y").unwrap().changed, 2);
    let policies = db.texts("SELECT coalesce(policy, '-') AS t FROM solid_queue_jobs ORDER BY id");
    let kept: serde_json::Value = serde_json::from_str(&policies[1]).unwrap();
    assert_eq!(policies[0], "-");
    assert_eq!(
        kept,
        json!({"keep_finished": false, "extras": {"meta": {"m": 1.25}}})
    );
    assert!(all.tag(conn, "").is_err() && all.tag(conn, "a\0b").is_err());
    // A job that is replaced has the tags of the new one.
    let unique = |tag: &str| {
        NewJob::of_class("a", "{}")
            .unique_id("u")
            .tag(tag)
            .policy(Policy::new().on_conflict(OnConflict::Replace))
    };
    let first = unique("old").enqueue(conn).unwrap().id;
    assert_eq!(unique("new").enqueue(conn).unwrap().id, first);
    assert_eq!(jobs::status(conn, first).unwrap().unwrap().tags, ["new"]);
}

fn any_policy_of_other_programs_is_passed_over(db: &TestDb) {
    let texts = [
        "no json",
        "",
        "null",
        "[]",
        "\"tags\":[",
        "{\"extras\":null}",
        "{\"extras\":{\"tags\":null,\"meta\":{}}}",
        "{\"other\":{\"tags\":[\"a\"]}}",
    ];
    // On Postgres, no other program writes such a text.
    let texts = texts
        .iter()
        .filter(|text| !db.is_postgres() || **text != "\"tags\":[");
    for text in texts {
        let job = tagged(db, &[]);
        db.execute(&format!(
            "UPDATE solid_queue_jobs SET policy = '{text}' WHERE id = {}",
            job.0
        ));
    }
    let last = tagged(db, &["a"]);
    assert_eq!(ids(db, Jobs::waiting().tagged(["a"])), [last.0]);
    let summaries = Jobs::waiting().list(&mut db.connection()).unwrap();
    assert!(
        summaries[..summaries.len() - 1]
            .iter()
            .all(|job| job.tags.is_empty())
    );
    let done = Jobs::waiting().tag(&mut db.connection(), "b").unwrap();
    assert!(done.changed >= 3, "{done:?}");
}

fn a_job_of_a_recurring_task_has_its_tags(db: &TestDb) {
    let conn = &mut db.connection();
    let task = RecurringTask::new("t", "@yearly", &Carrier)
        .unwrap()
        .policy(Policy::new().tag("nightly"));
    windlass::recurring::schedule(conn, &task).unwrap();
    let job = windlass::recurring::run_now(conn, "t").unwrap();
    let info = jobs::status(conn, job).unwrap().unwrap();
    assert_eq!(info.tags, ["nightly", "of the type"]);
    let drained = testing::drain(conn, &registry()).unwrap();
    assert_eq!(drained.runs[0].outcome, RunOutcome::Finished);
}

fn what_is_too_much_is_refused(db: &TestDb) {
    let job = || NewJob::of_class("a", "{}");
    let deep = (0..130).fold(json!(1), |inner, _| json!([inner]));
    let refused = [
        (job().tag(""), "1 to 100 bytes"),
        (job().tag("x".repeat(101)), "1 to 100 bytes"),
        (job().tag("a\0"), "no NUL"),
        (job().tags((0..33).map(|n| n.to_string())), "33 tags"),
        (job().meta("", 1), "1 to 100 bytes"),
        (job().meta("a", "x\0y"), "NUL"),
        (job().meta("a", deep), "nested deeper"),
        (job().meta("a", "x".repeat(70_000)), "metadata take 700"),
        (
            NewJob::new(&Carrier).unwrap().meta("a", "x".repeat(450)),
            "more than the 500",
        ),
    ];
    for (job, part) in refused {
        let both = [job.clone(), NewJob::of_class("a", "{}")];
        let error = job.enqueue(&mut db.connection()).unwrap_err();
        assert!(matches!(error, Error::InvalidJob { .. }), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(enqueue_all(&mut db.connection(), both).is_err());
    }
    assert_eq!(db.rows("jobs"), 0);
}
