//! `windlass supervise`.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Note;
use crate::support::process::signal;
use crate::support::program::{PROGRAM, Running, Windlass, windlass};
use crate::support::wait::until;
use rustix::process::{Pid, Signal, test_kill_process};
use std::path::Path;
use std::time::Duration;
use windlass::NewJob;

on_each_database!(
    due_jobs_are_dispatched_until_a_signal,
    without_a_dispatcher_it_only_recovers,
    a_killed_program_is_started_again,
    a_program_that_will_not_stop_is_killed,
    a_missing_program_is_told_and_tried_again,
    under_nohup_it_outlives_its_terminal,
);

fn supervise(db: &TestDb, arguments: &[&str]) -> Running {
    let mut all = vec![
        "supervise",
        "--heartbeat-interval",
        "100ms",
        "--alive-threshold",
        "10min",
    ];
    all.extend(arguments);
    Windlass::new(&all).env("DATABASE_URL", &db.url).start()
}

fn schedule(db: &TestDb) {
    NewJob::new(&Note::new("a"))
        .unwrap()
        .after(Duration::from_millis(50))
        .enqueue(&mut db.connection())
        .unwrap();
}

fn due_jobs_are_dispatched_until_a_signal(db: &TestDb) {
    let supervisor = supervise(db, &[]);
    schedule(db);
    until("the job is ready", || db.rows("ready_executions") == 1);
    until("all are registered", || db.rows("processes") == 3);
    let status = windlass(&db.url, &["status"]).out;
    assert!(
        ["Supervisor", "Dispatcher", "Scheduler"]
            .iter()
            .all(|kind| status.contains(kind)),
        "{status}"
    );
    supervisor.signal(Signal::TERM);
    let said = supervisor.said();
    assert_eq!(said.code, Some(0), "{said:?}");
    // By default it says what it does; on standard error.
    assert!(said.err.contains("registered Supervisor"), "{}", said.err);
    assert_eq!(said.out, "");
    assert_eq!(db.rows("processes"), 0);
}

fn without_a_dispatcher_it_only_recovers(db: &TestDb) {
    schedule(db);
    // A process that stopped beating.
    db.execute(
        "INSERT INTO solid_queue_processes (kind, name, pid, heartbeat_seq, created_at, last_heartbeat_at) \
         VALUES ('Worker', 'worker-dead', 1, 3, '2026-11-20 10:00:00.000000', '2026-11-20 10:00:00.000000')",
    );
    let mut supervisor = Windlass::new(&[
        "supervise",
        "--no-dispatcher",
        "--no-scheduler",
        "--heartbeat-interval=100ms",
        "--alive-threshold=3s",
    ])
    .env("DATABASE_URL", &db.url)
    .env("RUST_LOG", "off")
    .start();
    until("the dead one is pruned", || {
        db.texts("SELECT kind AS t FROM solid_queue_processes") == ["Supervisor"]
    });
    assert!(supervisor.is_running());
    assert_eq!(db.rows("scheduled_executions"), 1);
    supervisor.signal(Signal::INT);
    let said = supervisor.said();
    assert_eq!((said.code, &*said.err), (Some(0), ""));
}

/// The process ids that a program has written, one at each start.
fn pids(file: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| line.parse().unwrap()).collect()
}

fn is_running(pid: &i32) -> bool {
    test_kill_process(Pid::from_raw(*pid).unwrap()).is_ok()
}

fn a_killed_program_is_started_again(db: &TestDb) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let script = r#"echo $$ >> "$0"; exec cat > /dev/null"#;
    let path = file.to_str().unwrap();
    let supervisor = supervise(db, &["--processes", "2", "--", "sh", "-c", script, path]);
    until("both have started", || pids(&file).len() == 2);
    let killed = pids(&file)[0];
    signal(killed, Signal::KILL);
    until("it is started again", || pids(&file).len() == 3);
    supervisor.logs(&format!("child {killed} was killed by signal 9"));
    supervisor.signal(Signal::TERM);
    let said = supervisor.said();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!pids(&file).iter().any(is_running));
    assert_eq!(pids(&file).len(), 3);
    assert_eq!(db.rows("processes"), 0);
}

fn a_program_that_will_not_stop_is_killed(db: &TestDb) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let script = r#"trap '' TERM; echo $$ >> "$0"; while :; do sleep 0.05; done"#;
    let supervisor = supervise(db, &["--", "sh", "-c", script, file.to_str().unwrap()]);
    until("it has started", || pids(&file).len() == 1);
    supervisor.signal(Signal::QUIT);
    assert_eq!(supervisor.said().code, Some(75));
    assert!(!pids(&file).iter().any(is_running));
    assert_eq!(db.rows("processes"), 0);
}

fn a_missing_program_is_told_and_tried_again(db: &TestDb) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("app");
    let pids_file = directory.path().join("pids");
    let path = program.to_str().unwrap();
    let supervisor = supervise(db, &["--", path, pids_file.to_str().unwrap()]);
    supervisor.logs("cannot start the program");
    supervisor.logs(path);
    let script = "#!/bin/sh\necho $$ >> \"$1\"\nexec cat > /dev/null\n";
    // Renamed into place, as it must not be run before it is complete.
    let new = directory.path().join("new");
    std::fs::write(&new, script).unwrap();
    std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::rename(new, program).unwrap();
    until("it has started", || pids(&pids_file).len() == 1);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.said().code, Some(0));
}

/// As `nohup windlass supervise &` in a script begins it.
fn under_nohup_it_outlives_its_terminal(db: &TestDb) {
    let script = format!("trap '' HUP INT QUIT; exec {PROGRAM} supervise");
    let supervisor = Windlass::at(Path::new("/bin/sh"), &["-c", &script])
        .env("DATABASE_URL", &db.url)
        .start();
    supervisor.logs("registered Supervisor");
    supervisor.signal(Signal::HUP);
    schedule(db);
    until("the job is ready", || db.rows("ready_executions") == 1);
    supervisor.signal(Signal::INT);
    let said = supervisor.said();
    assert_eq!(said.code, Some(0), "{said:?}");
}
