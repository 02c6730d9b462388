//! The numbers of rows.

/// The rows of the database that `web` is measured with.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Sizes {
    /// Finished jobs of the database, for `web`
    #[arg(long, default_value_t = 10_000_000, value_name = "JOBS", value_parser = clap::value_parser!(u32).range(1_000..))]
    pub(crate) finished: u32,
    /// Ready jobs of the database, for `web`; a tenth as many are scheduled, and some are blocked
    #[arg(long, default_value_t = 1_000_000, value_name = "JOBS", value_parser = clap::value_parser!(u32).range(100..))]
    pub(crate) ready: u32,
    /// Failed jobs of the database, for `web`
    #[arg(long, default_value_t = 100_000, value_name = "JOBS", value_parser = clap::value_parser!(u32).range(100..))]
    pub(crate) failed: u32,
}

/// The number of queues.
pub(crate) const QUEUES: i64 = 20;

/// The number of classes. Each has one queue.
pub(crate) const CLASSES: i64 = 100;

/// The number of batches. Each has jobs that wait for it.
pub(crate) const FLOWS: i64 = 50;

/// The age of the first job, in seconds: 14 days.
pub(crate) const SPAN: i64 = 14 * 24 * 3_600;

impl Sizes {
    /// Returns how many jobs have ended: finished, discarded and failed ones, with ids from 1 on.
    pub(crate) fn ended(self) -> i64 {
        i64::from(self.finished) + i64::from(self.failed)
    }

    pub(crate) fn failed(self) -> i64 {
        i64::from(self.failed)
    }

    /// Returns how many jobs are running.
    pub(crate) fn claimed(self) -> i64 {
        (i64::from(self.ready) / 100).clamp(8, 800)
    }

    pub(crate) fn scheduled(self) -> u32 {
        self.ready / 10
    }

    pub(crate) fn blocked(self) -> u32 {
        self.ready / 50
    }

    /// Returns the id of a failed job, of which the first is number 1. They are spread evenly among
    /// those that have finished.
    pub(crate) fn failed_id(self, number: i64) -> i64 {
        (number * self.ended() + self.failed() - 1) / self.failed()
    }
}

/// Returns the queue of a class.
pub(crate) fn queue(class: i64) -> String {
    format!("queue_{}", class % QUEUES)
}

/// Returns the name of a class.
pub(crate) fn class_name(class: i64) -> String {
    format!("class_{class}")
}

/// Returns the class of a job, as [`CLASS`](crate::laboratory::filled::text::CLASS) does in SQL: some have
/// many more jobs than others.
pub(crate) fn class(id: i64) -> i64 {
    let mixed = mixed(id);
    (mixed % CLASSES) * (mixed / 128 % CLASSES) / (CLASSES - 1)
}

/// Returns a number that looks random, and is the same for the same id.
pub(crate) fn mixed(id: i64) -> i64 {
    (id * 2_654_435_761) % (1 << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_jobs_are_spread_among_the_finished_ones() {
        let sizes = Sizes {
            finished: 1_000,
            ready: 100,
            failed: 300,
        };
        let ids: Vec<i64> = (1..=300).map(|number| sizes.failed_id(number)).collect();
        assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!((ids[0], ids[299]), (5, 1_300));
    }

    #[test]
    fn every_class_has_jobs() {
        let seen: std::collections::BTreeSet<i64> = (1..100_000).map(class).collect();
        assert_eq!(seen, (0..CLASSES).collect());
    }
}
