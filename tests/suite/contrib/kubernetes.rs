//! The manifests of Kubernetes: that they fit each other, and that the scaler counts the backlog.

use super::{STOP, container, documents, read, text, texts};
use crate::support::TestDb;
use crate::support::db::{count, execute, try_execute};
use crate::support::program::windlass;
use serde_json::Value;
use std::time::Duration;
use windlass::NewJob;

fn manifests() -> Vec<Value> {
    let list = &documents("kubernetes/kustomization.yaml")[0];
    let files = texts(&list["resources"]);
    files
        .iter()
        .flat_map(|file| documents(&format!("kubernetes/{file}")))
        .collect()
}

fn deployment<'m>(manifests: &'m [Value], name: &Value) -> &'m Value {
    let is = |one: &&Value| one["kind"] == "Deployment" && &one["metadata"]["name"] == name;
    manifests
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn they_fit_each_other() {
    let all = manifests();
    for one in &all {
        let (spec, name) = (&one["spec"], &one["metadata"]["name"]);
        let labels = || &deployment(&all, name)["spec"]["template"]["metadata"]["labels"];
        match text(&one["kind"]) {
            "Deployment" => {
                assert_eq!(&spec["selector"]["matchLabels"], labels());
                let grace = &spec["template"]["spec"]["terminationGracePeriodSeconds"];
                assert!(
                    name == "windlass-web" || grace.as_u64() > Some(STOP),
                    "{name}"
                );
            }
            "PodDisruptionBudget" => assert_eq!(&spec["selector"]["matchLabels"], labels()),
            "Service" => {
                assert_eq!(&spec["selector"], labels());
                let port = &container(deployment(&all, name))["ports"][0]["name"];
                assert_eq!(&spec["ports"][0]["targetPort"], port);
            }
            _ => assert_eq!(name, "windlass-migrate"),
        }
    }
}

/// They are programs of the user, of which `metrics::listen` has the probes.
#[test]
fn workers_have_the_probes_of_supervisors_and_as_many_threads_as_the_scaler_counts() {
    let (all, scaled) = (manifests(), scaled());
    let worker = container(deployment(&all, &scaled["spec"]["scaleTargetRef"]["name"]));
    let supervisor = container(deployment(&all, &Value::from("windlass-supervisor")));
    for key in ["startupProbe", "readinessProbe", "livenessProbe", "ports"] {
        assert_eq!(worker[key], supervisor[key], "{key}");
    }
    let threads = &scaled["spec"]["triggers"][0]["metadata"]["targetQueryValue"];
    assert_eq!(worker["env"][0]["name"], "WINDLASS_WORKERS_THREADS");
    assert_eq!(&worker["env"][0]["value"], threads);
    assert_eq!(worker["env"][1]["value"], supervisor["args"][2]);
}

fn scaled() -> Value {
    let [credentials, scaled] = documents("kubernetes/keda.yaml").try_into().unwrap();
    let trigger = &scaled["spec"]["triggers"][0];
    assert_eq!(trigger["type"], "postgresql");
    assert_eq!(
        trigger["authenticationRef"]["name"],
        credentials["metadata"]["name"]
    );
    assert_eq!(
        credentials["spec"]["secretTargetRef"][0]["parameter"],
        "connection"
    );
    scaled
}

#[test]
fn the_scaler_counts_what_workers_may_start_and_what_runs() {
    let db = TestDb::postgres();
    let query = scaled()["spec"]["triggers"][0]["metadata"]["query"].clone();
    let query = format!("SELECT ({}) AS n", text(&query));
    let backlog = || db.count(&query);
    let enqueue = |class: &str, queue: &str, delay: u64| {
        let job = NewJob::of_class(class, "{}")
            .queue(queue)
            .after(Duration::from_secs(delay));
        job.enqueue(&mut db.connection()).unwrap();
    };
    assert_eq!(backlog(), 0);
    for queue in ["default", "default", "default", "held"] {
        enqueue("mail", queue, 0);
    }
    enqueue("report", "default", 0);
    enqueue("mail", "default", 60);
    assert_eq!(backlog(), 5);
    for pause in [["queues", "pause", "held"], ["classes", "pause", "report"]] {
        let said = windlass(&db.url, &[&pause[..], &["--reason", "test"]].concat());
        assert!(said.is_done(), "{said:?}");
    }
    assert_eq!(backlog(), 3);
    db.execute(
        "WITH one AS (DELETE FROM solid_queue_ready_executions WHERE id = (SELECT min(id) FROM \
         solid_queue_ready_executions) RETURNING job_id) \
         INSERT INTO solid_queue_claimed_executions (job_id, created_at) SELECT job_id, now() FROM one",
    );
    assert_eq!((db.rows("claimed_executions"), backlog()), (1, 3));
    its_role_sees_no_more(&db, &query);
}

/// The role and the rights that the file describes.
fn its_role_sees_no_more(db: &TestDb, query: &str) {
    let role = format!("scaler_{:016x}", fastrand::u64(..));
    let file = read("kubernetes/keda.yaml")
        .replace("\n#", "")
        .replace("windlass_scaler", &role);
    let (_, grant) = file.split_once("GRANT SELECT").unwrap();
    let (grant, _) = grant.split_once(';').unwrap();
    db.execute(&format!("CREATE ROLE {role}"));
    db.execute(&format!("GRANT SELECT {grant}"));
    let mut conn = db.connect();
    execute(&mut conn, &format!("SET ROLE {role}"));
    assert_eq!(count(&mut conn, query), 3);
    try_execute(&mut conn, "SELECT arguments FROM solid_queue_jobs").unwrap_err();
    execute(&mut conn, "RESET ROLE");
    execute(&mut conn, &format!("DROP OWNED BY {role}"));
    execute(&mut conn, &format!("DROP ROLE {role}"));
}
