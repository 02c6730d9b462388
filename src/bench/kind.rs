//! The names of what can be measured.

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Jobs that do nothing, kept and deleted, by one thread and by all
    Noop,
    /// Jobs that insert a row through `cx.connection()`
    Insert,
    /// Jobs that insert a row in a step
    Step,
    /// Jobs that insert a row and finish in the same transaction
    FinishIn,
    /// Jobs that sleep for 0.1 to 50 ms
    Sleep,
    /// Jobs that fail once and then succeed; runs are counted
    Retry,
    /// Jobs that fail permanently
    Fail,
    /// Jobs that snooze once and then finish; runs are counted
    Snooze,
    /// Jobs that are discarded
    Discard,
    /// Jobs whose result is kept
    Result,
    /// Jobs that run at most once
    AtMostOnce,
    /// A concurrency limit of 5 for each of 100 keys
    #[value(name = "limit-100x5")]
    Limit100x5,
    /// A concurrency limit of 1 for one key
    #[value(name = "limit-1")]
    Limit1,
    /// The same while jobs of other keys are blocked
    #[value(name = "limit-1-among")]
    Limit1Among,
    /// Enqueueing jobs with a concurrency limit
    LimitEnqueue,
    /// Jobs with unique ids: enqueueing, draining, clearing
    Unique,
    /// Scheduled jobs that are due at once
    Scheduled,
    /// Recurring tasks that are due in the same second
    Recurring,
    /// Enqueueing, one at a time and in bulk
    Enqueue,
    /// From the enqueue to the start in an idle worker, hop by hop
    Pickup,
    /// The start of an urgent job while many others wait
    Urgent,
    /// Jobs that do nothing, among very many waiting jobs or queues
    Backlog,
    /// The cost of an idle worker
    Idle,
}

impl Kind {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
