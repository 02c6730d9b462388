//! Tests that take longer: `bin/test` without a name leaves them out, `bin/test all` and `bin/test browser` run them.

mod actions;
mod keys;
mod live;
mod pages;
mod pictures;
mod roles;
