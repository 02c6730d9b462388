//! Two requests in a row: each pair of signals, quiet mode and the end of the standard input, to a
//! worker, its supervisor, or both at once. `docs/deploying.md` has the outcomes as a table.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Do, Process, Scene, Work, signal_if_there};
use crate::support::wait::until;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Write as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use windlass::Job as _;

on_each_database!(two_requests_in_a_row);

/// Every pair at every distance; `bin/test all` runs it.
mod in_all {
    use super::{every_pair, run};
    use crate::support::TestDb;

    crate::on_each_database!(every_two_requests_in_a_row);

    fn every_two_requests_in_a_row(db: &TestDb) {
        run(db, every_pair());
    }
}

/// How many pairs run at once, each in a database of its own.
const LANES: usize = 24;

/// Longer than any case takes: no job is interrupted because its time is over.
const SHUTDOWN_MS: u64 = 600_000;

/// In seconds.
const DISTANCES: [u64; 4] = [0, 1, 3, 10];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Hup,
    Term,
    Int,
    Tstp,
    Cont,
    Quit,
    /// The supervisor's byte.
    Quiet,
    /// The end of the standard input.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Supervisor,
    Worker,
    Group,
    /// A worker whose supervisor is the test.
    Alone,
}

type Request = (What, Target);

#[derive(Debug, Clone, Copy)]
struct Pair {
    requests: [Request; 2],
    distance: u64,
}

impl What {
    fn signal(self) -> Option<Signal> {
        Some(match self {
            What::Hup => Signal::HUP,
            What::Term => Signal::TERM,
            What::Int => Signal::INT,
            What::Tstp => Signal::TSTP,
            What::Cont => Signal::CONT,
            What::Quit => Signal::QUIT,
            What::Quiet | What::Closed => return None,
        })
    }

    /// Whether it stops a process for which SIGHUP is no stop.
    fn stops(self) -> bool {
        matches!(self, What::Term | What::Int | What::Quit | What::Closed)
    }
}

fn requests() -> [Vec<Request>; 2] {
    use Target::{Alone, Group, Supervisor, Worker};
    use What::{Closed, Cont, Hup, Int, Quiet, Quit, Term, Tstp};
    let signals = [Hup, Term, Int, Tstp, Cont, Quit];
    let whole = [Supervisor, Worker, Group];
    let whole = whole
        .into_iter()
        .flat_map(|to| signals.map(|what| (what, to)));
    let alone = signals.into_iter().chain([Quiet, Closed]);
    [whole.collect(), alone.map(|what| (what, Alone)).collect()]
}

fn every_pair() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for requests in requests() {
        for first in &requests {
            for second in &requests {
                pairs.extend(DISTANCES.map(|distance| Pair {
                    requests: [*first, *second],
                    distance,
                }));
            }
        }
    }
    pairs
}

/// Those that went wrong once or are closest to that, and some of all others.
fn some_pairs() -> Vec<Pair> {
    use Target::{Alone, Group, Supervisor, Worker};
    use What::{Closed, Cont, Hup, Int, Term, Tstp};
    let known = [
        [(Hup, Supervisor), (Term, Supervisor)],
        [(Hup, Group), (Term, Group)],
        [(Term, Worker), (Term, Supervisor)],
        [(Term, Worker), (Hup, Supervisor)],
        [(Term, Group), (Term, Group)],
        [(Int, Group), (Int, Worker)],
        [(Int, Supervisor), (Int, Supervisor)],
        [(Tstp, Group), (Cont, Supervisor)],
        [(Term, Alone), (Closed, Alone)],
    ];
    let known = known.into_iter().map(|requests| Pair {
        requests,
        distance: 3,
    });
    let quick = [(Tstp, Supervisor), (Cont, Supervisor)];
    let quick = [quick, quick.map(|(what, _)| (what, Group))];
    let quick = quick.into_iter().map(|requests| Pair {
        requests,
        distance: 0,
    });
    let others = every_pair().into_iter().step_by(29);
    known.chain(quick).chain(others).collect()
}

fn two_requests_in_a_row(db: &TestDb) {
    run(db, some_pairs());
}

/// Plays the pairs, and lists those that end otherwise than they should.
fn run(db: &TestDb, pairs: Vec<Pair>) {
    let left = Mutex::new(pairs.into_iter());
    std::thread::scope(|scope| {
        let lane = || {
            let db = if db.is_postgres() {
                TestDb::postgres()
            } else {
                TestDb::sqlite()
            };
            loop {
                let pair = left.lock().unwrap().next();
                let Some(pair) = pair else { break };
                let _told = Told(pair);
                play(&db, pair);
            }
        };
        (0..LANES).for_each(|_| drop(scope.spawn(lane)));
    });
}

/// Names the pair if it fails.
struct Told(Pair);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {:?}", self.0);
        }
    }
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
    work.enqueue(&mut db.connect()).unwrap();
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
    db.execute("DELETE FROM solid_queue_processes");
    db.execute("DELETE FROM solid_queue_jobs");
}

/// Checks that a stop ends in time, and with it everything.
fn end(scene: &Scene<'_>, cast: &mut Cast, expected: Expected) {
    let db = scene.db;
    if !expected.is_over {
        // What was cut short runs once more, unless the worker is quiet.
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

/// Whether the row of the worker says that it is quiet.
fn quiet(db: &TestDb) -> bool {
    let processes = windlass::processes(&mut db.connect()).unwrap();
    let workers = processes.iter().filter(|one| one.kind == "Worker");
    workers.map(|one| one.quiet).eq([true])
}

/// Whether the process runs; one that has ended may wait for its parent.
fn is_there(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let state = |stat: &str| stat.rsplit(')').next().map(|rest| rest.starts_with(" Z"));
    stat.is_ok_and(|stat| state(&stat) != Some(true))
}

/// What follows from a pair.
#[derive(Debug, Clone, Copy)]
struct Expected {
    /// The run ends before the job does.
    is_cut: bool,
    /// The supervisor, or the worker that the test supervises, ends by itself.
    is_over: bool,
    /// Whether the worker then claims nothing, if that is certain.
    is_quiet: Option<bool>,
}

impl Expected {
    fn of(pair: Pair) -> Self {
        let [first, second] = pair.requests;
        let is_whole = |to: Target| matches!(to, Target::Supervisor | Target::Group);
        let stops_whole = |(what, to): Request| what.stops() && is_whole(to);
        let is_second_interrupt = stops_whole(first)
            && (second.0 == What::Int && is_whole(second.1))
            && pair.distance >= 3;
        let asks = |wanted: What| pair.requests.iter().any(|(what, _)| *what == wanted);
        let ends = |(what, to): &Request| what.stops() && *to != Target::Worker;
        let is_over = pair.requests.iter().any(ends);
        // A worker that is replaced takes the mode of its supervisor.
        let stays = !pair.requests.iter().any(|(what, _)| what.stops()) && !asks(What::Hup);
        Expected {
            is_cut: asks(What::Quit) || is_second_interrupt,
            is_over,
            is_quiet: (stays
                && (pair.distance > 0
                    || first == second
                    || first.1 == second.1 && !asks(What::Quiet)))
            .then(|| is_quiet_after(pair.requests)),
        }
    }
}

/// The last change wins; a supervisor passes on its own changes.
fn is_quiet_after(requests: [Request; 2]) -> bool {
    let (mut supervisor, mut worker) = (false, false);
    for (what, to) in requests {
        let is_quiet = match what {
            What::Tstp | What::Quiet => true,
            What::Cont => false,
            _ => continue,
        };
        if to != Target::Worker && to != Target::Alone {
            if supervisor != is_quiet {
                worker = is_quiet;
            }
            supervisor = is_quiet;
        }
        if to != Target::Supervisor {
            worker = is_quiet;
        }
    }
    worker
}
