//! Commands that share the threads of queues between tenants, and show the shares.

use crate::cli::config::CommandError;
use crate::cli::listed::ChangedBy;
use crate::cli::select::connect;
use crate::terminal::{self, Column, Report, Table, printable};
use serde::Serialize;
use std::process::ExitCode;
use windlass::tenants::{self, FairQueue, ShareBy, TenantStatus};
use windlass::{Database, Result};

/// Share the threads of queues between tenants
#[derive(Debug, clap::Subcommand)]
pub(crate) enum TenantsCommand {
    List(ListTenants),
    Share(ShareQueue),
    Unshare(UnshareQueue),
    Weight(WeighTenant),
}

impl TenantsCommand {
    pub(crate) fn show(&self, db: &Database) -> Result<ExitCode, CommandError> {
        Ok(match self {
            TenantsCommand::List(list) => {
                let db = db.clone().read_only();
                match &list.queue {
                    Some(queue) => terminal::show(&list_tenants(&db, queue)?, list.json),
                    None => terminal::show(&list_queues(&db)?, list.json),
                }
            }
            TenantsCommand::Share(share) => terminal::show(&share.run(db)?, share.json),
            TenantsCommand::Unshare(unshare) => terminal::show(&unshare.run(db)?, unshare.json),
            TenantsCommand::Weight(weigh) => terminal::show(&weigh.run(db)?, weigh.json),
        })
    }
}

/// The most lines of a queue, or jobs of a line, that are counted.
const MOST: i64 = 1_000;

fn counted(number: i64) -> String {
    let more = if number < MOST { "" } else { "+" };
    format!("{number}{more}")
}

// --- `windlass tenants list` ---

/// List the shared queues, or up to 100 tenants of one
///
/// The share is the part of what all tenants have used lately: a use counts half after a minute.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass tenants list
  windlass tenants list mail")]
pub(crate) struct ListTenants {
    /// The queue
    #[arg(value_name = "QUEUE")]
    queue: Option<String>,

    /// Print JSON; shares are from 0 to 1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ListedFairQueues {
    queues: Vec<FairQueue>,
}

fn list_queues(database: &Database) -> Result<ListedFairQueues> {
    let queues = tenants::queues(&mut connect(database)?)?;
    Ok(ListedFairQueues { queues })
}

impl Report for ListedFairQueues {
    fn text(&self, width: Option<usize>) -> String {
        if self.queues.is_empty() {
            return "No queue is shared.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::text("QUEUE"),
            Column::text("BY"),
            Column::number("LINES"),
        ]);
        for queue in &self.queues {
            table.add(vec![
                printable(&queue.queue),
                by(queue.by).to_owned(),
                counted(queue.waiting),
            ]);
        }
        table.text(width)
    }
}

fn by(by: ShareBy) -> &'static str {
    match by {
        ShareBy::Jobs => "jobs",
        ShareBy::Time => "time",
    }
}

#[derive(Debug, Serialize)]
struct ListedTenants {
    queue: String,
    tenants: Vec<TenantStatus>,
}

fn list_tenants(database: &Database, queue: &str) -> Result<ListedTenants> {
    Ok(ListedTenants {
        queue: queue.to_owned(),
        tenants: tenants::list(&mut connect(database)?, queue)?,
    })
}

impl Report for ListedTenants {
    fn text(&self, width: Option<usize>) -> String {
        if self.tenants.is_empty() {
            return format!("No tenant uses {}.\n", printable(&self.queue));
        }
        let mut table = Table::new(&[
            Column::text("TENANT"),
            Column::number("WEIGHT"),
            Column::number("WAITING"),
            Column::number("RUNNING"),
            Column::number("SHARE"),
        ]);
        for tenant in &self.tenants {
            table.add(vec![
                printable(&tenant.tenant),
                tenant.weight.to_string(),
                counted(tenant.waiting),
                tenant.running.to_string(),
                format!("{:.1} %", tenant.share * 100.0),
            ]);
        }
        table.text(width)
    }
}

// --- `windlass tenants share` and `windlass tenants unshare` ---

/// Share the threads of a queue between its tenants: they take turns
///
/// It counts at once and until it is ended. A job without a tenant waits for no turn.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass tenants share mail
  windlass tenants share import --time --reason 'jobs of acme run long'")]
pub(crate) struct ShareQueue {
    /// The queue
    #[arg(value_name = "QUEUE")]
    queue: String,

    /// Share by the time that jobs run [default: by their number]
    #[arg(long)]
    time: bool,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A queue after a command.
#[derive(Debug, Serialize)]
struct SharedQueue {
    queue: String,
    /// `None` if its threads are not shared.
    by: Option<ShareBy>,
    /// True if that has changed.
    changed: bool,
}

impl ShareQueue {
    fn run(&self, database: &Database) -> Result<SharedQueue> {
        let by = match self.time {
            true => ShareBy::Time,
            false => ShareBy::Jobs,
        };
        let actor = self.changed_by.actor();
        actor.share_queue(&mut connect(database)?, &self.queue, by)?;
        Ok(SharedQueue {
            queue: self.queue.clone(),
            by: Some(by),
            changed: true,
        })
    }
}

/// Share the threads of a queue no more: jobs that wait for their turn go on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass tenants unshare mail")]
pub(crate) struct UnshareQueue {
    /// The queue
    #[arg(value_name = "QUEUE")]
    queue: String,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl UnshareQueue {
    fn run(&self, database: &Database) -> Result<SharedQueue> {
        let actor = self.changed_by.actor();
        Ok(SharedQueue {
            queue: self.queue.clone(),
            by: None,
            changed: actor.unshare_queue(&mut connect(database)?, &self.queue)?,
        })
    }
}

impl Report for SharedQueue {
    fn text(&self, _width: Option<usize>) -> String {
        let queue = printable(&self.queue);
        match (self.by, self.changed) {
            (Some(measure), _) => format!(
                "{queue} is shared by {}; `windlass tenants unshare {queue}` ends it.\n",
                by(measure)
            ),
            (None, true) => format!("{queue} is shared no more.\n"),
            (None, false) => format!("{queue} was not shared.\n"),
        }
    }
}

// --- `windlass tenants weight` ---

/// Set the weight of a tenant: with 3 it gets three times as much as one with 1
///
/// It counts from the next turn on, and stays until it is set to 1, the default.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass tenants weight mail acme 3")]
pub(crate) struct WeighTenant {
    /// The queue
    #[arg(value_name = "QUEUE")]
    queue: String,

    /// The tenant
    #[arg(value_name = "TENANT")]
    tenant: String,

    /// The weight, from 1 to 1000
    #[arg(value_name = "WEIGHT")]
    weight: u32,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct WeighedTenant {
    queue: String,
    tenant: String,
    weight: u32,
    /// True if it has changed.
    changed: bool,
}

impl WeighTenant {
    fn run(&self, database: &Database) -> Result<WeighedTenant> {
        let (actor, conn) = (self.changed_by.actor(), &mut connect(database)?);
        Ok(WeighedTenant {
            changed: actor.set_weight(conn, &self.queue, &self.tenant, self.weight)?,
            queue: self.queue.clone(),
            tenant: self.tenant.clone(),
            weight: self.weight,
        })
    }
}

impl Report for WeighedTenant {
    fn text(&self, _width: Option<usize>) -> String {
        let (tenant, queue) = (printable(&self.tenant), printable(&self.queue));
        let weight = self.weight;
        match self.changed {
            true => format!("The weight of {tenant} in {queue} is {weight}.\n"),
            false => format!("The weight of {tenant} in {queue} was {weight} already.\n"),
        }
    }
}
