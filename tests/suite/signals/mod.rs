//! Two requests in a row: each pair of signals, quiet mode and the end of the standard input, to a
//! worker, its supervisor, or both at once. `docs/deploying.md` has the outcomes as a table.

mod pairs;

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Do, Process, Scene, Work, signal_if_there};
use crate::support::wait::until;
use pairs::{Expected, Pair, Request, Target, What, some_pairs};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use windlass::Job as _;

on_each_database!(two_requests_in_a_row);

/// Every pair at every distance; `bin/test all` runs it.
mod in_all {
    use super::pairs::every_pair;
    use super::run;
    use crate::support::TestDb;

    crate::on_each_database!(every_two_requests_in_a_row);

    fn every_two_requests_in_a_row(db: &TestDb) {
        run(db, every_pair());
    }
}

/// The number of pairs that run at once, each in a database of its own.
const LANES: usize = 8;

/// Longer than any case takes: no job is interrupted because its time is over.
const SHUTDOWN_MS: u64 = 600_000;
fn two_requests_in_a_row(db: &TestDb) {
    run(db, some_pairs());
}

/// Plays the pairs, and lists those that end otherwise than they should.
fn run(db: &TestDb, pairs: Vec<Pair>) {
    let left = Mutex::new(pairs.into_iter());
    let failed = Mutex::new(Vec::new());
    let lane = || {
        let new = if db.is_postgres() {
            TestDb::postgres
        } else {
            TestDb::sqlite
        };
        let mut db = new();
        while let Some(pair) = next(&left) {
            let played = catch_unwind(AssertUnwindSafe(|| play(&db, pair)));
            if played.is_err() {
                eprintln!("--- {pair:?}");
                failed.lock().unwrap().push(pair);
                // The next pair must not find the rows of this one.
                db = new();
            }
        }
    };
    std::thread::scope(|scope| (0..LANES).for_each(|_| drop(scope.spawn(lane))));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} pairs: {failed:#?}", failed.len());
}

fn next(left: &Mutex<impl Iterator<Item = Pair>>) -> Option<Pair> {
    left.lock().unwrap().next()
}

/// The processes of a pair.
struct Cast {
    top: Process,
    worker: i32,
}

impl Cast {
    fn send(&mut self, (what, to): Request) {
        let Some(signal) = what.signal() else {
            let input = self.top.input();
            if what == What::Closed {
                input.take();
            } else if let Some(input) = input {
                // It may have ended.
                let _ = input.write_all(b"q");
            }
            return;
        };
        match to {
            Target::Supervisor | Target::Alone => {
                if self.top.is_running() {
                    self.top.signal(signal);
                }
            }
            Target::Worker => signal_if_there(self.worker, signal),
            Target::Group => {
                let group = Pid::from_raw(self.top.pid()).unwrap();
                let sent = kill_process_group(group, signal);
                assert!(matches!(sent, Ok(()) | Err(Errno::SRCH)), "{sent:?}");
            }
        }
    }
}

fn play(db: &TestDb, pair: Pair) {
    let scene = Scene::new(db);
    let [first, second] = pair.requests;
    let workers = (first.1 != Target::Alone).then_some(1);
    let top = scene.leader(workers, SHUTDOWN_MS);
    let work = Work::new("a", Do::Ask(scene.gate("go")));
    work.enqueue(&mut db.connection()).unwrap();
    let worker = scene.started("a", 1).pid;
    let mut cast = Cast { top, worker };
    cast.send(first);
    if pair.distance > 0 {
        has_arrived(db, &mut cast, first);
    }
    std::thread::sleep(Duration::from_secs(pair.distance));
    let sent = Instant::now();
    cast.send(second);
    // A matter of time: so that what would cut the job short has the chance to.
    std::thread::sleep(Duration::from_millis(300));
    let expected = Expected::of(pair);
    if expected.is_cut {
        until("the run is cut short", || {
            let left = scene.count("stopping", "a") > 0;
            left || !is_there(worker)
        });
    } else {
        let left: Vec<String> = scene.effects().into_iter().map(|one| one.what).collect();
        assert_eq!(left, ["start"], "{pair:?}, {:?} later", sent.elapsed());
    }
    if let Some(is_quiet) = expected.is_quiet {
        until(&format!("it is quiet: {is_quiet}"), || {
            is_quiet == quiet(db)
        });
    }
    scene.open("go");
    end(&scene, &mut cast, expected);
    // A worker that was cut short leaves its claims to its supervisor, which here is the test.
    db.execute("DELETE FROM solid_queue_claimed_executions");
    db.execute("DELETE FROM solid_queue_processes");
    db.execute("DELETE FROM solid_queue_jobs");
}

/// Checks that a stop ends in time, and with it everything.
fn end(scene: &Scene<'_>, cast: &mut Cast, expected: Expected) {
    let db = scene.db;
    if !expected.is_over {
        // A job that was cut short runs once more, unless the worker is quiet.
        if !expected.is_cut {
            scene.ended("a", 1);
        }
        match cast.top.input().take() {
            Some(input) if cast.worker == cast.top.pid() => drop(input),
            _ => cast.top.signal(Signal::TERM),
        }
    }
    let code = cast.top.exit().code();
    if expected.is_cut {
        assert!(matches!(code, Some(0 | 75)), "{code:?}");
        let crashes = "SELECT coalesce(sum(crash_count), 0) AS n FROM solid_queue_jobs";
        assert_eq!(db.count(crashes), 0, "a stop is no crash");
        assert!(scene.count("end", "a") <= 1);
    } else {
        assert_eq!(code, Some(0));
        assert_eq!((scene.count("start", "a"), scene.count("end", "a")), (1, 1));
        assert_eq!(db.rows("claimed_executions"), 0);
    }
}

/// Waits until the first request has its effect, if it has one that can be seen.
fn has_arrived(db: &TestDb, cast: &mut Cast, (what, to): Request) {
    use What::{Closed, Hup, Int, Quiet, Quit, Term, Tstp};
    let is_whole = matches!(to, Target::Supervisor | Target::Group);
    match what {
        Term | Int | Closed if is_whole => cast.top.logs("stopping the Supervisor"),
        Term | Int | Closed => cast.top.logs("stopping the Worker"),
        Hup if is_whole => cast.top.logs("rolling restart"),
        Tstp | Quiet => until("it is quiet", || quiet(db)),
        Quit => {
            let worker = cast.worker;
            until("the worker has ended", || {
                !is_there(worker) || !cast.top.is_running()
            });
        }
        _ => {}
    }
}

/// Returns whether the row of the worker marks it as quiet.
fn quiet(db: &TestDb) -> bool {
    let processes = windlass::processes::list(&mut db.connection()).unwrap();
    let workers = processes.iter().filter(|one| one.kind == "Worker");
    workers.map(|one| one.quiet).eq([true])
}

/// Returns whether the process runs. One that has ended and waits for its parent does not count.
fn is_there(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let state = |stat: &str| stat.rsplit(')').next().map(|rest| rest.starts_with(" Z"));
    stat.is_ok_and(|stat| state(&stat) != Some(true))
}
