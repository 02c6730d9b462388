//! The exported spans, word for word.

use super::exported::{in_a_span, in_words, of_queue, queue, the};
use crate::on_each_database;
use crate::support::TestDb;
use std::time::Duration;
use windlass::policies::PropagationStyle;
use windlass::testing::{drain, travel};
use windlass::{Function, JobError, Policy, Registry};

on_each_database!(every_outcome, a_batch);

const ACT: Function<String> = Function::new("traced_act").policy(|| Policy::new().max_attempts(2));

fn act(name: &str, attempt: u32) -> Result<(), JobError> {
    match name {
        "fails" => Err("no stamp".into()),
        "panics" => panic!("oh"),
        "discards" => Err(JobError::from("gone").discard()),
        "snoozes" => Err(JobError::snooze(Duration::from_secs(60))),
        "retries" if attempt == 1 => Err("not yet".into()),
        _ => Ok(()),
    }
}

fn assert_golden(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn every_outcome(db: &TestDb) {
    let registry = Registry::new().function(ACT, |name: String, cx| act(&name, cx.attempt()));
    let mut conn = db.connect();
    let mut text = String::new();
    for name in [
        "finishes",
        "is_a_child",
        "retries",
        "fails",
        "panics",
        "discards",
        "snoozes",
    ] {
        let queue = queue(name);
        let mut job = ACT.job(&name.to_owned()).unwrap().queue(&queue);
        match name {
            "is_a_child" => {
                job = job.policy(Policy::new().propagation_style(PropagationStyle::Child));
            }
            "panics" => job = job.policy(Policy::new().max_attempts(1)),
            _ => {}
        }
        let parent = format!("traced request {queue}");
        in_a_span(&parent, || job.enqueue(&mut conn).unwrap());
        for _ in 0..2 {
            let _ = drain(&mut conn, &registry).unwrap();
            travel(&mut conn, Duration::from_secs(3_600)).unwrap();
            if name == "snoozes" {
                break;
            }
        }
        let mut spans = vec![the(&parent)];
        spans.extend(
            of_queue(&queue)
                .into_iter()
                .filter(|span| span.name != parent),
        );
        text += &format!("# {name}\n{}\n", in_words(&spans, &queue));
    }
    assert_golden("outcomes", &text);
}

fn a_batch(db: &TestDb) {
    let registry = Registry::new().function(ACT, |_, _| Ok(()));
    let queue = queue("batch");
    let mut conn = db.connect();
    let jobs: Vec<_> = (0..3)
        .map(|number| ACT.job(&number.to_string()).unwrap().queue(&queue))
        .collect();
    windlass::enqueue_all(&mut conn, jobs).unwrap();
    drain(&mut conn, &registry).unwrap().assert_all_finished(3);
    assert_golden("batch", &in_words(&of_queue(&queue), &queue));
}
