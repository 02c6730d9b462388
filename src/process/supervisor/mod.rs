//! The supervisor: starts workers, prunes dead processes, clears old rows.

pub(crate) mod builder;
pub(crate) mod children;
pub(crate) mod folding;
pub(crate) mod pidfile;
pub(crate) mod prune;
pub(crate) mod quiet;
pub(crate) mod reaper;
pub(crate) mod retention;
pub(crate) mod rollout;
pub(crate) mod run;
pub(crate) mod run_operations;
