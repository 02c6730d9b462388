//! The turns of the writers of a SQLite file, within a process and between processes.

pub(crate) mod pauses;
pub(crate) mod queue;
#[cfg(feature = "sqlite")]
pub(crate) mod takes_turns;
pub(crate) mod write_turn;
