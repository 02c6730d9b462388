#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use config::combinations::ConnectionBudget;
pub use config::configuration::Config;
pub use config::document::Origin;
pub use config::reader::Setting;
pub use read::doctor::doctor;
pub use read::doctor::scope::{Finding, Verdict};

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod configured;
pub(crate) mod read;
pub(crate) mod terminal;

pub mod cli;
// The guides of both packages: their examples are tested here.
#[cfg(doctest)]
#[path = "../../../src/guide.rs"]
pub mod guide;
pub mod web;
