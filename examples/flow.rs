//! Jobs that wait for jobs, for an event, and that undo what they did, with nothing installed:
//!
//! ```text
//! cargo run --example flow -- [--files N]
//! ```
//!
//! 1. A batch reads N files, a job each. In the middle, its worker process is killed with SIGKILL.
//! 2. When all are read, a job merges what they returned.
//! 3. Then two jobs publish the result, one on the web and one in print: each uploads it, adds it to an index, and waits for
//!    its approval, an event. While they wait, the worker is killed again.
//! 4. The web is approved. The print is refused: that job fails, and what it did is undone, the last step first.
//!
//! The program prints a line about the files, and one about each of the two jobs that publish:
//!
//! ```text
//! files: 40  read: 40  workers killed: 2  lines: 820
//! web: approved  published: upload, index  undone: nothing
//! print: refused  published: nothing  undone: index, upload
//! ```
//!
//! The exit code is 0 if all numbers and names are as here (the lines depend on N), and 1 otherwise.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]
#![expect(clippy::disallowed_methods, reason = "it is no loop of the framework")]

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use windlass::{
    Batch, Child, Context, Database, DbConnection, Dispatcher, Flow, Job, JobError, JobResult,
    NewJob, Registry, Supervisor, Worker,
};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Counts the lines of a file.
#[derive(Serialize, Deserialize)]
struct ReadFile {
    number: u64,
}

impl Job for ReadFile {
    const NAME: &'static str = "read_file";
    type State = Home;
    type Output = u64;

    fn perform(self, cx: &Context<'_, Home>) -> JobResult<u64> {
        if self.number > 2 {
            // On a busy machine the kill might come too late.
            cx.wait_for_the_kill(|| cx.sleep(Duration::from_millis(10)))?;
        }
        Ok(self.number)
    }
}

/// Adds up what the files have.
#[derive(Serialize, Deserialize)]
struct Merge;

impl Job for Merge {
    const NAME: &'static str = "merge";
    type State = Home;
    type Output = u64;

    fn perform(self, cx: &Context<'_, Home>) -> JobResult<u64> {
        let lines = cx.inputs::<u64>().map(|input| Ok(input?.value));
        Ok(lines.collect::<JobResult<Vec<u64>>>()?.iter().sum())
    }
}

/// Publishes the merged files, and waits for an approval.
#[derive(Serialize, Deserialize)]
struct Publish {
    medium: String,
}

#[derive(Serialize, Deserialize)]
struct Approval {
    is_given: bool,
}

impl Job for Publish {
    const NAME: &'static str = "publish";
    type State = Home;
    type Output = ();

    fn perform(self, cx: &Context<'_, Home>) -> JobResult {
        let lines: u64 = cx.input("merge")?;
        for effect in ["upload", "index"] {
            let undo = |_: &u64| {
                let medium = self.medium.clone();
                let effect = effect.to_owned();
                NewJob::new(&TakeBack { medium, effect })
            };
            cx.undo(undo).step(&mut cx.connection()?, effect, |conn| {
                note(conn, "published", &self.medium, effect)?;
                Ok(lines)
            })?;
        }
        let event = format!("approval/{}", self.medium);
        let day = Duration::from_secs(86_400);
        match cx.wait_event::<Approval>("approval", &event, day)? {
            Some(approval) if approval.is_given => Ok(()),
            Some(_) => Err(JobError::from("it was refused").fail()),
            None => Err(JobError::from("it was not approved within a day").fail()),
        }
    }
}

/// Undoes a step of [`Publish`].
#[derive(Serialize, Deserialize)]
struct TakeBack {
    medium: String,
    effect: String,
}

impl Job for TakeBack {
    const NAME: &'static str = "take_back";
    type State = Home;
    type Output = ();

    fn perform(self, cx: &Context<'_, Home>) -> JobResult {
        let mut conn = cx.connection()?;
        conn.transaction(|conn| {
            diesel::sql_query("DELETE FROM published WHERE medium = ? AND effect = ?")
                .bind::<Text, _>(&self.medium)
                .bind::<Text, _>(&self.effect)
                .execute(conn.sqlite()?)?;
            note(conn, "undone", &self.medium, &self.effect)?;
            cx.finish_in(conn)
        })
    }
}

fn note(conn: &mut DbConnection, table: &str, medium: &str, effect: &str) -> JobResult {
    diesel::sql_query(format!(
        "INSERT INTO {table} (medium, effect) VALUES (?, ?)"
    ))
    .bind::<Text, _>(medium)
    .bind::<Text, _>(effect)
    .execute(conn.sqlite()?)?;
    Ok(())
}

/// The directory that the processes share.
struct Home(PathBuf);

impl Home {
    fn database(&self) -> Result<Database> {
        let path = self.0.join("jobs.db");
        let path = path.to_str().ok_or("TMPDIR must be UTF-8")?;
        Ok(Database::open(&format!("sqlite://{path}"))?)
    }

    fn killed(&self) -> PathBuf {
        self.0.join("killed")
    }

    fn wait_for_the_kill<E>(&self, mut pause: impl FnMut() -> Result<(), E>) -> Result<(), E> {
        while !self.killed().exists() {
            pause()?;
        }
        Ok(())
    }
}

const WORKER: &str = "--as-worker";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        // The program runs itself again with these arguments.
        [WORKER, home] => work(home),
        [] => run(40),
        ["--files", files] => files.parse().map_err(Into::into).and_then(run),
        _ => Err("usage: flow [--files N]".into()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("flow: {error}");
        ExitCode::FAILURE
    })
}

fn registry(home: &Path) -> Registry {
    let home = || Home(home.to_owned());
    Registry::new()
        .register::<ReadFile>(home())
        .register::<Merge>(home())
        .register::<Publish>(home())
        .register::<TakeBack>(home())
}

/// Runs a worker process until its supervisor is gone.
fn work(home: &str) -> Result<ExitCode> {
    let database = Home(home.into()).database()?;
    let stopped = Worker::new(&database, registry(home.as_ref()))
        .threads(2)
        .shutdown_timeout(Duration::from_secs(5))
        .run()?;
    Ok(stopped.exit_code())
}

fn run(files: u64) -> Result<ExitCode> {
    if files < 5 {
        return Err("there must be 5 files or more".into());
    }
    let directory = tempfile::Builder::new()
        .prefix("windlass-flow-")
        .tempdir()?;
    let home = Home(directory.path().to_owned());
    let database = home.database()?;
    database.migrate()?;
    let conn = &mut database.connect()?;
    for table in ["published", "undone"] {
        let columns = "(id integer PRIMARY KEY, medium text NOT NULL, effect text NOT NULL)";
        diesel::sql_query(format!("CREATE TABLE {table} {columns}")).execute(conn.sqlite()?)?;
    }
    enqueue(conn, files)?;
    let path = directory.path().as_os_str();
    let _supervisor = Supervisor::new(&database)
        .child(Child::this_program([WORKER.as_ref(), path])?)
        .dispatcher(Dispatcher::new(&database).polling_interval(Duration::from_millis(50)))
        .start()?;

    let read = "SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = 'read_file' AND finished_at IS NOT NULL";
    wait(|| Ok(number(conn, read)? == 2))?;
    kill_worker(conn)?;
    std::fs::write(home.killed(), "")?;
    wait(|| Ok(number(conn, "SELECT count(*) AS n FROM windlass_waits")? == 2))?;
    kill_worker(conn)?;
    for (medium, is_given) in [("web", true), ("print", false)] {
        windlass::events::emit(conn, &format!("approval/{medium}"), &Approval { is_given })?;
    }
    let open = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NULL \
         AND id NOT IN (SELECT job_id FROM solid_queue_failed_executions)";
    wait(|| Ok(number(conn, open)? == 0))?;
    report(conn, files)
}

/// The whole flow, in one transaction.
fn enqueue(conn: &mut DbConnection, files: u64) -> Result<()> {
    let publish = |medium: &str| {
        let medium = medium.to_owned();
        NewJob::new(&Publish { medium })
    };
    let files = (1..=files).map(|number| NewJob::new(&ReadFile { number }));
    Flow::new()
        .batch("files", Batch::new("import").add(files))?
        .job("merge", &Merge)?
        .job("web", publish("web"))?
        .job("print", publish("print"))?
        .after("merge", ["files"])?
        .after("web", ["merge"])?
        .after("print", ["merge"])?
        .enqueue(conn)?;
    Ok(())
}

/// Kills the worker process, whatever it does.
fn kill_worker(conn: &mut DbConnection) -> Result<()> {
    let processes = windlass::processes::list(conn)?;
    let worker = processes.iter().find(|process| process.kind == "Worker");
    let pid = worker.and_then(|worker| Pid::from_raw(worker.pid));
    let pid = pid.ok_or("there is no worker")?;
    kill_process(pid, Signal::KILL)?;
    eprintln!("killed the worker {}", pid.as_raw_nonzero());
    Ok(())
}

/// Prints the result of the flow.
fn report(conn: &mut DbConnection, files: u64) -> Result<ExitCode> {
    let read = "SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = 'read_file' AND finished_at IS NOT NULL";
    let lines =
        "SELECT CAST(result AS integer) AS n FROM windlass_results WHERE class_name = 'merge'";
    let (read, lines) = (number(conn, read)?, number(conn, lines)?);
    println!("files: {files}  read: {read}  workers killed: 2  lines: {lines}");
    let web = [
        effects(conn, "published", "web")?,
        effects(conn, "undone", "web")?,
    ];
    println!("web: approved  published: {}  undone: {}", web[0], web[1]);
    let print = [
        effects(conn, "published", "print")?,
        effects(conn, "undone", "print")?,
    ];
    println!(
        "print: refused  published: {}  undone: {}",
        print[0], print[1]
    );
    let is_well = [read, lines] == [files as i64, (files * (files + 1) / 2) as i64]
        && web == ["upload, index", "nothing"]
        && print == ["nothing", "index, upload"];
    Ok(ExitCode::from(u8::from(!is_well)))
}

fn effects(conn: &mut DbConnection, table: &str, medium: &str) -> Result<String> {
    #[derive(QueryableByName)]
    struct Effect {
        #[diesel(sql_type = Text)]
        effect: String,
    }
    let query = format!("SELECT effect FROM {table} WHERE medium = ? ORDER BY id");
    let effects: Vec<Effect> = diesel::sql_query(query)
        .bind::<Text, _>(medium)
        .load(conn.sqlite()?)?;
    let effects: Vec<String> = effects.into_iter().map(|row| row.effect).collect();
    Ok(match effects.is_empty() {
        true => "nothing".to_owned(),
        false => effects.join(", "),
    })
}

fn number(conn: &mut DbConnection, query: &str) -> Result<i64> {
    #[derive(QueryableByName)]
    struct Number {
        #[diesel(sql_type = BigInt)]
        n: i64,
    }
    let number: Number = diesel::sql_query(query).get_result(conn.sqlite()?)?;
    Ok(number.n)
}

/// Waits until something is so; an error when it takes too long.
fn wait(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > Duration::from_secs(600) {
            return Err("it takes too long".into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
