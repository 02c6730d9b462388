//! The commands within a program of the user's own.

use crate::on_each_database;
use crate::support::TestDb;
use clap::Parser;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use windlass::cli::Commands;
use windlass::{Context, Job, JobResult, Registry};

on_each_database!(the_classes_are_known, the_database_may_be_given);

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
