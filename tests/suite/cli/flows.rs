//! `windlass flows show`, and the graph that it shows.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;
use windlass::flows::{FlowGraph, On};
use windlass::{Batch, Error, Flow, JobId, NewJob, enqueue_all};

on_each_database!(
    a_flow_is_shown,
    a_flow_is_the_same_from_everywhere,
    a_large_flow_is_cut,
);

fn job(class: &str) -> NewJob {
    NewJob::of_class(class, "{}")
}

/// Returns the ids of two batches, one in the other, and of four jobs.
fn enqueued(db: &TestDb) -> (Vec<i64>, Vec<JobId>) {
    let inner = Batch::new("inner").add([job("part")]);
    let outer = Batch::new("files").add([job("part")]).add_batch(inner);
    let flow = Flow::new()
        .batch("fi\"les", outer)
        .unwrap()
        .job("merge", job("merge"))
        .unwrap()
        .job("web", job("publish"))
        .unwrap()
        .job("print", job("publish"))
        .unwrap()
        .job("tell", job("tell").when(On::Finish))
        .unwrap()
        .after("merge", ["fi\"les"])
        .unwrap()
        .after("web", ["merge"])
        .unwrap()
        .after("print", ["merge"])
        .unwrap()
        .after("tell", ["web", "print"])
        .unwrap();
    flow.enqueue(&mut db.connection()).unwrap();
    let ids = |query: &str| -> Vec<i64> {
        let ids = db.texts(&format!("SELECT CAST(id AS text) AS t {query} ORDER BY id"));
        ids.iter().map(|id| id.parse().unwrap()).collect()
    };
    let jobs = ["merge", "publish", "tell"].map(|class| {
        ids(&format!(
            "FROM solid_queue_jobs WHERE class_name = '{class}'"
        ))
    });
    let jobs = jobs.concat().into_iter().map(JobId).collect();
    (ids("FROM solid_queue_batches"), jobs)
}

fn a_flow_is_shown(db: &TestDb) {
    let (batches, jobs) = enqueued(db);
    let ([outer, inner], [merge, web, print, tell]) = (&batches[..], &jobs[..]) else {
        panic!("{batches:?} {jobs:?}")
    };
    let shown = |format: &str| {
        let said = windlass(
            &db.url,
            &["flows", "show", &merge.to_string(), "--format", format],
        );
        assert!(said.is_done(), "{said:?}");
        said.out
    };
    assert_eq!(
        shown("tree"),
        format!(
            "batch {inner} inner: open, 1 jobs are open\n\
             └─ in: batch {outer} files: open, 2 jobs are open\n   \
             └─ success, fi\\\"les: job {merge} merge: waits\n      \
             ├─ success, merge: job {web} publish: waits\n      \
             │  └─ finish, web: job {tell} tell: waits\n      \
             └─ success, merge: job {print} publish: waits\n         \
             └─ finish, print: job {tell} tell: waits (above)\n"
        )
    );
    let dot = shown("dot");
    let first = format!(
        "digraph flow {{\n  node [shape=box];\n  batch{outer} [label=\"batch {outer} files: open"
    );
    assert!(dot.starts_with(&first), "{dot}");
    let named = r#"[label="success, fi\\\"les"];"#;
    assert!(dot.contains(named), "{named} in {dot}");
    assert!(
        dot.contains(&format!(
            "  job{web} -> job{tell} [label=\"finish, web\"];\n"
        )),
        "{dot}"
    );
    let mermaid = shown("mermaid");
    assert!(mermaid.starts_with("flowchart TD\n"), "{mermaid}");
    let named = format!("  batch{outer} -->|\"success, fi#92;#34;les\"| job{merge}\n");
    assert!(mermaid.contains(&named), "{named} in {mermaid}");
    assert!(
        mermaid.contains(&format!("  job{web} -->|\"finish, web\"| job{tell}\n")),
        "{mermaid}"
    );
    let said = windlass(
        &db.url,
        &["flows", "show", "--batch", &inner.to_string(), "--json"],
    )
    .json();
    assert_eq!(said["nodes"].as_array().unwrap().len(), 6);
    assert_eq!(said["edges"].as_array().unwrap().len(), 6);
    assert_eq!(said["is_cut"], false);
    let said = windlass(&db.url, &["flows", "show", "4711"]);
    assert!(!said.is_done() && said.err.contains("4711"), "{said:?}");
}

fn a_flow_is_the_same_from_everywhere(db: &TestDb) {
    let (batches, jobs) = enqueued(db);
    let mut conn = db.connect();
    let graph = FlowGraph::around(&mut conn, jobs[0]).unwrap();
    for job in &jobs {
        assert_eq!(FlowGraph::around(&mut conn, *job).unwrap(), graph);
    }
    for batch in batches {
        assert_eq!(
            FlowGraph::around(&mut conn, windlass::BatchId(batch)).unwrap(),
            graph
        );
    }
    let unknown = FlowGraph::around(&mut conn, windlass::BatchId(99));
    assert!(
        matches!(unknown, Err(Error::NoSuchBatch { id: 99 })),
        "{unknown:?}"
    );
    let alone = job("alone").enqueue(&mut conn).unwrap().id;
    let graph = FlowGraph::around(&mut conn, alone).unwrap();
    assert_eq!(graph.tree(), format!("job {alone} alone: waits\n"));
}

fn a_large_flow_is_cut(db: &TestDb) {
    let mut conn = db.connect();
    let parent = job("parent").enqueue(&mut conn).unwrap().id;
    enqueue_all(&mut conn, (0..600).map(|_| job("child").after(parent))).unwrap();
    let graph = FlowGraph::around(&mut conn, parent).unwrap();
    assert_eq!(
        (graph.nodes.len(), graph.edges.len(), graph.is_cut),
        (200, 199, true)
    );
    assert!(
        graph
            .tree()
            .ends_with("There is more: ask for a job that is not shown.\n")
    );
}
