//! Hooks and events, which report on the processes to the application.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::wait::{DEADLINE, until};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::hooks::Subscriber;
use windlass::{
    Dispatcher, Error, Event, Hooks, Job as _, NewJob, Registry, Scheduler, Supervisor, Worker,
};

on_each_database!(
    hooks_run_in_their_order,
    a_start_can_be_refused,
    a_panicking_hook_harms_nobody,
    a_hook_may_look_at_the_database,
    a_job_is_heard_from_its_claim_to_its_end,
    a_configuration_has_hooks_and_a_subscriber,
);

const SOON: Duration = DEADLINE;

/// Notes what happens to a process in `log`.
fn noting(log: &Arc<Log>) -> Hooks {
    let note = |word: &'static str| {
        let log = Arc::clone(log);
        move |process: &windlass::hooks::ProcessInfo| log.add(format!("{word} {}", process.kind))
    };
    let starts = note("start");
    Hooks::new()
        .on_start(move |process| {
            starts(process);
            Ok(())
        })
        .on_stop(note("stop"))
        .on_exit(note("exit"))
}

fn hooks_run_in_their_order(db: &TestDb) {
    let log = Arc::new(Log::default());
    let gate = Arc::new(Gate::default());
    Wait.enqueue(&mut db.connection()).unwrap();
    let registry = Registry::new().register::<Wait>(Arc::clone(&gate));
    let worker = Worker::new(&db.database, registry).hooks(noting(&log));
    let mut worker = worker.start().unwrap();
    until("the job runs", || gate.begun() == 1);
    assert_eq!(log.lines(), ["start Worker"]);
    worker.stop();
    // While the job still runs.
    until("the stop is heard", || log.len() == 2);
    assert_eq!(gate.ended(), 0);
    gate.open();
    assert!(worker.join(SOON).unwrap().is_drained());
    assert_eq!(log.lines(), ["start Worker", "stop Worker", "exit Worker"]);
    assert_eq!(db.rows("processes"), 0);
    for kind in ["Dispatcher", "Scheduler", "Supervisor"] {
        let log = Arc::new(Log::default());
        let handle = match kind {
            "Dispatcher" => Dispatcher::new(&db.database).hooks(noting(&log)).start(),
            "Scheduler" => Scheduler::new(&db.database).hooks(noting(&log)).start(),
            _ => Supervisor::new(&db.database).hooks(noting(&log)).start(),
        };
        drop(handle.unwrap());
        let all = ["start", "stop", "exit"].map(|word| format!("{word} {kind}"));
        assert_eq!(log.lines(), all);
    }
}

fn a_start_can_be_refused(db: &TestDb) {
    let log = Arc::new(Log::default());
    let refuse = || Hooks::new().on_start(|_| Err("the licence has run out".into()));
    let worker = Worker::new(&db.database, Registry::new());
    let worker = worker.hooks(noting(&log)).hooks(refuse());
    let error = worker.start().unwrap_err();
    assert!(
        matches!(error, Error::Hook { kind: "Worker", .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("the licence has run out"),
        "{error}"
    );
    let supervisor =
        Supervisor::new(&db.database).dispatcher(Dispatcher::new(&db.database).hooks(refuse()));
    assert!(supervisor.start().is_err());
    assert_eq!(db.rows("processes"), 0);
}

fn a_panicking_hook_harms_nobody(db: &TestDb) {
    let log = Arc::new(Log::default());
    let panicking = Hooks::new()
        .on_start(|_| panic!("start"))
        .on_stop(|_| panic!("stop"))
        .on_exit(|_| panic!("exit"));
    let count = |log: &Arc<Log>| {
        let log = Arc::clone(log);
        move |_: &windlass::hooks::ProcessInfo| log.add("exit")
    };
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let worker = Worker::new(&db.database, registry).hooks(panicking.on_exit(count(&log)));
    let mut worker = worker.start().unwrap();
    Note::new("done").enqueue(&mut db.connection()).unwrap();
    until("the job is done", || log.len() == 1);
    worker.stop();
    let stopped = worker.join(SOON).unwrap();
    assert!(stopped.is_drained() && !stopped.is_broken());
    assert_eq!(log.lines(), ["done", "exit"]);
}

fn a_hook_may_look_at_the_database(db: &TestDb) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let look = || {
        let (seen, database) = (Arc::clone(&seen), db.database.clone());
        move || {
            let processes = windlass::processes::list(&mut database.connect().unwrap()).unwrap();
            seen.lock().unwrap().push(processes.len());
        }
    };
    let (starts, exits) = (look(), look());
    let hooks = Hooks::new().on_start(move |_| {
        starts();
        Ok(())
    });
    let worker = Worker::new(&db.database, Registry::new()).hooks(hooks.on_exit(move |_| exits()));
    let worker = worker.start().unwrap();
    until("it is registered", || db.rows("processes") == 1);
    drop(worker);
    assert_eq!(*seen.lock().unwrap(), [0, 0]);
}

fn a_job_is_heard_from_its_claim_to_its_end(db: &TestDb) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let subscriber = Subscriber::new({
        let heard = Arc::clone(&heard);
        move |event: &Event<'_>| {
            let said = match *event {
                Event::Claimed {
                    job, class, queue, ..
                } => format!("claimed {job} {class} {queue}"),
                Event::Started {
                    job,
                    class,
                    attempt,
                    ..
                } => format!("started {job} {class} {attempt}"),
                Event::Finished { job, class, .. } => format!("finished {job} {class}"),
                Event::Stopping { kind } => format!("stopping {kind}"),
                _ => return,
            };
            heard.lock().unwrap().push(said);
        }
    });
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(log);
    let worker = Worker::new(&db.database, registry).subscriber(subscriber);
    let worker = worker.start().unwrap();
    let job = NewJob::new(&Note::new("hunter2")).unwrap().queue("mail");
    let id = job.enqueue(&mut db.connection()).unwrap().id;
    until("it is finished", || heard.lock().unwrap().len() == 3);
    drop(worker);
    let heard = heard.lock().unwrap();
    assert_eq!(
        *heard,
        [
            format!("claimed {id} note mail"),
            format!("started {id} note 1"),
            format!("finished {id} note"),
            "stopping Worker".to_owned(),
        ]
    );
}

fn a_configuration_has_hooks_and_a_subscriber(db: &TestDb) {
    let log = Arc::new(Log::default());
    let events = crate::support::events::Events::default();
    let config = windlass_console::Config::parse("").unwrap();
    let config = config.hooks(noting(&log)).subscriber(events.subscriber());
    let registry = Registry::new().register::<Note>(Arc::new(Log::default()));
    let handles = [
        config.worker(&db.database, registry).unwrap().start(),
        config.supervisor(&db.database, None).unwrap().start(),
    ];
    let all = ["Worker", "Dispatcher", "Scheduler", "Supervisor"];
    until("all are registered", || {
        events.count("Registered") == all.len()
    });
    let mut started = log.lines();
    started.sort();
    let mut expected = all.map(|kind| format!("start {kind}"));
    expected.sort();
    assert_eq!(started, expected);
    for handle in handles {
        let mut handle = handle.unwrap();
        handle.stop();
        assert!(handle.join(SOON).unwrap().is_drained());
    }
    assert_eq!(log.count("exit"), all.len());
}
