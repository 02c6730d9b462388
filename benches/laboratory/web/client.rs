//! A client that asks as a browser does, on a connection of its own each time.

use crate::error::{Error, Result};
use flate2::read::GzDecoder;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest time that a response may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A response.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// The bytes on the wire.
    pub(crate) bytes: usize,
    pub(crate) text: String,
}

/// Requests a path, compressed.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<Answered> {
    let bytes = exchange(address, path).map_err(|source| Error::Io {
        action: "request",
        path: path.into(),
        source,
    })?;
    let unreadable = || Error::Io {
        action: "read the response to",
        path: path.into(),
        source: std::io::ErrorKind::InvalidData.into(),
    };
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n");
    let end = end.ok_or_else(unreadable)?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = &bytes[end + 4..];
    let text = if head.contains("\ncontent-encoding: gzip") {
        let mut text = String::new();
        GzDecoder::new(body)
            .read_to_string(&mut text)
            .map_err(|_| unreadable())?;
        text
    } else {
        String::from_utf8_lossy(body).into_owned()
    };
    Ok(Answered {
        status: status.ok_or_else(unreadable)?,
        bytes: bytes.len(),
        text,
    })
}

fn exchange(address: SocketAddr, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = open(address, path, "Connection: close\r\n")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Sends a request, and returns the connection on which the response comes.
pub(crate) fn open(address: SocketAddr, path: &str, more: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/html\r\nAccept-Encoding: gzip\r\n\
         Sec-Fetch-Site: same-origin\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes())?;
    Ok(stream)
}
