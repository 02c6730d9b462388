//! The cost of many workers for one database: connections, wake-ups and claims.

use crate::support::TestDb;
use crate::support::process::{Do, Process, Scene, Work};
use crate::support::server::Server;
use crate::support::wait::until;
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

/// The server logs each statement, so that claims can be counted.
const SETTINGS: &str =
    "-c max_connections=1500 -c fsync=off -c shared_buffers=128MB -c log_statement=all";

/// Part of the statement that claims, and of nothing else.
const CLAIM: &str = "gone AS (DELETE FROM solid_queue_ready_executions";

/// The claims that the server has logged.
fn claims(server: &Server) -> usize {
    server.log().matches(CLAIM).count()
}

/// A session that hears what wakes the workers.
struct Ear(PgConnection);

impl Ear {
    fn on(db: &TestDb) -> Self {
        let mut conn = PgConnection::establish(&db.url).unwrap();
        let channels =
            db.texts("SELECT channel AS t FROM solid_queue_processes WHERE channel IS NOT NULL");
        for channel in channels {
            conn.batch_execute(&format!("LISTEN {channel}")).unwrap();
        }
        Ear(conn)
    }

    /// The number of wake-ups until now.
    fn heard(&mut self) -> usize {
        self.0.batch_execute("SELECT 1").unwrap();
        self.0.notifications_iter().count()
    }
}

/// The cost of jobs.
#[derive(Debug)]
struct Cost {
    jobs: usize,
    /// The workers that have run one.
    busy: usize,
    wakeups: usize,
    claims: usize,
}

struct Fleet<'a> {
    server: &'a Server,
    scene: &'a Scene<'a>,
    workers: Vec<Process>,
    jobs: usize,
}

impl Fleet<'_> {
    fn grow_to(&mut self, count: usize) {
        while self.workers.len() < count {
            self.workers.push(self.scene.worker_with(|role| {
                role.is_only_woken = true;
                role.threads = 1;
                role.url.push_str("?application_name=fleet");
            }));
        }
        let listening = "SELECT count(*) AS n FROM solid_queue_processes WHERE listening";
        until("all workers listen", || {
            self.scene.db.count(listening) == count as i64
        });
        self.is_idle();
    }

    /// Waits until no worker claims any more.
    fn is_idle(&self) {
        let mut last = usize::MAX;
        until("no worker claims", || {
            let before = std::mem::replace(&mut last, claims(self.server));
            std::thread::sleep(Duration::from_millis(200));
            before == last
        });
    }

    /// Enqueues jobs in lots, one after another, and returns what they cost.
    fn run(&mut self, lots: usize, lot: usize) -> Cost {
        let (db, claims_before) = (self.scene.db, claims(self.server));
        let effects = self.scene.effects().len();
        let mut ear = Ear::on(db);
        let mut connection = db.connect();
        for _ in 0..lots {
            let jobs = (self.jobs..self.jobs + lot).map(|number| {
                let what = if lot == 1 {
                    Do::Nothing
                } else {
                    Do::Sleep(300)
                };
                windlass::NewJob::new(&Work::new(&format!("job-{number}"), what)).unwrap()
            });
            windlass::enqueue_all(&mut connection, jobs).unwrap();
            self.jobs += lot;
            self.scene.drained();
            self.is_idle();
        }
        let pids = self.scene.effects().into_iter().skip(effects);
        Cost {
            jobs: lots * lot,
            busy: pids.map(|effect| effect.pid).collect::<BTreeSet<_>>().len(),
            wakeups: ear.heard(),
            claims: claims(self.server) - claims_before,
        }
    }

    /// Waits until idle workers have no more connections than they need: those that have written outcomes close one
    /// after a while.
    fn have_few_connections(&self) {
        let sessions =
            "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'fleet'";
        until("a worker has at most three connections", || {
            self.scene.db.count(sessions) <= 3 * self.workers.len() as i64
        });
    }
}

#[test]
fn what_an_enqueue_costs_does_not_grow_with_the_workers() {
    let Some(server) = Server::start_with(SETTINGS) else {
        eprintln!("NOT TESTED: many workers need WINDLASS_TEST_POSTGRES_BIN, which bin/test sets");
        return;
    };
    let db = server.database();
    let scene = Scene::new(&db);
    let mut fleet = Fleet {
        server: &server,
        scene: &scene,
        workers: Vec::new(),
        jobs: 0,
    };
    for workers in [1, 10, 50, 200] {
        fleet.grow_to(workers);
        fleet.have_few_connections();
        let (singles, lot) = (fleet.run(20, 1), fleet.run(1, workers));
        eprintln!("{workers} workers\n  {singles:?}\n  {lot:?}");
        for cost in [singles, lot] {
            // A job wakes a worker and one more, each of which may wake another when it can take no more itself.
            assert!(cost.wakeups <= 8 * cost.jobs, "{workers}: {cost:?}");
            // Each worker that is woken claims once, and once more after a job that took its last thread. On a slow machine
            // each also looks once without being woken: its pauses have grown to about the time that this takes.
            assert!(
                cost.claims <= 4 * (cost.jobs + cost.busy) + workers,
                "{workers}: {cost:?}"
            );
        }
    }
}
