//! Jobs that do nothing, among very many waiting jobs, very many queues, or dead rows.

use crate::db::AsConn as _;
use crate::error::{ErrorContext as _, Result};
use crate::laboratory::comparison::{Ceiling, Comparison, FigureValue};
use crate::laboratory::counters;
use crate::laboratory::drains;
use crate::laboratory::jobs::nothing;
use crate::laboratory::role::Setup;
use crate::laboratory::run::BenchRun;

/// Jobs that wait beside the counted ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backlog {
    Jobs(u32),
    Queues(u64),
    /// Also dead rows: others have drained jobs while a transaction stays open, so that no vacuum
    /// can remove their rows.
    Transaction,
}

/// The number of drains before the one that counts, each of as many jobs.
const WAVES: u32 = 5;

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let (jobs, backlog) = (run.jobs(drains::NO_OP), run.settings.backlog);
    let of = |beside: Backlog, figure: String| {
        Comparison::new(figure, move |run| drain(run, jobs, beside))
            .beside(Ceiling::one("nothing beside", move |run| {
                drain(run, jobs, Backlog::Jobs(0))
            }))
    };
    vec![
        of(Backlog::Jobs(backlog), format!("{backlog} jobs waiting")),
        of(Backlog::Queues(10_000), "10000 queues".to_owned()),
        of(
            Backlog::Transaction,
            "a transaction open meanwhile".to_owned(),
        ),
    ]
}

fn drain(run: &BenchRun, jobs: u32, beside: Backlog) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = place.migrated()?;
    let setup = Setup {
        threads: run.settings.threads,
        runs: u64::from(jobs),
        delete: false,
        dispatcher: false,
        queue: "*",
    };
    let mut reader = database.connect()?;
    let mut connection = database.connect()?;
    if beside == Backlog::Transaction {
        counters::open_snapshot(&mut reader.as_conn()).during("open a transaction")?;
        for _ in 0..WAVES {
            drains::fill(&mut connection, jobs, &nothing)?;
            drains::move_jobs(run, place.url(), &database, setup)?;
        }
    }
    drains::fill(&mut connection, jobs, &|number| match beside {
        Backlog::Queues(queues) => Ok(nothing(number)?.queue(format!("queue_{}", number % queues))),
        _ => nothing(number),
    })?;
    if let Backlog::Jobs(waiting) = beside {
        drains::fill(&mut connection, waiting, &nothing)?;
    }
    let cost = drains::move_jobs(run, place.url(), &database, setup)?;
    Ok(drains::rate(&cost))
}
