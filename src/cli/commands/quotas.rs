//! `windlass quotas`.

use crate::cli::select::connect;
use crate::db::Database;
use crate::error::Result;
use crate::job::policy::quota::{self, QuotaStatus};
use crate::terminal::output::Report;
use crate::terminal::table::{Column, Table, printable};
use serde::Serialize;

/// Show the quotas of enqueues, and how much of each is used
///
/// A quota is shown for seven days after its last enqueue, with the limits that a recent one had.
/// Seconds, minutes and days are those of UTC. What a quota does not limit is not counted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass quotas
  windlass quotas --json | jq '.quotas[] | select(.most_per_day and .this_day >= .most_per_day)'")]
pub(crate) struct Quotas {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The quotas at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct QuotaList {
    quotas: Vec<QuotaStatus>,
}

impl Quotas {
    pub(crate) fn run(&self, database: &Database) -> Result<QuotaList> {
        Ok(QuotaList {
            quotas: quota::quotas(&mut connect(database)?)?,
        })
    }
}

impl Report for QuotaList {
    fn text(&self, width: Option<usize>) -> String {
        if self.quotas.is_empty() {
            return "No quota was used in the last seven days.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::text("QUOTA"),
            Column::number("WAITING"),
            Column::number("SECOND"),
            Column::number("MINUTE"),
            Column::number("DAY"),
            Column::text("EXCEEDED"),
        ]);
        let of = |used: i64, limit: Option<i64>| match limit {
            Some(limit) => format!("{used}/{limit}"),
            None => "-".to_owned(),
        };
        for quota in &self.quotas {
            table.add(vec![
                printable(&quota.name),
                of(quota.waiting, quota.most_waiting),
                of(quota.this_second, quota.most_per_second),
                of(quota.this_minute, quota.most_per_minute),
                of(quota.this_day, quota.most_per_day),
                if quota.sheds { "shed" } else { "strict" }.to_owned(),
            ]);
        }
        table.text(width)
    }
}
