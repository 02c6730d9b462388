//! Children of a supervisor that was started with SIGCHLD ignored: the system
//! keeps no zombie for it to reap.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Do, Scene, Work, signal};
use rustix::process::Signal;
use windlass::Job;

on_each_database!(a_child_is_seen_to_end_though_sigchld_was_ignored);

crate::through_a_pooler_in_all!(a_child_is_seen_to_end_though_sigchld_was_ignored,);

fn a_child_is_seen_to_end_though_sigchld_was_ignored(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = scene.supervisor_ignoring("CHLD");
    let work = Work::new("a", Do::WaitFor(scene.gate("a")));
    work.enqueue(&mut db.connection()).unwrap();
    let first = scene.started("a", 1);
    signal(first.pid, Signal::KILL);
    let second = scene.started("a", 2);
    assert_ne!(first.pid, second.pid);
    scene.open("a");
    scene.drained();
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit().code(), Some(0));
}
