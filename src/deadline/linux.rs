//! Finding a socket by its `TCP_USER_TIMEOUT`, and shutting it down.
#![allow(
    unsafe_code,
    reason = "descriptors of libpq are looked at by their number; each use says why it is sound"
)]

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt::tcp_user_timeout;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};

/// The numbers of the open descriptors of this process.
fn descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// `None`: it is no TCP socket, or was closed.
fn tag_of(number: RawFd) -> Option<u32> {
    if number < 0 {
        return None;
    }
    // SAFETY: a number that was closed since the scan makes the kernel answer
    // EBADF, and one that was used again is asked for an option and nothing
    // more: nothing is read, written or closed through the borrow.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    tcp_user_timeout(descriptor).ok()
}

/// How many sockets bear the tag.
pub(super) fn with_tag(tag: u32) -> usize {
    let all = descriptors().into_iter();
    all.filter(|number| tag_of(*number) == Some(tag)).count()
}

/// Shuts down every socket with one of these tags, and returns the tags that
/// were found.
pub(super) fn shut_down(tags: &[u32]) -> Vec<u32> {
    let mut shut = Vec::new();
    for number in descriptors() {
        let Some(tag) = tag_of(number).filter(|tag| tags.contains(tag)) else {
            continue;
        };
        // SAFETY: as in `tag_of`; a duplicate of whatever the number is now.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let Ok(pinned) = fcntl_dupfd_cloexec(descriptor, 0) else {
            continue;
        };
        // The duplicate is one socket for good, so the tag is read from it.
        if tcp_user_timeout(&pinned) == Ok(tag) {
            let _ = shutdown(&pinned, Shutdown::Both);
            shut.push(tag);
        } else {
            // The number was used again in between, perhaps for a SQLite file:
            // to close any descriptor of a file drops this process' locks on
            // it. So it is kept open.
            let _ = pinned.into_raw_fd();
        }
    }
    shut
}
