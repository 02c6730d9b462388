//! The program `windlass`, and its commands for use in your own program.
//!
//! Each command is a file with three parts: its arguments (a struct of `clap`), its work (`run`,
//! which prints nothing) and its output (a [`Report`](crate::terminal::Report), as text or
//! as JSON).

pub(crate) mod command;
pub(crate) mod commands;
pub(crate) mod config;
pub(crate) mod done;
pub(crate) mod job_flags;
pub(crate) mod listed;
pub(crate) mod mount;
pub(crate) mod run;
pub(crate) mod select;
pub(crate) mod top;

pub use run::{Commands, main};
