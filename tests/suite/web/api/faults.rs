//! Requests under the deaths of clients and servers: nothing acknowledged is lost, nothing is doubled.

use super::super::access::token;
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::{Running, Windlass};
use crate::support::server::free_port;
use crate::support::wait::{eventually, until_none_is_left};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use windlass::{Context, Job, JobResult, Registry, Worker};

/// The number of jobs, unless `WINDLASS_TEST_HTTP_REQUESTS` gives another one.
const JOBS: i64 = 1_500;

/// The job that the clients enqueue.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Ship(#[allow(dead_code, reason = "the number is only looked at in the database")] i64);

impl Job for Ship {
    const NAME: &'static str = "ship";
    type State = ();
    type Output = ();

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

/// A client in Python that goes on where the last one was killed: it notes each acknowledged job.
/// Ends when dropped.
struct Client(Child);

impl Client {
    fn start(number: usize, address: &str, token: &str, jobs: i64, log: &Path) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("python3");
        command
            .arg(here.join("drivers/enqueue_over_http.py"))
            .args([address, token, &number.to_string(), &jobs.to_string()])
            .arg(log)
            .stdin(Stdio::null());
        Client(command.spawn().expect("install python3"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn server(db: &TestDb, port: u16) -> Running {
    let listen = format!("127.0.0.1:{port}");
    Windlass::new(&["web", "--listen", &listen])
        .env("DATABASE_URL", &db.url)
        .start()
}

/// Returns the number of jobs that a client has noted.
fn noted(log: &Path) -> i64 {
    std::fs::metadata(log).map_or(0, |log| i64::try_from(log.len()).unwrap() / 16)
}

fn requests_survive_the_death_of_clients_and_servers(db: &TestDb) {
    let wanted = std::env::var("WINDLASS_TEST_HTTP_REQUESTS");
    let each: i64 = wanted.map_or(JOBS, |text| text.parse().unwrap()) / 2;
    let secret = token(db, "shop", "enqueuer", &["--class", "ship"]);
    let directory = tempfile::tempdir().unwrap();
    let logs = [0, 1].map(|number: usize| directory.path().join(number.to_string()));
    let _worker = Worker::new(&db.database, Registry::new().register::<Ship>(())).start();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let start = |number: usize| Client::start(number, &address, &secret, each, &logs[number]);
    let mut running = server(db, port);
    let mut clients = [0, 1].map(start);
    let done = || logs.iter().map(|log| noted(log)).sum::<i64>();
    let mut kills = 0;
    loop {
        // Again and again, one of the three is killed, at any moment.
        let next = (done() + fastrand::i64(1..=(each / 5).min(5_000))).min(each * 2);
        eventually("more jobs are acknowledged", || {
            (done() >= next).then_some(())
        });
        if next == each * 2 {
            break;
        }
        match fastrand::usize(..4) {
            number @ (0 | 1) => {
                // Dead before the next one reads its notes.
                clients[number].0.kill().unwrap();
                clients[number].0.wait().unwrap();
                clients[number] = start(number);
            }
            _ => {
                running.signal(Signal::KILL);
                running.said(); // its port is free again
                running = server(db, port);
            }
        }
        kills += 1;
    }
    for client in &mut clients {
        assert!(client.0.wait().unwrap().success());
    }
    eprintln!("{} jobs, {kills} deaths", each * 2);
    let count = |sql: &str| db.count(sql);
    assert_eq!(
        count("SELECT count(*) AS n FROM solid_queue_jobs"),
        each * 2
    );
    let distinct =
        "SELECT count(DISTINCT arguments) AS n FROM solid_queue_jobs WHERE class_name = 'ship'";
    assert_eq!(count(distinct), each * 2);
    until_none_is_left("all have run", || {
        count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NULL")
    });
}

on_each_database!(requests_survive_the_death_of_clients_and_servers);
