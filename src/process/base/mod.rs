//! The parts that all processes share: registration, heartbeat, stop, threads, signals, sessions.

pub(crate) mod context;
pub(crate) mod duty_turns;
pub(crate) mod handle;
pub(crate) mod health;
pub(crate) mod heartbeat;
pub(crate) mod history;
pub(crate) mod ignored;
pub(crate) mod liveness;
pub(crate) mod registration;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod signals;
pub(crate) mod stop;
