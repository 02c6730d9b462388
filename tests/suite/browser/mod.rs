//! The pages of `windlass web` in a real browser: Chromium, which `bin/test` installs.
//!
//! Without a filter, `bin/test` runs what is in `quick` and `harness` only, and `bin/test all` the rest.

mod actions;
mod axe;
mod chrome;
mod harness;
mod keys;
mod live;
mod pages;
mod quick;
mod roles;
mod site;
mod work;
mod world;
