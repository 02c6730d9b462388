//! Measures enqueues through sqlx: single ones beside hand-written statements that leave the same rows, and 1,000 at
//! once beside `windlass::enqueue_all`.
//!
//! Usage: enqueue-bench DATABASE SECONDS
//! The database is the URL of a Postgres server or the path of a SQLite file, with the tables of `windlass migrate`.
//! Both sides of a figure are measured in turn. A ratio is taken within a round; the table has medians, and the smallest
//! and the largest ratio.

#![allow(
    clippy::disallowed_methods,
    reason = "a program of the tests, outside of Windlass"
)]

use serde::{Deserialize, Serialize};
use sqlx::{Connection, Executor};
use std::error::Error;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use windlass::{Context, Job, JobResult};
use windlass_enqueue::sqlx_0_9::{JobConnection, enqueue, enqueue_all};
use windlass_enqueue::{JobArgs, NewJob};

type Done = Result<(), Box<dyn Error>>;
type Work<'a> = Box<dyn FnMut(&Runtime) -> Done + 'a>;

const ROUNDS: u32 = 9;
const CLASS: &str = "bench";
const BULK: u64 = 1000;

#[derive(Serialize, Deserialize)]
struct Bench {
    order: u64,
    name: String,
}

impl Bench {
    fn new(order: u64) -> Self {
        let name = "a name of some length".to_owned();
        Bench { order, name }
    }
}

impl JobArgs for Bench {
    const NAME: &'static str = CLASS;
    const QUEUE: &'static str = "mail";
    const PRIORITY: i32 = 3;
}

impl Job for Bench {
    const NAME: &'static str = CLASS;
    const QUEUE: &'static str = "mail";
    const PRIORITY: i32 = 3;
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, seconds] = &arguments[..] else {
        return Err("usage: enqueue-bench DATABASE SECONDS".into());
    };
    let time = Duration::from_secs(seconds.parse()?);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    if database.starts_with("postgres") {
        let connect = || runtime.block_on(sqlx::PgConnection::connect(database));
        let by_hand = |conn: &mut sqlx::PgConnection, runtime: &Runtime, job: &Bench| {
            runtime.block_on(postgres_by_hand(conn, job))
        };
        figures(&runtime, database, time, connect, by_hand)
    } else {
        let url = format!("sqlite://{database}");
        let connect = || runtime.block_on(sqlx::SqliteConnection::connect(&url));
        let by_hand = |conn: &mut sqlx::SqliteConnection, runtime: &Runtime, job: &Bench| {
            runtime.block_on(sqlite_by_hand(conn, job))
        };
        figures(&runtime, &url, time, connect, by_hand)
    }
}

fn figures<C: JobConnection>(
    runtime: &Runtime,
    url: &str,
    time: Duration,
    connect: impl Fn() -> sqlx::Result<C>,
    by_hand: impl Fn(&mut C, &Runtime, &Bench) -> Done,
) -> Done
where
    for<'c> &'c mut C: Executor<'c, Database = C::Database>,
{
    let (mut one, mut other) = (connect()?, connect()?);
    let mut orders = 0..;
    let single: Work = Box::new(|runtime| {
        let job = Bench::new(orders.next().unwrap_or_default());
        runtime.block_on(async {
            let job = NewJob::new(&job)?;
            let mut transaction = one.begin().await?;
            enqueue(&mut *transaction, &job).await?;
            transaction.commit().await?;
            Ok(())
        })
    });
    let mut others = 0..;
    let single_by_hand: Work = Box::new(|runtime| {
        let job = Bench::new(others.next().unwrap_or_default());
        by_hand(&mut other, runtime, &job)
    });
    compare(runtime, "single", (1, 50), time, [single, single_by_hand])?;

    let mut conn = connect()?;
    let all: Work = Box::new(|runtime| {
        let jobs = (0..BULK).map(|order| NewJob::new(&Bench::new(order)));
        let jobs: Vec<NewJob> = jobs.collect::<Result<_, _>>()?;
        runtime.block_on(async {
            let mut transaction = conn.begin().await?;
            enqueue_all(&mut *transaction, &jobs).await?;
            transaction.commit().await?;
            Ok(())
        })
    });
    let mut connection = windlass::Database::open(url)?.connect()?;
    let all_of_windlass: Work = Box::new(|_| {
        let jobs = (0..BULK).map(|order| windlass::NewJob::new(&Bench::new(order)));
        let jobs: Vec<windlass::NewJob> = jobs.collect::<Result<_, _>>()?;
        windlass::enqueue_all(&mut connection, jobs)?;
        Ok(())
    });
    compare(
        runtime,
        "1,000 at once",
        (BULK, 1),
        time,
        [all, all_of_windlass],
    )
}

/// Measures two ways in turn, in blocks of some calls, so that both have the same share of what else the machine does.
fn compare(
    runtime: &Runtime,
    figure: &str,
    (jobs, block): (u64, u32),
    time: Duration,
    mut ways: [Work; 2],
) -> Done {
    let mut rounds: Vec<[f64; 3]> = Vec::new();
    // The first round is not counted.
    for round in 0..=ROUNDS {
        let (start, mut took, mut blocks) = (Instant::now(), [Duration::ZERO; 2], 0);
        while start.elapsed() < time / ROUNDS || blocks < 2 {
            // Each is the first one in half of the blocks.
            for way in [blocks % 2, 1 - blocks % 2] {
                let start = Instant::now();
                for _ in 0..block {
                    ways[way](runtime)?;
                }
                took[way] += start.elapsed();
            }
            blocks += 1;
        }
        let calls = f64::from(block) * f64::from(u32::try_from(blocks)?);
        let rates = took.map(|took| calls * jobs as f64 / took.as_secs_f64());
        if round > 0 {
            rounds.push([rates[0], rates[1], rates[0] / rates[1]]);
        }
    }
    let [of_crate, of_other, ratio] = [0, 1, 2].map(|column| {
        let mut values: Vec<f64> = rounds.iter().map(|round| round[column]).collect();
        values.sort_by(f64::total_cmp);
        values
    });
    let median = |values: &[f64]| values[values.len() / 2];
    println!(
        "{figure}: {:.0} jobs/s, and {:.0} jobs/s of the other, ratio {:.2} ({:.2} to {:.2})",
        median(&of_crate),
        median(&of_other),
        median(&ratio),
        ratio[0],
        ratio[ratio.len() - 1]
    );
    Ok(())
}

async fn postgres_by_hand(conn: &mut sqlx::PgConnection, job: &Bench) -> Done {
    let arguments = serde_json::to_string(job)?;
    let mut transaction = conn.begin().await?;
    let query = sqlx::query_scalar::<_, i64>(
        "WITH job AS (INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, statement_timestamp() AT TIME ZONE 'UTC', statement_timestamp() AT TIME ZONE 'UTC') \
         RETURNING id, queue_name, priority, class_name, created_at), ready AS (INSERT INTO solid_queue_ready_executions \
         (job_id, queue_name, priority, class_name, cautious, created_at) \
         SELECT id, queue_name, priority, class_name, false, created_at FROM job) SELECT id FROM job",
    );
    let query = query.bind("mail").bind(CLASS).bind(arguments).bind(3);
    query.fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}

async fn sqlite_by_hand(conn: &mut sqlx::SqliteConnection, job: &Bench) -> Done {
    let arguments = serde_json::to_string(job)?;
    let mut transaction = conn.begin().await?;
    let query = sqlx::query_scalar::<_, i64>(
        "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now')) \
         RETURNING id",
    );
    let query = query.bind("mail").bind(CLASS).bind(arguments).bind(3);
    let id = query.fetch_one(&mut *transaction).await?;
    let query = sqlx::query(
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
         VALUES (?1, ?2, ?3, ?4, 0, strftime('%Y-%m-%d %H:%M:%f000', 'now'))",
    );
    let query = query.bind(id).bind("mail").bind(3).bind(CLASS);
    query.execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}
