//! A small HTTP client, and servers for tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use windlass::Database;
use windlass_console::web::{RunningServer, Server};

/// The time that any answer may take on a busy machine.
pub const ANSWER: Duration = Duration::from_secs(60);

/// The answer of a server.
pub struct Reply {
    pub status: u16,
    /// In lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}\n{}", self.status, self.headers, self.body)
    }
}

impl Reply {
    /// Reads until the connection ends.
    pub fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        reply(&bytes)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn cookies(&self) -> Vec<&str> {
        let cookies = self.headers.iter().filter(|(name, _)| name == "set-cookie");
        cookies.map(|(_, value)| value.as_str()).collect()
    }

    /// The body of an answer with this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        self.body
    }
}

/// A request that is built up and sent.
#[derive(Debug, Clone)]
pub struct Ask {
    address: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Ask {
    pub fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        Ask {
            address,
            method: method.to_owned(),
            path: path.to_owned(),
            headers: vec![("Host".to_owned(), address.to_string())],
            body: Vec::new(),
        }
    }

    /// Instead of a header of the same name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers
            .retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers
            .retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self
    }

    /// A form, as a browser sends one of the site itself.
    pub fn form(self, body: &str) -> Self {
        let mut ask = self
            .header("Sec-Fetch-Site", "same-origin")
            .header("Content-Type", "application/x-www-form-urlencoded");
        ask.body = body.as_bytes().to_vec();
        ask
    }

    /// JSON, as a program sends it.
    pub fn json(self, body: &str) -> Self {
        let mut ask = self.header("Content-Type", "application/json");
        ask.body = body.as_bytes().to_vec();
        ask
    }

    fn head(&self) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let says = self
            .headers
            .iter()
            .any(|(name, _)| name == "Content-Length");
        if !says && (!self.body.is_empty() || self.method == "POST") {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        head + "\r\n"
    }

    /// Sends it on a connection of its own, and returns the open connection.
    pub fn open(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        stream.set_write_timeout(Some(ANSWER)).unwrap();
        let mut bytes = self.head().into_bytes();
        bytes.extend(&self.body);
        stream.write_all(&bytes).unwrap();
        stream
    }

    /// Sends it, and reads the whole answer.
    pub fn send(self) -> Reply {
        Reply::read(self.header("Connection", "close").open())
    }
}

/// Live updates of a page, as they come.
pub struct Updates {
    stream: TcpStream,
    text: String,
}

impl Updates {
    pub fn open(ask: &Ask) -> Self {
        let mut updates = Updates {
            stream: ask.open(),
            text: String::new(),
        };
        updates.until("text/event-stream");
        updates
    }

    /// Waits until this text has come, and forgets what came before its end.
    #[track_caller]
    pub fn until(&mut self, text: &str) {
        let start = Instant::now();
        loop {
            if let Some(at) = self.text.find(text) {
                self.text.drain(..at + text.len());
                return;
            }
            assert!(self.more(), "ended without {text}: {}", self.text);
            // The connection is kept open by comments.
            assert!(start.elapsed() < ANSWER, "no {text} in {}", self.text);
        }
    }

    /// Waits until the server ends them.
    pub fn until_end(&mut self) {
        let start = Instant::now();
        while self.more() {
            assert!(start.elapsed() < ANSWER, "it goes on: {}", self.text);
        }
    }

    fn more(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        let count = self.stream.read(&mut bytes).unwrap_or(0);
        self.text
            .push_str(&String::from_utf8_lossy(&bytes[..count]));
        count > 0
    }
}

/// A connection for many requests, opened again when it was closed.
pub struct KeptConnection {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl KeptConnection {
    pub fn new(address: SocketAddr) -> Self {
        KeptConnection {
            address,
            stream: None,
        }
    }

    /// Sends bytes as they are, and returns the status; `None` if the connection was closed instead.
    pub fn send(&mut self, bytes: &[u8]) -> Option<u16> {
        let mut stream = self.stream.take().unwrap_or_else(|| {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(ANSWER)).unwrap();
            BufReader::new(stream)
        });
        stream.get_mut().write_all(bytes).ok()?;
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let status = line.split(' ').nth(1)?.parse().unwrap();
        let (mut length, mut closes) = (0, false);
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).ok()?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            closes |= line == "connection: close";
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        self.stream = Some(stream).filter(|_| !closes);
        Some(status)
    }
}

fn reply(bytes: &[u8]) -> Reply {
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no head: {}", String::from_utf8_lossy(bytes)));
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_lowercase(), value.to_owned())
    });
    let bytes = bytes[end + 4..].to_vec();
    Reply {
        status: status.parse().unwrap(),
        headers: headers.collect(),
        body: String::from_utf8_lossy(&bytes).into_owned(),
        bytes,
    }
}

/// A server on a free port of this host.
pub fn serve(database: &Database) -> RunningServer {
    Server::new(database).listen("127.0.0.1:0").start().unwrap()
}

pub fn get(server: &RunningServer, path: &str) -> Reply {
    Ask::new(server.address(), "GET", path).send()
}

/// Sends a form, as a browser on a page of this server does.
pub fn post(server: &RunningServer, path: &str, form: &str) -> Reply {
    Ask::new(server.address(), "POST", path).form(form).send()
}
