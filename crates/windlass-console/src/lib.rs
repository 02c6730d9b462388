#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use config::combinations::ConnectionBudget;
pub use config::configuration::Config;
pub use config::document::Origin;
pub use config::reader::Setting;

mod bench;
mod config;
mod configured;
mod terminal;

pub mod cli;
pub mod web;
