//! The commands within a program of the user's own.

use crate::on_each_database;
use crate::support::TestDb;
use clap::Parser;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use windlass::{Concurrency, Context, Job, JobError, JobResult, RecurringTask, Registry};
use windlass_console::cli::Commands;

on_each_database!(
    the_classes_are_known,
    the_database_may_be_given,
    arguments_of_old_versions_are_converted,
    a_changed_task_has_what_its_type_says,
);

#[test]
fn check_knows_the_classes_of_recurring_tasks() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("windlass.toml");
    let check = |class: &str| {
        let text = format!("[recurring.a]\nclass = '{class}'\nschedule = '@daily'\n");
        std::fs::write(&file, text).unwrap();
        let registry = Registry::new().register::<Import>(());
        commands(&["check", "--config", file.to_str().unwrap()]).run(&registry)
    };
    assert_eq!(check("import"), ExitCode::SUCCESS);
    assert_eq!(check("export"), ExitCode::FAILURE);
}

#[derive(Parser)]
enum App {
    Jobs(Commands),
}

#[derive(Serialize, Deserialize)]
struct Import {
    #[serde(default)]
    file: Option<String>,
}

impl Job for Import {
    const NAME: &'static str = "import";
    const QUEUE: &'static str = "slow";
    const PRIORITY: i32 = 7;
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn commands(arguments: &[&str]) -> Commands {
    let App::Jobs(commands) = App::parse_from([&["app", "jobs"], arguments].concat());
    commands
}

fn stored(db: &TestDb) -> Vec<String> {
    db.texts("SELECT queue_name || ' ' || priority || ' ' || arguments AS t FROM solid_queue_jobs ORDER BY id")
}

fn the_classes_are_known(db: &TestDb) {
    let registry = Registry::new().register::<Import>(());
    let run = |arguments: &[&str]| {
        commands(&[arguments, &["--database", &db.url]].concat()).run(&registry)
    };
    let enqueue = |arguments: &str| run(&["enqueue", "import", arguments]);
    assert_eq!(enqueue(r#"{"file":"a"}"#), ExitCode::SUCCESS);
    assert_eq!(enqueue("null"), ExitCode::SUCCESS);
    assert_eq!(
        run(&["enqueue", "import", "--queue", "mail", "--priority", "1"]),
        ExitCode::SUCCESS
    );
    assert_eq!(enqueue(r#"{"file":1}"#), ExitCode::FAILURE);
    assert_eq!(run(&["enqueue", "export"]), ExitCode::FAILURE);
    assert_eq!(
        stored(db),
        [
            r#"slow 7 {"file":"a"}"#,
            r#"slow 7 {"file":null}"#,
            r#"mail 1 {"file":null}"#
        ]
    );
}

fn the_database_may_be_given(db: &TestDb) {
    let registry = Registry::new().register::<Import>(());
    let other = TestDb::sqlite();
    let run = |arguments: &[&str]| commands(arguments).run_on(&db.database, &registry);
    assert_eq!(run(&["enqueue", "import"]), ExitCode::SUCCESS);
    let elsewhere = ["--database", &other.url, "enqueue", "import"];
    assert_eq!(run(&elsewhere), ExitCode::SUCCESS);
    assert_eq!((stored(db).len(), stored(&other).len()), (1, 1));
}

/// The second version of its arguments: the first had a file.
#[derive(Serialize, Deserialize)]
struct Export {
    files: Vec<String>,
}

impl Job for Export {
    const NAME: &'static str = "export";
    const VERSION: u32 = 2;
    type State = ();
    type Output = ();

    fn upcast(_: u32, old: serde_json::Value) -> Result<serde_json::Value, JobError> {
        Ok(serde_json::json!({"files": [old["file"]]}))
    }

    fn concurrency(&self) -> Option<Concurrency> {
        Some(Concurrency::new(self.files.concat()))
    }

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn both() -> Registry {
    Registry::new()
        .register::<Import>(())
        .register::<Export>(())
}

fn arguments_of_old_versions_are_converted(db: &TestDb) {
    let enqueue = |class: &str, arguments: &str, version: &str| {
        let line = [
            "enqueue",
            class,
            arguments,
            "--arguments-version",
            version,
            "--database",
            &db.url,
        ];
        commands(&line).run(&both())
    };
    assert_eq!(enqueue("export", r#"{"file":"a"}"#, "1"), ExitCode::SUCCESS);
    assert_eq!(
        enqueue("export", r#"{"files":["b"]}"#, "2"),
        ExitCode::SUCCESS
    );
    assert_eq!(enqueue("import", r#"{"file":"c"}"#, "1"), ExitCode::SUCCESS);
    for (class, arguments, version) in [
        ("export", r#"{"files":["b"]}"#, "3"),
        ("export", r#"{"file":7}"#, "1"),
        ("import", "null", "2"),
    ] {
        assert_eq!(
            enqueue(class, arguments, version),
            ExitCode::FAILURE,
            "{class}"
        );
    }
    let details = |job: i64| {
        let shown = windlass::jobs::reveal(&mut db.connection(), windlass::JobId(job));
        let shown = shown.unwrap().unwrap();
        (shown.arguments_version, shown.arguments)
    };
    let files = |name: &str| Some(serde_json::json!({"files": [name]}));
    assert_eq!(details(1), (Some(2), files("a")));
    assert_eq!(details(2), (Some(2), files("b")));
    assert_eq!(db.rows("jobs"), 3);
}

fn a_changed_task_has_what_its_type_says(db: &TestDb) {
    let run = |arguments: &[&str]| {
        commands(&[&["recurring"], arguments, &["--database", &db.url]].concat()).run(&both())
    };
    let options = || {
        let text = db.texts("SELECT options AS t FROM solid_queue_recurring_tasks");
        let options: serde_json::Value = serde_json::from_str(&text[0]).unwrap();
        (
            options["policy"]["extras"]["version"].as_u64(),
            options["concurrency"]["key"].as_str().map(str::to_owned),
        )
    };
    let key = |key: &str| Some(key.to_owned());
    let add = [
        "add",
        "t",
        "--class",
        "import",
        "--schedule",
        "@daily",
        "--arguments",
        "{}",
    ];
    assert_eq!(run(&add), ExitCode::SUCCESS);
    assert_eq!(options(), (None, None));
    let other = [
        "change",
        "t",
        "--class",
        "export",
        "--arguments",
        r#"{"files":["a"]}"#,
    ];
    assert_eq!(run(&other), ExitCode::SUCCESS);
    assert_eq!(options(), (Some(2), key("a")));
    let arguments = ["change", "t", "--arguments", r#"{"files":["b"]}"#];
    assert_eq!(run(&arguments), ExitCode::SUCCESS);
    assert_eq!(options(), (Some(2), key("b")));
    assert_eq!(run(&["change", "t", "--queue", "x"]), ExitCode::SUCCESS);
    assert_eq!(options(), (Some(2), key("b")));
    // The program `windlass` does not know the types.
    let change = [
        "recurring",
        "change",
        "t",
        "--class",
        "import",
        "--arguments",
        "{}",
    ];
    assert!(crate::support::program::windlass(&db.url, &change).is_done());
    assert_eq!(options().0, None);
    // A limit that the program set for the task alone stays.
    let job = Export {
        files: vec!["c".into()],
    };
    let own = RecurringTask::new("t", "@daily", &job).unwrap();
    windlass::recurring::schedule(
        &mut db.connection(),
        &own.concurrency(Concurrency::new("own")),
    )
    .unwrap();
    assert_eq!(run(&arguments), ExitCode::SUCCESS);
    assert_eq!(options(), (Some(2), key("own")));
}
