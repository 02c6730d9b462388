//! The options of the kind `scale`.

use std::time::Duration;

/// The numbers of workers and kept jobs.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ScaleOptions {
    /// Worker processes of one thread, one figure for each number, for `scale`
    ///
    /// Each holds three connections: see `max_connections` of the server.
    #[arg(long, value_name = "WORKERS", value_delimiter = ',', default_value = "1,2,5,10,20", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) workers: Vec<u32>,
    /// Finished jobs that are kept, one figure for each number, for `scale`
    #[arg(
        long,
        value_name = "JOBS",
        value_delimiter = ',',
        default_value = "10000,100000,1000000"
    )]
    pub(crate) kept: Vec<u32>,
    /// Jobs for each thread before those that count, so that the workers know how long they take, for `scale`
    #[arg(long, value_name = "JOBS", default_value_t = 100)]
    pub(crate) learned: u32,
    /// Drains of the jobs before the drain that counts, where storage settings are compared, for `scale`
    #[arg(long, value_name = "TIMES", default_value_t = 5)]
    pub(crate) waves: u32,
    /// The time for which workers are idle before their work starts, for `scale`
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    pub(crate) settle: Duration,
}
