//! Finding a socket by its `TCP_USER_TIMEOUT`, and shutting it down.
#![allow(
    unsafe_code,
    reason = "descriptors of libpq are examined by number; each use explains why it is sound"
)]

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt::tcp_user_timeout;
use rustix::net::{Shutdown, getsockname, shutdown};
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};

/// Returns the numbers of this process's open descriptors.
fn descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Returns `None` if the descriptor is not a TCP socket, or was closed.
fn tag_of(number: RawFd) -> Option<u32> {
    if number < 0 {
        return None;
    }
    // SAFETY: the number may have been closed since the scan, then the kernel answers EBADF. It may
    // also have been reused, but the borrow only reads an option: it reads, writes and closes
    // nothing.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    tcp_user_timeout(descriptor).ok()
}

/// Returns how many sockets have the tag.
pub(super) fn with_tag(tag: u32) -> usize {
    let all = descriptors().into_iter();
    all.filter(|number| tag_of(*number) == Some(tag)).count()
}

/// Returns the port of this end of the socket with the tag.
pub(super) fn port_of(tag: u32) -> Option<u16> {
    let mut all = descriptors().into_iter();
    let number = all.find(|number| tag_of(*number) == Some(tag))?;
    // SAFETY: as in `tag_of`; this reads an address.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    let address = std::net::SocketAddr::try_from(getsockname(descriptor).ok()?);
    address.ok().map(|address| address.port())
}

/// Shuts down every socket with one of these tags, and returns the tags that
/// were found.
pub(super) fn shut_down(tags: &[u32]) -> Vec<u32> {
    let mut shut = Vec::new();
    for number in descriptors() {
        let Some(tag) = tag_of(number).filter(|tag| tags.contains(tag)) else {
            continue;
        };
        // SAFETY: as in `tag_of`; this duplicates whatever the number refers to now.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let Ok(pinned) = fcntl_dupfd_cloexec(descriptor, 0) else {
            continue;
        };
        // The duplicate refers to one socket permanently, so the tag is read from it.
        if tcp_user_timeout(&pinned) == Ok(tag) {
            let _ = shutdown(&pinned, Shutdown::Both);
            shut.push(tag);
        } else {
            // The number was reused in between, perhaps for a SQLite file. Closing any descriptor
            // of a file releases this process's locks on it, so the duplicate stays open.
            let _ = pinned.into_raw_fd();
        }
    }
    shut
}
