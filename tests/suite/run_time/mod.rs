//! Changes while the processes run: threads, queues, limits and pauses.

mod classes;
mod idle;
mod limits;
mod threads;
