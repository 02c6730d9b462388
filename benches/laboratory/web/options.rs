//! The options of the kind `web`.

use crate::laboratory::filled::sizes::Sizes;
use std::time::Duration;

/// The options for measuring the pages.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WebOptions {
    #[command(flatten)]
    pub(crate) sizes: Sizes,
    /// Requests of each page, for `web`
    #[arg(long, default_value_t = 200, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) requests: u32,
    /// Requests a second of all pages together, for `web`
    #[arg(long, default_value_t = 5, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rate: u32,
    /// Pages that are open at once and kept up to date, for `web`
    #[arg(long, default_value_t = 50, value_name = "PAGES", value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) viewers: u32,
    /// Database of `web`, which is filled if it is empty, and kept. Default: one that is removed
    #[arg(long, value_name = "URL")]
    pub(crate) filled: Option<String>,
    /// Print the statements of the web server that take longer, for `web`
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) slow: Option<Duration>,
}
