//! The pages of `windlass web` in a real browser: Chromium, which `bin/test` installs.

mod axe;
mod check;
mod chrome;
mod harness;
mod protocol;
mod quick;
mod site;
mod thorough;
mod work;
mod world;
