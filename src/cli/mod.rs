//! The program `windlass`, and its commands for a program of yours.
//!
//! A file a command, each in three parts: what was asked for (a struct of
//! `clap`), doing it (`run`, which prints nothing), and showing what came of
//! it (a [`Report`](crate::terminal::output::Report), as text or as JSON).

pub(crate) mod command;
pub(crate) mod commands;
pub(crate) mod config;
pub(crate) mod done;
pub(crate) mod failure;
pub(crate) mod listed;
pub(crate) mod mount;
pub(crate) mod pages;
pub(crate) mod run;
pub(crate) mod select;
pub(crate) mod values;

pub use run::{Commands, main};
