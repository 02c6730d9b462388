//! Asks a process over HTTP: one request, without a library, since a container may have none.

use crate::cli::commands::health::Diagnosis;
use crate::clock;
use crate::error::Result;
use crate::terminal::table::printable;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// The most bytes of an answer that are read.
const LONGEST: usize = 16 * 1024;

/// The most lines of an answer that are shown.
const LINES: usize = 10;

/// The address of a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HealthUrl {
    /// `127.0.0.1:4041`, with a port.
    target: String,
    /// As the URL has it.
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
    pub(super) fn ask(&self, timeout: Duration) -> Result<Diagnosis> {
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
