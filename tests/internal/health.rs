//! The loops of a process that are reported when they hang; loops that only wait are not.

use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::job::registry::Registry;
use crate::process::base::health::Loops;
use crate::process::dispatcher::Dispatcher;
use crate::process::worker::builder::Worker;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

on_each_database!(a_loop_that_hangs_is_found, loops_that_wait_do_not_hang,);

/// Far longer than a turn takes here.
const LONG: Duration = Duration::from_secs(2);

fn until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn names(loops: &Loops) -> Vec<&'static str> {
    let hanging = loops.hanging(LONG).into_iter();
    hanging.map(|(name, _)| name).collect()
}

/// A subscriber is code of the user's, which may wait for anything.
fn a_loop_that_hangs_is_found(db: &TestDb) {
    let (release, gate) = channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let hangs = Subscriber::new(move |event: &Event<'_>| {
        if matches!(event, Event::Registered { .. }) {
            let _ = gate.lock().unwrap().recv();
        }
    });
    let worker = Worker::new(&db.database, Registry::new()).subscriber(hangs);
    let worker = worker.start().unwrap();
    let loops = worker.health().loops();
    until(|| !names(&loops).is_empty());
    assert_eq!(names(&loops), ["heartbeat"]);
    drop(release);
    until(|| names(&loops).is_empty());
}

fn loops_that_wait_do_not_hang(db: &TestDb) {
    let hour = Duration::from_secs(3600);
    let worker = Worker::new(&db.database, Registry::new())
        .polling_interval(hour)
        .heartbeat_interval(hour)
        .alive_threshold(hour * 3);
    let worker = worker.start().unwrap();
    let dispatcher = Dispatcher::new(&db.database).polling_interval(hour);
    let dispatcher = dispatcher.start().unwrap();
    let all = [&worker, &dispatcher].map(|handle| handle.health().loops());
    let started = [worker.health(), dispatcher.health()];
    until(|| started.iter().all(|health| health.is_started()));
    std::thread::sleep(LONG * 2);
    for loops in all {
        assert_eq!(names(&loops), [""; 0]);
    }
}
