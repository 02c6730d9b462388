//! Spans with the feature `otel`: links, parents, and what else is active.

use super::exported::{UNSAMPLED, attribute, header, in_a_span, of_queue, queue};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Log, Wait};
use crate::support::wait::{eventually, until};
use opentelemetry::Context as TraceContext;
use opentelemetry::trace::{SpanId, SpanKind, Status, TraceContextExt};
use opentelemetry_sdk::trace::SpanData;
use std::sync::Arc;
use std::time::Duration;
use windlass::hooks::Subscriber;
use windlass::policies::{OnTimeout, PropagationStyle};
use windlass::testing::{drain, travel};
use windlass::{Function, JobError, NewJob, Policy, Registry, Worker, enqueue_all};

on_each_database!(
    a_run_is_linked_to_its_enqueue,
    every_attempt_is_linked,
    a_child_is_in_the_trace_of_the_enqueue,
    only_the_first_run_of_a_job_that_is_due_at_once_is_a_child,
    every_job_of_a_batch_is_linked_to_one_span,
    jobs_that_a_job_enqueues_are_linked_to_its_run,
    a_worker_makes_the_same_spans,
    a_timeout_is_an_error,
    a_run_that_is_ended_by_force_has_a_span,
    a_trace_that_is_not_sampled_is_carried_as_such,
    a_failed_enqueue_is_an_error,
    a_given_context_is_kept,
    messages_that_are_not_logged_are_not_exported,
    a_provider_that_panics_affects_no_job,
    what_a_job_leaves_active_is_not_active_in_the_next,
    a_job_left_to_others_has_no_span,
);

const ACT: Function<String> = Function::new("traced_act");

/// Returns the spans of runs in a queue.
fn runs(queue: &str) -> Vec<SpanData> {
    of_kind(queue, SpanKind::Consumer)
}

fn sends(queue: &str) -> Vec<SpanData> {
    of_kind(queue, SpanKind::Producer)
}

fn of_kind(queue: &str, kind: SpanKind) -> Vec<SpanData> {
    let spans = of_queue(queue).into_iter();
    spans.filter(|span| span.span_kind == kind).collect()
}

/// Returns the ids of the spans that a span is linked to.
fn linked(span: &SpanData) -> Vec<SpanId> {
    let links = span.links.links.iter();
    links.map(|link| link.span_context.span_id()).collect()
}

fn id(span: &SpanData) -> SpanId {
    span.span_context.span_id()
}

fn stored(db: &TestDb, queue: &str) -> Vec<String> {
    db.texts(&format!(
        "SELECT coalesce(traceparent, 'none') AS t FROM solid_queue_jobs WHERE queue_name = '{queue}' ORDER BY id"
    ))
}

fn job(queue: &str) -> NewJob {
    ACT.job(&"a".to_owned()).unwrap().queue(queue)
}

fn idle() -> Registry {
    Registry::new().function(ACT, |_, _| Ok(()))
}

fn a_run_is_linked_to_its_enqueue(db: &TestDb) {
    let queue = queue("linked");
    let mut conn = db.connect();
    let request = format!("traced request of {queue}");
    let (handler, _) = in_a_span(&request, || job(&queue).enqueue(&mut conn).unwrap());
    drain(&mut conn, &idle()).unwrap().assert_all_finished(1);
    let (send, run) = (&sends(&queue)[0], &runs(&queue)[0]);
    assert_eq!(send.parent_span_id, handler.span_id());
    assert_eq!(stored(db, &queue), [header(&send.span_context)]);
    assert_eq!(
        (run.parent_span_id, linked(run)),
        (SpanId::INVALID, vec![id(send)])
    );
    assert_ne!(run.span_context.trace_id(), send.span_context.trace_id());
    assert_eq!(run.status, Status::Unset);
    assert!(run.start_time >= send.start_time);
}

fn every_attempt_is_linked(db: &TestDb) {
    let queue = queue("attempts");
    let registry = Registry::new().function(ACT, |_, cx| match cx.attempt() {
        1 => panic!("oh"),
        2 => Err("no".into()),
        _ => Ok(()),
    });
    let mut conn = db.connect();
    let policy = Policy::new().max_attempts(3);
    job(&queue).policy(policy).enqueue(&mut conn).unwrap();
    for _ in 0..3 {
        let _ = drain(&mut conn, &registry).unwrap();
        travel(&mut conn, Duration::from_secs(3_600)).unwrap();
    }
    let (send, runs) = (&sends(&queue)[0], runs(&queue));
    assert_eq!(runs.len(), 3);
    for (run, kind) in runs.iter().zip([Some("panic"), Some("error"), None]) {
        assert_eq!(linked(run), [id(send)]);
        assert_eq!(attribute(run, "error.type").as_deref(), kind);
    }
    let attempt = |run| attribute(run, "windlass.job.attempt").unwrap();
    assert_eq!(
        runs.iter().map(attempt).collect::<Vec<_>>(),
        ["1", "2", "3"]
    );
}

fn a_child_is_in_the_trace_of_the_enqueue(db: &TestDb) {
    let queue = queue("child");
    let mut conn = db.connect();
    let policy = Policy::new().propagation_style(PropagationStyle::Child);
    job(&queue).policy(policy).enqueue(&mut conn).unwrap();
    drain(&mut conn, &idle()).unwrap().assert_all_finished(1);
    let (send, run) = (&sends(&queue)[0], &runs(&queue)[0]);
    assert_eq!((run.parent_span_id, linked(run)), (id(send), vec![]));
    assert_eq!(run.span_context.trace_id(), send.span_context.trace_id());
}

fn only_the_first_run_of_a_job_that_is_due_at_once_is_a_child(db: &TestDb) {
    let (retried, snoozed) = (queue("child-retried"), queue("child-snoozed"));
    let later = queue("child-later");
    let function = ACT.policy(|| {
        Policy::new()
            .max_attempts(2)
            .propagation_style(PropagationStyle::Child)
    });
    let runs_of = |queue: &str| runs(queue).len();
    let registry = Registry::new().function(function, move |_, cx| match cx.attempt() {
        1 if cx.queue_name().contains("snoozed") && runs_of(cx.queue_name()) == 0 => {
            Err(JobError::snooze(Duration::from_secs(60)))
        }
        1 if cx.queue_name().contains("retried") => Err("no".into()),
        _ => Ok(()),
    });
    let mut conn = db.connect();
    for queue in [&retried, &snoozed] {
        function
            .job(&"a".to_owned())
            .unwrap()
            .queue(queue)
            .enqueue(&mut conn)
            .unwrap();
    }
    let after = Duration::from_secs(60);
    let job = function.job(&"a".to_owned()).unwrap().queue(&later);
    job.after(after).enqueue(&mut conn).unwrap();
    for _ in 0..3 {
        let _ = drain(&mut conn, &registry).unwrap();
        travel(&mut conn, Duration::from_secs(3_600)).unwrap();
    }
    for queue in [&retried, &snoozed] {
        let send = id(&sends(queue)[0]);
        let runs = runs(queue);
        let parents: Vec<SpanId> = runs.iter().map(|run| run.parent_span_id).collect();
        assert_eq!(parents, [send, SpanId::INVALID], "{queue}");
        assert_eq!(linked(&runs[1]), [send]);
    }
    let [run] = &runs(&later)[..] else {
        panic!("{:?}", runs(&later))
    };
    let send = id(&sends(&later)[0]);
    assert_eq!(
        (run.parent_span_id, linked(run)),
        (SpanId::INVALID, vec![send])
    );
}

fn every_job_of_a_batch_is_linked_to_one_span(db: &TestDb) {
    let mut conn = db.connect();
    type Kind = (&'static str, fn(NewJob, usize) -> NewJob);
    let kinds: [Kind; 4] = [
        ("alike", |job, _| job),
        ("mixed", |job, number| job.priority(number as i32)),
        ("unique", |job, number| job.unique_id(number.to_string())),
        ("keyed", |job, number| {
            job.idempotency_key(format!("traced {number}"))
                .priority(number as i32)
        }),
    ];
    for (name, kind) in kinds {
        let queue = queue(name);
        let jobs: Vec<NewJob> = (0..20).map(|number| kind(job(&queue), number)).collect();
        enqueue_all(&mut conn, jobs).unwrap();
        drain(&mut conn, &idle()).unwrap().assert_all_finished(20);
        let [send] = &sends(&queue)[..] else {
            panic!("{:?}", sends(&queue))
        };
        let count = attribute(send, "messaging.batch.message_count");
        assert_eq!(count.as_deref(), Some("20"));
        assert_eq!(
            stored(db, &queue),
            vec![header(&send.span_context); 20],
            "{name}"
        );
        let runs = runs(&queue);
        assert_eq!(runs.len(), 20);
        assert!(runs.iter().all(|run| linked(run) == [id(send)]));
    }
    let before = of_queue("send").len();
    enqueue_all(&mut conn, []).unwrap();
    assert_eq!(of_queue("send").len(), before, "no job, no span");
}

fn jobs_that_a_job_enqueues_are_linked_to_its_run(db: &TestDb) {
    let (first, second) = (queue("first"), queue("second"));
    let next = second.clone();
    let registry = Registry::new().function(ACT, move |name: String, cx| {
        if name == "a" {
            let more = ACT.job(&"b".to_owned())?.queue(&next);
            more.enqueue(&mut cx.connection()?)?;
        }
        Ok(())
    });
    job(&first).enqueue(&mut db.connection()).unwrap();
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    // Another thread may end the second job before the first has returned.
    let run = eventually("the first has a span", || runs(&first).pop());
    let next = eventually("the second has a span", || runs(&second).pop());
    let send = &sends(&second)[0];
    assert_eq!(send.parent_span_id, id(&run));
    assert_eq!(send.span_context.trace_id(), run.span_context.trace_id());
    assert_eq!(linked(&next), [id(send)]);
}

fn a_worker_makes_the_same_spans(db: &TestDb) {
    let queue = queue("worker");
    let mut conn = db.connect();
    let jobs: Vec<NewJob> = (0..50).map(|_| job(&queue)).collect();
    enqueue_all(&mut conn, jobs).unwrap();
    let seen = Arc::new(Log::default());
    let log = Arc::clone(&seen);
    let registry = Registry::new().function(ACT, move |_, cx| {
        let active = TraceContext::map_current(|cx| header(cx.span().span_context()));
        log.add(active);
        log.add(cx.traceparent().unwrap());
        Ok(())
    });
    let worker = Worker::new(&db.database, registry).threads(4);
    let _worker = worker.start().unwrap();
    until("all jobs have a span", || runs(&queue).len() == 50);
    let stored = header(&sends(&queue)[0].span_context);
    assert_eq!(
        seen.lines().iter().filter(|line| **line == stored).count(),
        50
    );
    for run in runs(&queue) {
        assert!(
            seen.lines().contains(&header(&run.span_context)),
            "it was active"
        );
        assert_eq!(linked(&run), [id(&sends(&queue)[0])]);
    }
}

fn a_timeout_is_an_error(db: &TestDb) {
    let queue = queue("timeout");
    let registry = Registry::new().function(ACT, |_, cx| Ok(cx.sleep(Duration::from_secs(3_600))?));
    let policy = Policy::new()
        .timeout(Duration::from_millis(20))
        .on_timeout(OnTimeout::Fail);
    let mut conn = db.connect();
    job(&queue).policy(policy).enqueue(&mut conn).unwrap();
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    until("it has a span", || runs(&queue).len() == 1);
    let run = &runs(&queue)[0];
    assert_eq!(attribute(run, "error.type").as_deref(), Some("timeout"));
    assert_eq!(
        attribute(run, "windlass.job.outcome").as_deref(),
        Some("failed")
    );
    assert!(
        matches!(&run.status, Status::Error { .. }),
        "{:?}",
        run.status
    );
}

/// The span is exported before the job ends, which it may never do.
fn a_run_that_is_ended_by_force_has_a_span(db: &TestDb) {
    let queue = queue("overrun");
    let gate = Arc::new(Gate::default());
    let registry = Registry::new().register::<Wait>(Arc::clone(&gate));
    let soon = Duration::from_millis(20);
    let policy = Policy::new()
        .timeout(soon)
        .timeout_grace(soon)
        .on_timeout(OnTimeout::Fail);
    let job = NewJob::new(&Wait).unwrap().queue(&queue).policy(policy);
    job.enqueue(&mut db.connection()).unwrap();
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    let run = eventually("it has a span", || runs(&queue).pop());
    assert_eq!(gate.ended(), 0, "it still runs");
    assert_eq!(attribute(&run, "error.type").as_deref(), Some("timeout"));
    let Status::Error { description } = &run.status else {
        panic!("{:?}", run.status)
    };
    assert!(
        description.contains("ran for longer than its timeout of 20ms"),
        "{description}"
    );
    gate.open();
    until("the job has ended", || db.rows("claimed_executions") == 0);
    assert_eq!(runs(&queue).len(), 1, "it ended once");
}

fn a_trace_that_is_not_sampled_is_carried_as_such(db: &TestDb) {
    let queue = queue(UNSAMPLED);
    let mut conn = db.connect();
    job(&queue).enqueue(&mut conn).unwrap();
    let seen = Arc::new(Log::default());
    let log = Arc::clone(&seen);
    let registry = Registry::new().function(ACT, move |_, cx| {
        let active = TraceContext::map_current(|cx| cx.span().span_context().clone());
        log.add(format!("{} {}", active.is_valid(), active.is_sampled()));
        log.add(cx.traceparent().unwrap());
        Ok(())
    });
    drain(&mut conn, &registry).unwrap().assert_all_finished(1);
    assert_eq!(of_queue(&queue).len(), 0);
    let header = stored(db, &queue).remove(0);
    assert!(header.ends_with("-00"), "{header}");
    assert_eq!(seen.lines(), ["true false", &header]);
}

fn a_failed_enqueue_is_an_error(db: &TestDb) {
    let queue = queue("refused");
    let mut conn = db.connect();
    let unique = || {
        let refuse = Policy::new().on_conflict(windlass::OnConflict::Refuse);
        job(&queue).unique_id("traced").policy(refuse)
    };
    unique().enqueue(&mut conn).unwrap();
    unique().enqueue(&mut conn).unwrap_err();
    db.execute("ALTER TABLE solid_queue_jobs RENAME TO gone");
    job(&queue).enqueue(&mut conn).unwrap_err();
    let spans = sends(&queue);
    let kinds: Vec<_> = spans
        .iter()
        .map(|span| attribute(span, "error.type"))
        .collect();
    let kind = |kind: &str| Some(kind.to_owned());
    assert_eq!(kinds, [None, kind("unique_id_taken"), kind("query")]);
    assert!(matches!(spans[2].status, Status::Error { .. }));
}

fn a_given_context_is_kept(db: &TestDb) {
    let queue = queue("given");
    let mut conn = db.connect();
    let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    job(&queue).traceparent(given).enqueue(&mut conn).unwrap();
    enqueue_all(&mut conn, [job(&queue).traceparent(given), job(&queue)]).unwrap();
    drain(&mut conn, &idle()).unwrap().assert_all_finished(3);
    let sends = sends(&queue);
    let origin = SpanId::from_hex("b7ad6b7169203331").unwrap();
    assert!(sends.iter().all(|send| linked(send) == [origin]));
    let own = header(&sends[1].span_context);
    assert_eq!(stored(db, &queue), [given, given, &own]);
    let runs = runs(&queue);
    let linked: Vec<_> = runs.iter().map(linked).collect();
    assert_eq!(linked, [[origin], [origin], [id(&sends[1])]]);
    assert_eq!(
        runs[0].links.links[0].span_context.trace_id().to_string(),
        "0af7651916cd43dd8448eb211c80319c"
    );
}

fn messages_that_are_not_logged_are_not_exported(db: &TestDb) {
    let (shown, hidden) = (queue("shown"), queue("hidden"));
    let registry = || Registry::new().function(ACT, |_, _| Err::<(), _>("a secret".into()));
    for (queue, logged, expected) in [(&shown, true, "error: a secret"), (&hidden, false, "error")]
    {
        job(queue).enqueue(&mut db.connection()).unwrap();
        let _worker = Worker::new(&db.database, registry())
            .subscriber(Subscriber::default().log_messages(logged))
            .start()
            .unwrap();
        let run = eventually("it has a span", || runs(queue).pop());
        assert_eq!(run.status, Status::error(expected));
        until("it has failed", || db.rows("claimed_executions") == 0);
    }
}

fn a_provider_that_panics_affects_no_job(db: &TestDb) {
    let queue = queue("panicking");
    let mut conn = db.connect();
    job(&queue).enqueue(&mut conn).unwrap();
    drain(&mut conn, &idle()).unwrap().assert_all_finished(1);
    assert_eq!(stored(db, &queue), ["none"]);
    assert_eq!(of_queue(&queue).len(), 0);
}

fn what_a_job_leaves_active_is_not_active_in_the_next(db: &TestDb) {
    let (first, second) = (queue("leaves"), queue("next"));
    let registry = Registry::new().function(ACT, |_, _| {
        let left = TraceContext::current().attach();
        std::mem::forget(left);
        Ok(())
    });
    for queue in [&first, &second] {
        job(queue).enqueue(&mut db.connection()).unwrap();
    }
    let _worker = Worker::new(&db.database, registry)
        .threads(1)
        .start()
        .unwrap();
    until("both have a span", || runs(&second).len() == 1);
    let (one, other) = (&runs(&first)[0], &runs(&second)[0]);
    assert_eq!(other.parent_span_id, SpanId::INVALID);
    assert_ne!(one.span_context.trace_id(), other.span_context.trace_id());
}

fn a_job_left_to_others_has_no_span(db: &TestDb) {
    let queue = queue("unknown");
    let mut conn = db.connect();
    job(&queue).enqueue(&mut conn).unwrap();
    let _ = drain(&mut conn, &Registry::new()).unwrap();
    assert_eq!(runs(&queue).len(), 0);
}
