//! Tasks of a configuration file: what is wrong with them, and that they are
//! fired.

use super::{Stamp, until_ticked};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::process::{Effects, Once, Scene};
use crate::support::program::{Running, Windlass};
use crate::support::wait::until;
use rustix::process::Signal;
use windlass::{Context, Error, Job, JobResult, RecurringTask, Registry, recurring};
use windlass_console::Config;

on_each_database!(
    a_task_of_the_file_is_fired_and_performed,
    a_scheduler_that_is_not_enabled_does_not_run,
    the_type_says_what_the_file_does_not,
);

#[track_caller]
fn problems(result: Result<Config, Error>) -> Vec<String> {
    match result.unwrap_err() {
        Error::Configuration(problems) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("{other}"),
    }
}

const CLEANUP: &str = r#"
[scheduler]
time_zone = "Europe/Berlin"

[recurring.cleanup]
class = "cleanup"
arguments = { days = 0x1e, ratio = 0.5, names = ["a \"b\"", "c"], deep = { "a b" = true } }
schedule = "30 3 * * *"
time_zone = "Asia/Tokyo"
queue = "slow"
priority = -5
description = "Deletes what is older than a month"
missed = { all_within = "3 days" }
overlap = "queue_one"
max_attempts = 3

[recurring."report/42"]
class = "report"
schedule = "every 45s"
"#;

#[test]
fn what_is_shown_of_a_task_reads_back() {
    let config = Config::parse(CLEANUP).unwrap();
    let keys: Vec<&str> = config.tasks().map(RecurringTask::key).collect();
    assert_eq!(keys, ["cleanup", "report/42"]);
    let shown = config.to_string();
    let begin = shown.find("\n[recurring.cleanup]").unwrap();
    let written: Vec<&str> = shown[begin..]
        .lines()
        .map(|line| line.split(" # ").next().unwrap().trim())
        .collect();
    let expected = r#"
[recurring.cleanup]
class = "cleanup"
arguments = { days = 30, deep = { "a b" = true }, names = ["a \"b\"", "c"], ratio = 0.5 }
schedule = "30 3 * * *"
time_zone = "Asia/Tokyo"
queue = "slow"
priority = -5
description = "Deletes what is older than a month"
missed = { all_within = "3d" }
overlap = "queue_one"
max_attempts = 3

[recurring."report/42"]
class = "report"
schedule = "every 45s""#;
    assert_eq!(written.join("\n"), expected);
    assert!(shown.contains("# line 9\n"), "{shown}");
    let again = Config::parse(&shown).unwrap().to_string();
    let without_origins = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.split(" # ").next().unwrap());
        lines.map(str::to_owned).collect()
    };
    assert_eq!(without_origins(&again), without_origins(&shown));
}

/// All at once, each with its line.
#[test]
fn what_is_wrong_with_tasks_is_told_at_once() {
    let told = problems(Config::parse(
        r#"
[scheduler]
time_zone = "Berlin"
revision = -1
graze = "1s"

[recurring.a]
class = "a"
schedul = "@daily"
args = {}

[recurring.b]
class = 5
schedule = "30 25 * * *"
time_zone = "Mars"
arguments = { at = 2026-01-01, most = inf }
priority = "high"
missed = "newest"
overlap = { skip = true }
max_attempts = 0

[recurring.c]
class = "c d"
schedule = "@daily Asia/Tokyo"
time_zone = "UTC"
missed = { all_within = 3 }

[recurring."d e"]
class = "d"
schedule = "@daily"

[recurring.f]
class = "f"
schedule = "@daily"
queue = "no queue"

[recurring]
g = "@daily"
"#,
    ));
    let expected = [
        "line 3: scheduler.time_zone: there is no time zone `Berlin`; did you mean `Europe/Berlin`?",
        "line 4: scheduler.revision: the number -1 is not a whole number of at least 0",
        "line 5: `scheduler` has no setting `graze`; did you mean `grace`?",
        "line 7: recurring.a has no `schedule`",
        "line 9: recurring.a has no setting `schedul`; did you mean `schedule`?",
        "line 10: recurring.a has no setting `args`; did you mean `arguments`?",
        "line 13: recurring.b.class: the number 5 is not a text in quotes",
        "line 14: recurring.b.schedule: `30 25 * * *` is not a valid schedule: ",
        "line 15: recurring.b.time_zone: there is no time zone `Mars`; examples are `UTC`",
        "line 16: recurring.b.arguments: a datetime is not a value in JSON; write it in quotes",
        "line 17: recurring.b.priority: `high` is not a whole number",
        "line 18: recurring.b.missed: `newest` is not \"latest\", \"skip\"",
        "line 19: recurring.b.overlap: ",
        "line 20: recurring.b.max_attempts: the number 0 is not a whole number of at least 1",
        "line 23: recurring.c.class: `c d` is not a valid class: ",
        "line 25: recurring.c.time_zone: `schedule` names another time zone; remove one of them",
        "line 26: recurring.c.missed: invalid type: integer `3`, expected a string; it may be \"latest\"",
        "line 28: `d e` is not a valid key of a recurring task: ",
        "line 35: recurring.f.queue: `no queue` is not a valid queue: ",
        "line 38: `recurring.g` is not a table: write `[recurring.KEY]`",
    ];
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{expected}\n{told}");
    }
    assert_eq!(told.len(), expected.len(), "{}", told.join("\n"));
    for (wrong, expected) in [
        (
            "recurring = 5",
            "line 1: `recurring` is a table of tables: write `[recurring.KEY]`",
        ),
        (
            "[[recurring]]",
            "line 1: each needs its own table: write `[recurring.KEY]`",
        ),
        (
            "[recuring.a]",
            "line 1: there is no table `recuring`; did you mean `recurring`?",
        ),
    ] {
        assert_eq!(problems(Config::parse(wrong)), [expected]);
    }
}

#[test]
fn a_key_is_declared_once() {
    let task = || RecurringTask::of_class("cleanup", "@daily", "cleanup", "{}").unwrap();
    let config = Config::parse(CLEANUP).unwrap();
    assert_eq!(
        problems(config.clone().task(task())),
        ["line 5: two recurring tasks have the key `cleanup`: the code also declares one"]
    );
    let other = RecurringTask::of_class("other", "@daily", "cleanup", "{}").unwrap();
    let config = config.task(other.clone()).unwrap();
    assert_eq!(config.tasks().count(), 3);
    let shown = config.to_string();
    assert!(shown.contains("# The code declares [recurring.other]."));
    assert_eq!(
        problems(config.clone().task(other)),
        ["two recurring tasks have the key `other`: the code also declares one"]
    );
    // Past the configuration.
    let db = TestDb::sqlite();
    let error = config.scheduler(&db.database).task(task()).start();
    assert_eq!(
        error.unwrap_err().to_string(),
        "two recurring tasks have the key `cleanup`; one is at line 5"
    );
    let twice = "[recurring.a]\nclass = 'a'\nschedule = '@daily'\n";
    let told = problems(Config::parse(&format!("{twice}{twice}")));
    assert!(told[0].starts_with("line 4: duplicate key"), "{told:?}");
}

/// Takes no arguments.
#[derive(serde::Serialize, serde::Deserialize)]
struct Sweep;

impl Job for Sweep {
    const NAME: &'static str = "sweep";
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

#[test]
fn classes_and_arguments_are_compared_with_what_is_performed() {
    let registry = Registry::new().register::<Stamp>(Log::default());
    let registry = registry.register::<Sweep>(());
    let tasks = "
[recurring.right]
class = 'stamp'
arguments = { text = 'a' }
schedule = '@daily'

[recurring.empty]
class = 'sweep'
schedule = '@daily'

[recurring.wrong]
class = 'stamp'
schedule = '@daily'
arguments = { txt = 'a' }

[recurring.unknown]
class = 'stmp'
schedule = '@daily'
";
    let told = problems(Config::parse(tasks).unwrap().knowing(&registry));
    assert_eq!(
        told,
        [
            "line 14: recurring.wrong.arguments: the arguments do not match its type: missing field `text` at line 1 column 11",
            "line 17: recurring.unknown.class: no job type of this program is called `stmp`; did you mean `stamp`?",
        ]
    );
    // Other programs that perform jobs may have the class.
    for others in ["workers = []\n", "[[workers]]\nprogram = 'other'\n"] {
        let config = Config::parse(&format!("{others}{tasks}")).unwrap();
        let told = problems(config.knowing(&registry));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("recurring.wrong.arguments"), "{told:?}");
    }
}

fn the_type_says_what_the_file_does_not(db: &TestDb) {
    let text = "
[recurring.a]
class = 'once'
arguments = { name = 'a', what = 'Nothing' }
schedule = '@daily'

[recurring.b]
class = 'stamp'
arguments = { text = 'b' }
schedule = '@daily'

[recurring.c]
class = 'stamp'
arguments = { text = 'c' }
schedule = '@daily'
queue = 'other'
priority = 0
";
    let directory = tempfile::tempdir().unwrap();
    let effects = Effects::open(&directory.path().join("effects"));
    let registry = Registry::new()
        .register::<Once>(effects)
        .register::<Stamp>(Log::default());
    let config = Config::parse(text).unwrap().knowing(&registry).unwrap();
    let scheduler = config.scheduler(&db.database).start().unwrap();
    until("all are declared", || db.rows("recurring_tasks") == 3);
    for key in ["a", "b", "c"] {
        recurring::run_now(&mut db.connection(), key).unwrap();
    }
    scheduler.stop();
    let said = db.texts(
        "SELECT class_name || ' ' || queue_name || ' ' || priority || CASE WHEN at_most_once THEN ' at most once' ELSE '' END AS t FROM solid_queue_jobs ORDER BY id",
    );
    assert_eq!(
        said,
        [
            "once default 0 at most once",
            "stamp clockwork 7",
            "stamp other 0"
        ]
    );
}

/// `windlass supervise` with this configuration, whose workers are
/// `deploy::app`.
fn supervise(scene: &Scene<'_>, config: &str) -> Running {
    let own = std::env::current_exe().unwrap();
    let effects = format!("WINDLASS_TEST_APP={}", scene.effects_file().display());
    let program = [
        "env",
        &effects,
        own.to_str().unwrap(),
        "deploy::app",
        "--exact",
    ];
    let text = format!(
        "[database]\nurl = {:?}\n\
         [supervisor]\nheartbeat_interval = '100ms'\nalive_threshold = '10 min'\n\
         [[workers]]\nprogram = {program:?}\nthreads = 1\npolling_interval = '100ms'\n{config}",
        scene.db.url
    );
    let file = scene.directory().join("windlass.toml");
    std::fs::write(&file, text).unwrap();
    Windlass::new(&["supervise", "--config", file.to_str().unwrap()]).start()
}

const EACH_SECOND: &str = "
[scheduler]
polling_interval = '100ms'
grace = '1 min'

[recurring.work]
class = 'work'
arguments = { name = 'recurred', what = 'Nothing' }
schedule = 'every 1s'
description = 'Writes a line'
";

fn a_task_of_the_file_is_fired_and_performed(db: &TestDb) {
    let scene = Scene::new(db);
    let supervisor = supervise(&scene, EACH_SECOND);
    until_ticked(db, "work", 2);
    until("both are performed", || scene.count("end", "recurred") >= 2);
    let tasks = recurring::list(&mut db.connection()).unwrap();
    assert_eq!(tasks[0].description.as_deref(), Some("Writes a line"));
    assert!(tasks[0].declared_at.is_some());
    supervisor.signal(Signal::TERM);
    let said = supervisor.said();
    assert_eq!(said.code, Some(0), "{said:?}");
}

fn a_scheduler_that_is_not_enabled_does_not_run(db: &TestDb) {
    let scene = Scene::new(db);
    let config = EACH_SECOND.replace("[scheduler]", "[scheduler]\nenabled = false");
    let supervisor = supervise(&scene, &config);
    // Supervisor, dispatcher, worker.
    until("all are registered", || db.rows("processes") == 3);
    let kinds = db.texts("SELECT kind AS t FROM solid_queue_processes ORDER BY kind");
    assert_eq!(kinds, ["Dispatcher", "Supervisor", "Worker"]);
    assert_eq!(db.rows("recurring_tasks"), 0);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.said().code, Some(0));
}
