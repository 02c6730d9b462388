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
    Enqueue,
    PickUp,
}

impl Row {
    /// In the order of the table.
    pub(crate) const ALL: [Row; 13] = [
        Row::Drain(Work::Nothing, 1),
        Row::Drain(Work::Nothing, 16),
        Row::Drain(Work::Insert, 16),
        Row::Drain(Work::Sleep(1), 16),
        Row::Drain(Work::Sleep(5), 16),
        Row::Drain(Work::FailOnce, 16),
        Row::Enqueue(1),
        Row::Enqueue(8),
        Row::Bulk,
        Row::PickUp(Since::Call, Part::P50),
        Row::PickUp(Since::Call, Part::P99),
        Row::PickUp(Since::Answer, Part::P50),
        Row::PickUp(Since::Answer, Part::P99),
    ];

    pub(crate) fn kind(self) -> Kind {
        match self {
            Row::Drain(..) => Kind::Drain,
            Row::Enqueue(_) | Row::Bulk => Kind::Enqueue,
            Row::PickUp(..) => Kind::PickUp,
        }
    }

    /// All rows of pick-up come from one measurement.
    pub(crate) fn is_measured(self) -> bool {
        !matches!(self, Row::PickUp(..)) || self == Row::PickUp(Since::Call, Part::P50)
    }

    /// Returns true if less is better.
    pub(crate) fn is_time(self) -> bool {
        self.kind() == Kind::PickUp
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
        }
    }

    /// Returns the number of jobs to drain, for so many no-ops: they take some seconds if all is well.
    pub(crate) fn jobs(self, noops: u32) -> u32 {
        match self {
            Row::Drain(Work::Insert | Work::FailOnce, _) => noops / 4,
            Row::Drain(Work::Sleep(1), _) => noops / 3,
            Row::Drain(Work::Sleep(_), _) => noops / 10,
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
        Work::Stamp => "pick-up".to_owned(),
    }
}
