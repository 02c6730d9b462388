//! Rows that are gone, and that a long transaction keeps in the indexes.

use crate::support::TestDb;
use crate::support::db::{count, execute};
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::wait::until;
use std::sync::Arc;
use std::time::Duration;
use windlass::{Concurrency, DbConnection, Handle, NewJob, Registry, Worker};

const HOUR: Duration = Duration::from_secs(3600);
const KEPT: i64 = 100_000;

/// A transaction that has read, and does not end until this is dropped.
struct Long(#[allow(dead_code, reason = "holds the snapshot")] DbConnection);

impl Long {
    fn begin(db: &TestDb) -> Self {
        let mut connection = db.connect();
        execute(
            &mut connection,
            "SET idle_in_transaction_session_timeout = 0",
        );
        execute(&mut connection, "BEGIN ISOLATION LEVEL REPEATABLE READ");
        execute(&mut connection, "SELECT 1 FROM solid_queue_pauses");
        Long(connection)
    }
}

/// Takes as many ids as if so many concurrency keys had been wanted and promoted.
fn pass_keys(db: &TestDb) {
    db.execute(&format!(
        "INSERT INTO windlass_wanted_keys (key) SELECT 'past/' || i FROM generate_series(1, {KEPT}) AS i"
    ));
    db.execute("DELETE FROM windlass_wanted_keys WHERE key LIKE 'past/%'");
}

struct Bench {
    db: TestDb,
    gate: Arc<Gate>,
    _long: Long,
    _worker: Handle,
}

impl Bench {
    /// A worker that looks for work only when it is woken.
    fn new() -> Self {
        let db = TestDb::postgres();
        let long = Long::begin(&db);
        pass_keys(&db);
        let gate = Arc::new(Gate::default());
        gate.open();
        let registry = Registry::new()
            .register::<Note>(Arc::new(Log::default()))
            .register::<Wait>(Arc::clone(&gate));
        let worker = Worker::new(&db.database, registry)
            .threads(4)
            .polling_interval(HOUR)
            .start()
            .unwrap();
        Bench {
            db,
            gate,
            _long: long,
            _worker: worker,
        }
    }

    /// Enqueues jobs one after the other, each when the one before has ended.
    fn one_by_one(&self, jobs: i64) {
        let finished = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL";
        let mut connection = self.db.connect();
        let before = count(&mut connection, finished);
        for n in 1..=jobs {
            let note = NewJob::new(&Note::new(n.to_string())).unwrap();
            note.enqueue(&mut connection).unwrap();
            until("it has finished", || {
                count(&mut connection, finished) == before + n
            });
        }
    }

    /// Waits until looks for wanted keys read few of those that were taken,
    /// which is so after some seconds of work.
    fn looks_from_a_mark(&self) {
        let looks = "SELECT idx_scan AS n FROM pg_stat_all_indexes \
             WHERE indexrelname = 'windlass_wanted_keys_pkey' \
             AND relid = CAST('windlass_wanted_keys' AS regclass)";
        until("the worker looks from a mark", || {
            let (read, looked) = (self.passed(), self.db.count(looks));
            self.one_by_one(10);
            let (read, looked) = (self.passed() - read, self.db.count(looks) - looked);
            looked >= 5 && read < looked * KEPT / 2
        });
    }

    /// Returns the number of index entries that the looks for wanted keys have read.
    fn passed(&self) -> i64 {
        self.db.count(
            "SELECT CAST(sum(idx_tup_read) AS bigint) AS n FROM pg_stat_all_indexes \
             WHERE relid = CAST('windlass_wanted_keys' AS regclass)",
        )
    }
}

#[test]
fn a_claim_does_not_pass_all_keys_that_were_ever_wanted() {
    let bench = Bench::new();
    bench.looks_from_a_mark();
}

/// Its transaction named the key long before others that were promoted since.
#[test]
fn a_key_that_is_committed_late_is_found() {
    let bench = Bench::new();
    let mut late = bench.db.connect();
    execute(&mut late, "BEGIN");
    let limited = || {
        let job = NewJob::new(&Wait).unwrap();
        job.concurrency(Concurrency::new("k").group("g").limit(1))
    };
    limited().enqueue(&mut late).unwrap();
    pass_keys(&bench.db);
    bench.looks_from_a_mark();
    execute(&mut late, "COMMIT");
    until("the late one has run", || bench.gate.ended() == 1);
}
