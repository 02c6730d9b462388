//! What takes longer: `bin/test` without a name leaves it out, `bin/test all` and `bin/test browser` run it.

mod actions;
mod keys;
mod live;
mod pages;
mod pictures;
mod roles;
