//! Scrapes metrics as Prometheus does, and reads them.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// An answer of an HTTP server.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
    pub took: Duration,
}

/// The header by which Prometheus asks for `OpenMetrics`.
pub const OPEN_METRICS: &str =
    "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";

/// Sends a GET with these headers.
pub fn get(address: &str, path: &str, headers: &[&str]) -> Answer {
    try_get(address, path, headers).unwrap()
}

pub fn try_get(address: &str, path: &str, headers: &[&str]) -> std::io::Result<Answer> {
    let host = format!("Host: {address}");
    let headers: Vec<&str> = [&[&*host], headers].concat();
    send(address, path, &headers)
}

/// The same with a header `Host` among these.
pub fn get_as(address: &str, path: &str, headers: &[&str]) -> Answer {
    send(address, path, headers).unwrap()
}

fn send(address: &str, path: &str, headers: &[&str]) -> std::io::Result<Answer> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
    for header in headers {
        request.push_str(&format!("{header}\r\n"));
    }
    stream.write_all(format!("{request}\r\n").as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = match head.to_lowercase().contains("transfer-encoding: chunked") {
        true => unchunked(body),
        false => body.to_owned(),
    };
    Ok(Answer {
        status: status.ok_or_else(|| std::io::Error::other(format!("no status: {text:?}")))?,
        head: head.to_owned(),
        body,
        took: start.elapsed(),
    })
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// The series of a page: `name{label="value"}`, as the page has it, and its value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scrape(pub BTreeMap<String, f64>);

impl Scrape {
    /// # Panics
    /// If a line is not one of the format, or a series is repeated.
    pub fn parse(text: &str) -> Self {
        let mut series = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
            let before = series.insert(name.to_owned(), value);
            assert_eq!(before, None, "{name} is there twice");
        }
        Scrape(series)
    }

    /// Scrapes `/metrics` of an address.
    pub fn of(address: &str) -> Self {
        let answer = get(address, "/metrics", &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
        Self::parse(&answer.body)
    }

    /// Returns whether no part of the figures was late. The findings of `doctor` are asked for once a minute.
    pub fn is_complete(&self) -> bool {
        let mut late = self.0.iter().filter(|(name, value)| {
            let is_part = name.starts_with("windlass_scrape_part_missing");
            is_part && !name.contains("\"doctor\"") && **value > 0.0
        });
        late.next().is_none()
    }

    /// The value of a series, which must be there.
    #[track_caller]
    pub fn value(&self, series: &str) -> f64 {
        let value = self.0.get(series).copied();
        value.unwrap_or_else(|| panic!("there is no {series} in {:#?}", self.0))
    }

    /// The sum of all series of a metric whose labels contain this.
    pub fn sum(&self, name: &str, labels: &str) -> f64 {
        let is_it = |series: &str| {
            let (own, rest) = series.split_once('{').unwrap_or((series, ""));
            own == name && rest.contains(labels)
        };
        let series = self.0.iter().filter(|(series, _)| is_it(series));
        series.map(|(_, value)| value).sum()
    }
}
