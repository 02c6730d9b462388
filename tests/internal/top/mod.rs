//! `windlass top`: what it draws, and what the keys and answers change. This directory is mounted in
//! it, as a module of its tests.

#![allow(
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::disallowed_methods
)]

mod drawn;
mod examples;
mod moves;
mod restored;
