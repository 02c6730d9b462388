//! `windlass health`.

mod rows;
mod url;

use crate::cli::failure::CommandError;
use crate::cli::mount::At;
use crate::clock;
use crate::error::{Error, Result};
use crate::process::base::registration::hostname;
use crate::terminal::output::{self, Report};
use serde::Serialize;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Check whether a process is healthy, for containers
///
/// With --url it asks the process over HTTP, at the address of its --listen. The database is not
/// used. Without, it looks in the database for a process of this host that has sent a heartbeat
/// lately: one is enough, so name the kind if several run on a host.
///
/// The exit code is 0 if it is healthy, and 1 if it is not or gives no answer within the timeout.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass health --url http://127.0.0.1:4041/readyz
  windlass health --kind worker
  windlass health --kind supervisor --host jobs-1 --ready")]
pub(crate) struct HealthCommand {
    /// The address to ask: /livez, /readyz or /startedz of a process that listens. Only http
    #[arg(long, value_name = "URL", value_parser = url::HealthUrl::parse,
        conflicts_with_all = ["host", "kind", "name", "ready", "alive_threshold"])]
    url: Option<url::HealthUrl>,

    /// The host of the process [default: this host]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// The kind of the process: supervisor, worker, dispatcher or scheduler [default: any]
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,

    /// The name of the process, as `windlass processes` shows it [default: any]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Accept no process that is quiet or stopping
    #[arg(long)]
    ready: bool,

    /// The time without a heartbeat after which a process is dead [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    alive_threshold: Option<Duration>,

    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "5s",
        value_parser = humantime::parse_duration)]
    timeout: Duration,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Diagnosis {
    healthy: bool,
    /// The answer of the process, or why there is none.
    says: String,
}

impl HealthCommand {
    pub(crate) fn show(&self, at: &At<'_>) -> Result<ExitCode, CommandError> {
        let diagnosis = match &self.url {
            Some(address) => {
                let (address, timeout) = (address.clone(), self.timeout);
                self.in_time(move || address.ask(timeout))?
            }
            None => {
                let database = at.database()?.read_only();
                let wanted = self.wanted();
                self.in_time(move || wanted.look(&database))?
            }
        };
        let code = u8::from(!diagnosis.healthy);
        Ok(output::show_and_end(&diagnosis, self.json, code))
    }

    fn wanted(&self) -> rows::WantedProcess {
        rows::WantedProcess {
            hostname: match (&self.host, &self.name) {
                (Some(host), _) => Some(host.clone()),
                // A name is never used twice.
                (None, Some(_)) => None,
                (None, None) => Some(hostname()),
            },
            kind: self.kind.clone(),
            name: self.name.clone(),
            ready: self.ready,
            threshold: self.alive_threshold.unwrap_or(Duration::from_secs(60)),
        }
    }

    /// Runs a check on a thread of its own. One that takes too long is left behind, and ends with
    /// this program.
    fn in_time(
        &self,
        check: impl FnOnce() -> Result<Diagnosis> + Send + 'static,
    ) -> Result<Diagnosis> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("windlass-health".to_owned());
        let started = thread.spawn(move || drop(sender.send(check())));
        started.map_err(|source| Error::Io {
            action: "start a thread of",
            path: "windlass".into(),
            source,
        })?;
        receiver.recv_timeout(self.timeout).unwrap_or_else(|_| {
            let timeout = clock::in_units(self.timeout);
            Ok(Diagnosis {
                healthy: false,
                says: format!("no answer within {timeout}"),
            })
        })
    }
}

impl Report for Diagnosis {
    fn text(&self, _width: Option<usize>) -> String {
        let verdict = if self.healthy { "healthy" } else { "UNHEALTHY" };
        format!("{verdict}: {}", self.says)
    }
}
