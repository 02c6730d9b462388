//! Looks for a process in the database.

use crate::cli::commands::health::Diagnosis;
use crate::db::Database;
use crate::db::own;
use crate::db::query::presence::{self, Presence, WantedPresence};
use crate::error::{Doing as _, Result};
use crate::terminal::table::printable;
use std::time::Duration;

/// The process to look for.
#[derive(Debug)]
pub(super) struct WantedProcess {
    pub(super) hostname: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) name: Option<String>,
    /// Whether it must claim jobs.
    pub(super) ready: bool,
    pub(super) threshold: Duration,
}

impl WantedProcess {
    /// Looks for one such process.
    pub(super) fn look(&self, database: &Database) -> Result<Diagnosis> {
        let wanted = WantedPresence {
            hostname: self.hostname.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
        };
        let mut connection = database.connect()?;
        let found = presence::presences(&mut own(&mut connection), &wanted);
        let found = found.doing("look for the process")?;
        let is_fine = |one: &&Presence| self.trouble(one).is_none();
        Ok(match (found.iter().find(is_fine), found.first()) {
            (Some(fine), _) => Diagnosis {
                healthy: true,
                says: format!(
                    "{} sent a heartbeat {:.0} s ago",
                    printable(&fine.name),
                    fine.heartbeat_seconds
                ),
            },
            (None, newest) => Diagnosis {
                healthy: false,
                says: match newest.and_then(|one| Some((one, self.trouble(one)?))) {
                    Some((one, trouble)) => format!("{} {trouble}", printable(&one.name)),
                    None => self.nothing(),
                },
            },
        })
    }

    fn trouble(&self, one: &Presence) -> Option<String> {
        if one.heartbeat_seconds > self.threshold.as_secs_f64() {
            let seconds = one.heartbeat_seconds;
            Some(format!("has sent no heartbeat for {seconds:.0} s"))
        } else if self.ready && one.draining {
            Some("is stopping".to_owned())
        } else if self.ready && one.is_quiet() {
            Some("is quiet: it claims nothing until SIGCONT".to_owned())
        } else {
            None
        }
    }

    fn nothing(&self) -> String {
        let kind = self.kind.as_deref().unwrap_or("process");
        let named = self.name.iter().map(|name| format!(" named `{name}`"));
        let host = self.hostname.iter().map(|host| format!(" on `{host}`"));
        let which: String = named.chain(host).collect();
        printable(&format!("no {kind}{which} is registered"))
    }
}
