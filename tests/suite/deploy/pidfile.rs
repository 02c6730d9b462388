//! One supervisor a pidfile.

use super::{IMPATIENT, app_in};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::Scene;
use crate::support::wait::until;
use rustix::process::Signal;

on_each_database!(a_second_supervisor_is_refused_and_a_stale_file_is_not);

fn a_second_supervisor_is_refused_and_a_stale_file_is_not(db: &TestDb) {
    let scene = Scene::new(db);
    let path = scene.directory().join("windlass.pid");
    let config = format!("pidfile = {path:?}\n[[workers]]\nthreads = 1\n");
    let held_by = |pid: i32| std::fs::read_to_string(&path).is_ok_and(|t| t == format!("{pid}\n"));
    let mut first = app_in(&scene, &config, &[IMPATIENT]);
    until("it has started", || {
        held_by(first.pid()) && db.rows("processes") == 4
    });
    let mut second = app_in(&scene, &config, &[IMPATIENT]);
    assert_eq!(second.exit().code(), Some(1));
    let says = format!("is held by process {}", first.pid());
    assert!(second.log().contains(&says), "{}", second.log());
    assert!(first.is_running() && held_by(first.pid()));
    // Its file stays, and its worker for a moment: neither keeps the next away.
    first.signal(Signal::KILL);
    first.exit();
    assert!(path.exists());
    let mut third = app_in(&scene, &config, &[IMPATIENT]);
    until("another takes over", || held_by(third.pid()));
    until("the dead ones are gone", || db.rows("processes") == 4);
    third.signal(Signal::TERM);
    assert_eq!(third.exit().code(), Some(0));
    assert!(!path.exists());
}
