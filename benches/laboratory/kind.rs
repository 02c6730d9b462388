//! The names of what can be measured.

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Jobs that do nothing, kept and deleted, by one thread and by all; ceiling: two clients (SQLite: one)
    Noop,
    /// Jobs that insert a row through `cx.connection()`; ceiling: as many threads (SQLite: one)
    Insert,
    /// Jobs that insert a row in a step; ceiling: the same with the row of the step
    Step,
    /// Jobs that insert a row and finish in the same transaction; ceiling: the same
    FinishIn,
    /// Jobs that sleep for 0.1 to 50 ms; ceiling: as many threads that only sleep
    Sleep,
    /// Jobs that fail once and then succeed; ceilings: the same rows, the no-op drain
    Retry,
    /// Jobs that fail permanently; ceilings: the same rows, the no-op drain
    Fail,
    /// Jobs that snooze once and then finish; ceilings: the same rows, the no-op drain
    Snooze,
    /// Jobs that are discarded; ceilings: the same rows, the no-op drain
    Discard,
    /// Jobs whose result is kept; ceilings: the same rows, the no-op drain
    Result,
    /// Jobs that run at most once; ceilings: plain SQL that claims one per thread, the no-op drain
    AtMostOnce,
    /// A concurrency limit of 5 for each of 100 keys; ceilings: a drain without limits
    #[value(name = "limit-100x5")]
    Limit100x5,
    /// A limit of 1 for one key; ceiling: one thread that ends a job and claims the next in one commit
    #[value(name = "limit-1")]
    Limit1,
    /// The same while jobs of other keys are blocked; ceilings: the same thread, limit-1
    #[value(name = "limit-1-among")]
    Limit1Among,
    /// Enqueueing jobs with a concurrency limit; ceiling: enqueueing without
    LimitEnqueue,
    /// Enqueueing jobs with a quota per minute that all have; ceiling: enqueueing without
    QuotaEnqueue,
    /// Rates for 1 to 100,000 keys, and one that is held; ceiling: the no-op drain
    Rates,
    /// Tenants of a fair queue: 1 to 100,000, another's turn, and how even the shares are; ceiling: the no-op drain
    Shares,
    /// Enqueueing, draining and clearing with unique ids; ceiling: the same with a table of ids
    Unique,
    /// Batches: drains, the time from the last end to what follows, plain jobs beside one; ceiling: the no-op drain
    Batches,
    /// Jobs that wait for events: what they cost an idle worker, and how soon one starts; ceiling: hardly any wait
    Waits,
    /// Scheduled jobs that are due at once, dispatched and drained; ceiling: the same rows
    Scheduled,
    /// Recurring tasks that are due in the same second; ceiling: the same rows
    Recurring,
    /// Enqueueing by 1 and 8 callers, and in bulk; ceilings: the same rows, Solid Queue's indexes
    Enqueue,
    /// From the enqueue to the start in an idle worker, by hops; ceiling: a thread that listens and claims
    Pickup,
    /// The start of an urgent job while jobs of 1 and 10 ms wait; ceiling: threads that claim one each
    Urgent,
    /// The no-op drain among very many jobs, queues or dead rows; ceiling: nothing beside
    Backlog,
    /// Drains by many processes, among very many kept jobs, and with other settings of the table of jobs;
    /// ceilings: one worker, nothing kept, as migrated
    Scale,
    /// The cost of an idle worker; no ceiling
    Idle,
    /// The pages of `windlass web` on a very large database; ceilings: a drain without viewers, one viewer
    Web,
}

impl Kind {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
