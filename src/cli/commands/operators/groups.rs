//! `windlass failed groups`.

use crate::admin::groups::{FailedGroups, failed_groups};
use crate::cli::select::connect;
use crate::cli::words::time;
use crate::db::Database;
use crate::error::Result;
use crate::terminal::output::Report;
use crate::terminal::table::{Column, Table, printable};

/// List failed jobs grouped by class, kind and message, the last seen first
///
/// Jobs are in one group if their messages differ only in numbers, ids, times, quoted texts, hosts and
/// addresses. `--fingerprint` of the other commands selects a group.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass failed groups
  windlass failed retry --fingerprint 0123456789abcdef --dry-run")]
pub(crate) struct GroupFailed {
    /// Show at most this many groups
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: u32,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl GroupFailed {
    pub(crate) fn run(&self, database: &Database) -> Result<FailedGroups> {
        failed_groups(&mut connect(database)?, self.limit)
    }
}

impl Report for FailedGroups {
    fn text(&self, width: Option<usize>) -> String {
        if self.groups.is_empty() {
            return "No job has failed.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::text("FINGERPRINT"),
            Column::text("CLASS"),
            Column::text("KIND"),
            Column::text("MESSAGE"),
            Column::number("JOBS"),
            Column::text("FIRST"),
            Column::text("LAST"),
        ]);
        for group in &self.groups {
            let more = if group.is_exact { "" } else { "+" };
            table.add(vec![
                printable(&group.fingerprint),
                printable(&group.class_name),
                printable(&group.kind),
                printable(&group.shape),
                format!("{}{more}", group.count),
                time(group.first_at),
                time(group.last_at),
            ]);
        }
        let mut text = table.text(width);
        if !self.is_complete {
            text.push_str("\nThese are not all groups; `--limit` shows more.\n");
        }
        text
    }
}
