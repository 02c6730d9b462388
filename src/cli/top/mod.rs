//! `windlass top`: the overview in a terminal, kept up to date.
//!
//! A thread of its own reads; the keys wait for nothing but the terminal.

pub(crate) mod command;
pub(crate) mod keyboard;
pub(crate) mod keys;
pub(crate) mod look;
pub(crate) mod reader;
pub(crate) mod sampler;
pub(crate) mod screen;
pub(crate) mod signals;
pub(crate) mod state;
pub(crate) mod view;

#[cfg(test)]
#[cfg(feature = "internal-tests")]
#[path = "../../../tests/internal/top/mod.rs"]
mod internal_tests;
