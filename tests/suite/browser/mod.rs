//! The pages of `windlass web` in a real browser. What takes longer is in `thorough`, which only `bin/test all` and
//! `bin/test browser` run.

mod axe;
mod chrome;
mod harness;
