//! A connection whose peer must read.

use std::future::Future as _;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// The longest wait of a write for a peer that reads nothing.
const WRITE: Duration = Duration::from_secs(10);

/// A TCP connection that ends when its peer reads too slowly.
#[derive(Debug)]
pub(crate) struct GuardedStream {
    stream: TcpStream,
    /// Runs while a write waits.
    waits: Option<Pin<Box<Sleep>>>,
}

impl GuardedStream {
    pub(crate) fn new(stream: TcpStream) -> Self {
        GuardedStream {
            stream,
            waits: None,
        }
    }

    /// Returns the result of a write, or an error if it has waited for too long.
    fn guard<T>(&mut self, cx: &mut Context<'_>, written: Poll<Result<T>>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(WRITE)));
        ready!(waits.as_mut().poll(cx));
        let message = "the client does not read";
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, message)))
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.guard(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.guard(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.guard(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.guard(cx, ended)
    }
}
