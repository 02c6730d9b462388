#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use config::combinations::ConnectionBudget;
pub use config::configuration::Config;
pub use config::document::Origin;
pub use config::reader::Setting;
pub use read::doctor::doctor;
pub use read::doctor::scope::{Finding, Verdict};

mod bench;
mod config;
mod configured;
mod read;
mod terminal;

pub mod cli;
pub mod web;
