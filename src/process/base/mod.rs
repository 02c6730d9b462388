//! The parts that all processes share: registration, heartbeat, stop, threads, signals, sessions.

pub(crate) mod context;
pub(crate) mod duty_turns;
pub mod handle;
pub mod health;
pub(crate) mod heartbeat;
pub(crate) mod history;
pub(crate) mod ignored;
pub(crate) mod liveness;
pub mod registration;
pub mod service;
pub(crate) mod session;
pub(crate) mod shares_in_use;
pub mod signals;
pub mod stop;
