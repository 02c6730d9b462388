//! What runs: workers, dispatchers, supervisors, and what they share.

#[cfg(feature = "benchmarks")]
pub mod benchmarks;
mod children;
mod claims;
mod classes;
mod clearing;
#[cfg(feature = "config")]
mod configured;
mod dispatcher;
mod endings;
mod finisher;
mod handle;
mod hooked;
mod ignored;
mod lifeline;
mod link;
mod listener;
mod listening;
mod liveness;
mod maintenance;
mod marks;
mod notify;
mod orphans;
mod pace;
mod parent;
mod pidfile;
mod places;
mod poller;
mod pool;
mod registration;
mod release;
mod rest;
mod scheduler;
mod scheduling;
mod signals;
mod stop;
mod supervising;
mod supervisor;
mod threads;
mod wanted;
mod watchdog;
mod wear;
mod worker;
mod working;

pub use children::Child;
pub use dispatcher::Dispatcher;
pub use handle::{Handle, Stopped};
pub use scheduler::Scheduler;
pub use supervisor::Supervisor;
pub use worker::Worker;
