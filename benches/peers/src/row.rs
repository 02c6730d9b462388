//! The rows of the table.

use windlass_peers_driver::Work;

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Row {
    /// By so many workers; jobs a second.
    Drain(Work, u32),
    /// One at a time, by so many callers; jobs a second.
    Enqueue(u32),
    /// Many a call; jobs a second.
    Bulk,
    /// In milliseconds.
    PickUp(Since, Part),
    /// By 16 workers, all jobs with one key of which one may run at a time; jobs a second.
    Limit,
    /// By 16 workers, with more jobs waiting than they can perform; jobs a second.
    Backlog,
    /// Of a worker without jobs.
    Idle(Idle),
    /// Of a drained no-op job, by 16 workers.
    Cost(Cost),
}

/// The work of a worker without jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// A second.
    Transactions,
    /// Of the worker and of the server, in percent of a core.
    Processor,
}

/// The price of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cost {
    /// The worker's time of the processor, in microseconds.
    Worker,
    /// That of the server.
    Server,
    /// Bytes of the write-ahead log.
    Log,
    /// The most memory that the worker had in all, in megabytes.
    Memory,
}

/// From when on a pick-up is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// The start of the call that enqueues.
    Call,
    /// Its return.
    Answer,
}

/// A quantile of all samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    P50,
    P99,
}

/// Rows that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Drain,
    Limit,
    Backlog,
    Enqueue,
    PickUp,
    Cost,
    Idle,
}

impl Row {
    /// In the order of the table.
    pub(crate) const ALL: [Row; 22] = [
        Row::Drain(Work::Nothing, 1),
        Row::Drain(Work::Nothing, 16),
        Row::Drain(Work::Insert, 16),
        Row::Drain(Work::Sleep(1), 16),
        Row::Drain(Work::Sleep(5), 16),
        Row::Drain(Work::Sleep(10), 16),
        Row::Drain(Work::FailOnce, 16),
        Row::Limit,
        Row::Backlog,
        Row::Enqueue(1),
        Row::Enqueue(8),
        Row::Bulk,
        Row::PickUp(Since::Call, Part::P50),
        Row::PickUp(Since::Call, Part::P99),
        Row::PickUp(Since::Answer, Part::P50),
        Row::PickUp(Since::Answer, Part::P99),
        Row::Cost(Cost::Worker),
        Row::Cost(Cost::Server),
        Row::Cost(Cost::Log),
        Row::Cost(Cost::Memory),
        Row::Idle(Idle::Transactions),
        Row::Idle(Idle::Processor),
    ];

    pub(crate) fn kind(self) -> Kind {
        match self {
            Row::Drain(..) => Kind::Drain,
            Row::Enqueue(_) | Row::Bulk => Kind::Enqueue,
            Row::PickUp(..) => Kind::PickUp,
            Row::Limit => Kind::Limit,
            Row::Backlog => Kind::Backlog,
            Row::Idle(_) => Kind::Idle,
            Row::Cost(_) => Kind::Cost,
        }
    }

    /// The row with whose measurement this one comes.
    pub(crate) fn source(self) -> Row {
        match self {
            Row::PickUp(..) => Row::PickUp(Since::Call, Part::P50),
            Row::Cost(_) => Row::Drain(Work::Nothing, 16),
            Row::Idle(_) => Row::Idle(Idle::Processor),
            _ => self,
        }
    }

    /// Returns true if less is better.
    pub(crate) fn is_price(self) -> bool {
        matches!(self.kind(), Kind::PickUp | Kind::Cost | Kind::Idle)
    }

    pub(crate) fn heading(self) -> String {
        match self {
            Row::Drain(work, workers) => format!("{}, {workers} at once", heading_of(work)),
            Row::Enqueue(1) => "enqueue, 1 caller".to_owned(),
            Row::Enqueue(callers) => format!("enqueue, {callers} callers"),
            Row::Bulk => "enqueue, 1,000 a call".to_owned(),
            Row::PickUp(since, part) => {
                let since = match since {
                    Since::Call => "call",
                    Since::Answer => "answer",
                };
                let part = match part {
                    Part::P50 => "p50",
                    Part::P99 => "p99",
                };
                format!("pick-up from the {since}, {part}, ms")
            }
            Row::Limit => "no-op, one key with a limit of 1".to_owned(),
            Row::Backlog => "no-op, 16 at once, from a backlog".to_owned(),
            Row::Cost(Cost::Worker) => "worker's processor, µs a job".to_owned(),
            Row::Cost(Cost::Server) => "server's processor, µs a job".to_owned(),
            Row::Cost(Cost::Log) => "write-ahead log, bytes a job".to_owned(),
            Row::Cost(Cost::Memory) => "worker's memory, MB".to_owned(),
            Row::Idle(Idle::Transactions) => "idle, transactions a second".to_owned(),
            Row::Idle(Idle::Processor) => "idle, % of a core".to_owned(),
        }
    }

    /// Returns the number of jobs, for so many no-ops: they take some seconds if all is well.
    pub(crate) fn jobs(self, noops: u32) -> u32 {
        match self {
            Row::Bulk => noops / 2,
            Row::Limit => noops / 10,

            Row::Drain(Work::Insert | Work::FailOnce, _) => noops / 4,
            Row::Drain(Work::Sleep(1), _) => noops / 3,
            Row::Drain(Work::Sleep(5), _) => noops / 10,
            Row::Drain(Work::Sleep(_), _) => noops / 20,
            _ => noops,
        }
    }
}

fn heading_of(work: Work) -> String {
    match work {
        Work::Nothing => "no-op".to_owned(),
        Work::Insert => "INSERT of a row".to_owned(),
        Work::Sleep(millis) => format!("sleep of {millis} ms"),
        Work::FailOnce => "fails once".to_owned(),
        Work::Alone => "alone".to_owned(),
        Work::Stamp => "pick-up".to_owned(),
    }
}
