//! `windlass health`.

use crate::cli::config::CommandError;
use crate::cli::mount::At;
use crate::read::sql::presence::{self, Presence, WantedPresence};
use crate::terminal::{self, Report, printable};
use serde::Serialize;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use windlass::internal::clock;
use windlass::internal::db::own;
use windlass::internal::error::ErrorContext as _;
use windlass::internal::process::base::registration::hostname;
use windlass::{Database, Error, Result};

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
    #[arg(long, value_name = "URL", value_parser = HealthUrl::parse,
        conflicts_with_all = ["host", "kind", "name", "ready", "alive_threshold"])]
    url: Option<HealthUrl>,

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

    /// The longest time to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "5s",
        value_parser = humantime::parse_duration)]
    timeout: Duration,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of the check.
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
                self.in_time(move || wanted.diagnose(&database))?
            }
        };
        let code = u8::from(!diagnosis.healthy);
        Ok(terminal::show_and_end(&diagnosis, self.json, code))
    }

    fn wanted(&self) -> WantedProcess {
        WantedProcess {
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

// --- Searches for a process in the database ---

/// The process to look for.
#[derive(Debug)]
pub(super) struct WantedProcess {
    pub(super) hostname: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) name: Option<String>,
    /// True if it must claim jobs: it is neither quiet nor stopping.
    pub(super) ready: bool,
    pub(super) threshold: Duration,
}

impl WantedProcess {
    /// Looks for a process that is healthy.
    fn diagnose(&self, database: &Database) -> Result<Diagnosis> {
        let wanted = WantedPresence {
            hostname: self.hostname.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
        };
        let mut connection = database.connect()?;
        let found = presence::presences(&mut own(&mut connection), &wanted);
        let found = found.during("look for the process")?;
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

// --- Asks a process over HTTP: one request, without a library, since a container may have none ---

/// The most bytes of an answer that are read.
const LONGEST: usize = 16 * 1024;

/// The most lines of an answer that are shown.
const LINES: usize = 10;

/// The address of a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HealthUrl {
    /// `127.0.0.1:4041`, with a port.
    target: String,
    /// The host as the URL has it.
    host: String,
    path: String,
}

impl HealthUrl {
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let rest = url
            .strip_prefix("http://")
            .ok_or("it must start with `http://`: ask the process itself, not a proxy before it")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        if host.is_empty() || host.contains('@') || rest.contains(char::is_whitespace) {
            return Err("write it as `http://127.0.0.1:4041/readyz`".to_owned());
        }
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(HealthUrl {
            target: if has_port {
                host.to_owned()
            } else {
                format!("{host}:80")
            },
            host: host.to_owned(),
            path: match path {
                "" | "/" => "/readyz".to_owned(),
                path if path.starts_with('?') => format!("/{path}"),
                path => path.to_owned(),
            },
        })
    }

    /// Sends one request. A server that sends little by little is not waited for longer.
    fn ask(&self, timeout: Duration) -> Result<Diagnosis> {
        let deadline = clock::deadline(timeout);
        Ok(match self.answer(deadline) {
            Ok(answer) => read(&answer),
            Err(error) => Diagnosis {
                healthy: false,
                says: format!("http://{}{}: {error}", self.host, self.path),
            },
        })
    }

    fn answer(&self, deadline: Instant) -> std::io::Result<Vec<u8>> {
        let left = || {
            let left = deadline.saturating_duration_since(clock::instant());
            left.max(Duration::from_millis(1))
        };
        let mut last = std::io::Error::other("the name of the host has no address");
        let mut connected = None;
        for address in self.target.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, left()) {
                Ok(stream) => {
                    connected = Some(stream);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let mut stream = connected.ok_or(last)?;
        stream.set_write_timeout(Some(left()))?;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: windlass-health\r\nConnection: close\r\n\r\n",
            self.path, self.host
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        let mut bytes = [0; 4096];
        while answer.len() < LONGEST && clock::instant() < deadline {
            stream.set_read_timeout(Some(left()))?;
            match stream.read(&mut bytes)? {
                0 => break,
                count => answer.extend_from_slice(&bytes[..count]),
            }
        }
        Ok(answer)
    }
}

/// Reads a response of HTTP/1.
fn read(answer: &[u8]) -> Diagnosis {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|status| status.parse::<u16>().ok());
    let Some(status) = status else {
        return Diagnosis {
            healthy: false,
            says: "the answer is not one of an HTTP server".to_owned(),
        };
    };
    let lines = body.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<String> = lines.take(LINES).map(printable).collect();
    Diagnosis {
        healthy: (200..300).contains(&status),
        says: match lines.join("; ") {
            says if says.is_empty() => format!("status {status}"),
            says => format!("status {status}: {says}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (url, target, host, path) in [
            (
                "http://127.0.0.1:4041/readyz",
                "127.0.0.1:4041",
                "127.0.0.1:4041",
                "/readyz",
            ),
            ("http://[::1]:80/livez", "[::1]:80", "[::1]:80", "/livez"),
            ("http://[::1]", "[::1]:80", "[::1]", "/readyz"),
            ("http://jobs", "jobs:80", "jobs", "/readyz"),
            ("http://jobs/", "jobs:80", "jobs", "/readyz"),
            (
                "http://jobs/base/livez?a=b",
                "jobs:80",
                "jobs",
                "/base/livez?a=b",
            ),
        ] {
            let address = HealthUrl::parse(url).unwrap();
            let parts = (&*address.target, &*address.host, &*address.path);
            assert_eq!(parts, (target, host, path), "{url}");
        }
        for wrong in [
            "https://jobs/readyz",
            "jobs:4041",
            "http://",
            "http:///readyz",
            "http://user@jobs/",
            "http://jobs/a b",
            "http://jobs/a\r\nX: y",
        ] {
            assert!(HealthUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_is_read() {
        for (answer, healthy, says) in [
            (
                "HTTP/1.1 200 OK\r\nA: b\r\n\r\nlive\n",
                true,
                "status 200: live",
            ),
            (
                "HTTP/1.1 503 Service Unavailable\r\n\r\none\n\ntwo\x1b[31m\n",
                false,
                "status 503: one; two",
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", true, "status 204"),
            ("HTTP/1.1 302 Found\r\n\r\n", false, "status 302"),
            ("SSH-2.0-OpenSSH\r\n", false, "the answer is not"),
            ("", false, "the answer is not"),
        ] {
            let found = read(answer.as_bytes());
            assert_eq!(found.healthy, healthy, "{answer}");
            assert!(found.says.starts_with(says), "{}", found.says);
            assert!(!found.says.contains('\x1b'));
        }
    }
}
