//! What runs: workers, dispatchers, supervisors, and what they share.

mod children;
mod claims;
mod clearing;
mod dispatcher;
mod finisher;
mod handle;
mod lifeline;
mod link;
mod listener;
mod maintenance;
mod marks;
mod pace;
mod poller;
mod pool;
mod registration;
mod release;
mod signals;
mod stop;
mod supervisor;
mod threads;
mod worker;

pub use children::Child;
pub use dispatcher::Dispatcher;
pub use handle::{Handle, Stopped};
pub use supervisor::Supervisor;
pub use worker::Worker;
