//! As the first process of a container: what others leave behind is reaped.

#![cfg(target_os = "linux")]

use super::{ADOPTS, app_in};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Process, Scene, signal};
use crate::support::wait::{eventually, until};
use rustix::process::Signal;
use std::path::Path;

on_each_database!(orphans_are_reaped_and_children_still_watched);

/// Leaves a process behind for whoever adopts it.
const SCRIPT: &str = r#"
echo $$ >> children
sh -c 'sleep 0.1 & echo $! >> orphans'
exec cat > /dev/null
"#;

fn pids(file: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| line.parse().unwrap()).collect()
}

fn parent(pid: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = text.rsplit_once(") ")?;
    after.split(' ').nth(1)?.parse().ok()
}

fn start(scene: &Scene<'_>) -> Process {
    let script = format!("cd {}; {SCRIPT}", scene.directory().display());
    let config = format!("[[workers]]\nprogram = ['sh', '-c', '''{script}''']\n");
    app_in(scene, &config, &[(ADOPTS, "1")])
}

fn orphans_are_reaped_and_children_still_watched(db: &TestDb) {
    let scene = Scene::new(db);
    let mut app = start(&scene);
    let file = |name: &str| scene.directory().join(name);
    for round in 1..=3 {
        let orphan = eventually("it leaves a process behind", || {
            pids(&file("orphans")).get(round - 1).copied()
        });
        // Neither runs nor waits to be reaped.
        until("the orphan is reaped", || parent(orphan).is_none());
        let children = pids(&file("children"));
        assert_eq!(children.len(), round);
        let child = children[round - 1];
        assert_eq!(parent(child), Some(app.pid()));
        signal(child, Signal::KILL);
        app.logs(&format!("child {child} was killed by signal 9"));
    }
    app.signal(Signal::TERM);
    assert_eq!(app.exit().code(), Some(0));
}
