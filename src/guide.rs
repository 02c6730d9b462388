//! Guides, concepts and reference pages: the files of `docs/`, beside the documentation of each item.
//!
//! | to do | page |
//! |---|---|
//! | start | [Getting started][getting-started.md], [Jobs and queries][jobs.md], [Enqueueing from async Rust][enqueue-from-async-rust.md], [by SQL][enqueue-by-sql.md], [over HTTP][enqueue-by-http.md], [Retries and failures][failures.md], [Deploying][deploying.md] |
//! | build | [Recurring tasks][recurring-tasks.md], [Unique jobs and results][unique-jobs-and-results.md], [Jobs that wait for jobs, and batches][flows.md], [Waits and steps][waits.md], [Limits and quotas][limits.md], [Rates][rates.md], [Fair shares][fair-shares.md], [Testing][testing.md] |
//! | run | [Configuration][configuration.md], [Operating][operating.md], [Web pages][web.md], [Find and change jobs][operators.md], [Measuring][measuring.md], [Performance][performance.md], [Scaling and failover][scaling.md] |
//! | switch | from [Solid Queue][coming-from-solid-queue.md] or [beside it][beside-rails.md], [Sidekiq][coming-from-sidekiq.md], [fang][coming-from-fang.md], [apalis][coming-from-apalis.md], [River][coming-from-river.md], [`graphile_worker`][coming-from-graphile.md], [awa][coming-from-awa.md], [others][coming-from-others.md] |
//! | understand | [Concepts][concepts.md], [Reliability][reliability.md], [Protocol][protocol.md], [Design][design.md] |
//! | look up | [settings][reference/settings.md], [exit codes][reference/exit-codes.md], [signals][reference/signals.md], [log lines][reference/log-lines.md], [events][reference/events.md], [metrics][reference/metrics.md], [the program `windlass`][reference/cli.md], [checks of `doctor`][reference/doctor.md] |
//!
#![doc = include_str!("guide/links.md")]
#![allow(
    rustdoc::redundant_explicit_links,
    reason = "a link names its file, for readers of the files"
)]

/// One page. Of two definitions of a link, Markdown takes the first: `links.md` leads to modules what the page's own
/// definitions lead to files.
macro_rules! page {
    ($name:ident, $file:literal) => {
        #[doc = include_str!("guide/links.md")]
        #[doc = include_str!(concat!("../docs/", $file))]
        pub mod $name {}
    };
}

page!(beside_rails, "beside-rails.md");
page!(coming_from_apalis, "coming-from-apalis.md");
page!(coming_from_awa, "coming-from-awa.md");
page!(coming_from_fang, "coming-from-fang.md");
page!(coming_from_graphile, "coming-from-graphile.md");
page!(coming_from_others, "coming-from-others.md");
page!(coming_from_river, "coming-from-river.md");
page!(coming_from_sidekiq, "coming-from-sidekiq.md");
page!(coming_from_solid_queue, "coming-from-solid-queue.md");
page!(concepts, "concepts.md");
page!(configuration, "configuration.md");
page!(deploying, "deploying.md");
page!(design, "design.md");
page!(failures, "failures.md");
page!(fair_shares, "fair-shares.md");
page!(flows, "flows.md");
page!(getting_started, "getting-started.md");
page!(enqueue_by_http, "enqueue-by-http.md");
page!(enqueue_by_sql, "enqueue-by-sql.md");
page!(enqueue_from_async_rust, "enqueue-from-async-rust.md");
page!(jobs, "jobs.md");
page!(limits, "limits.md");
page!(measuring, "measuring.md");
page!(operating, "operating.md");
page!(operators, "operators.md");
page!(performance, "performance.md");
page!(protocol, "protocol.md");
page!(rates, "rates.md");
page!(recurring_tasks, "recurring-tasks.md");
page!(reliability, "reliability.md");
page!(scaling, "scaling.md");
page!(testing, "testing.md");
page!(unique_jobs_and_results, "unique-jobs-and-results.md");
page!(waits, "waits.md");
page!(web, "web.md");

/// Tables to look things up in.
pub mod reference {
    page!(cli, "reference/cli.md");
    page!(doctor, "reference/doctor.md");
    page!(events, "reference/events.md");
    page!(exit_codes, "reference/exit-codes.md");
    page!(signals, "reference/signals.md");
    page!(log_lines, "reference/log-lines.md");
    page!(metrics, "reference/metrics.md");
    page!(settings, "reference/settings.md");
}
