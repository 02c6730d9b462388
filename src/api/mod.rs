//! The public modules: what operators and tools use, grouped as the commands of `windlass` are. They only pass on what
//! other modules define.

pub mod batches;
pub mod classes;
pub mod database;
pub mod errors;
pub mod events;
pub mod failed;
pub mod flows;
pub mod hooks;
pub mod jobs;
pub mod limits;
pub mod operations;
pub mod policies;
pub mod processes;
pub mod queues;
pub mod quotas;
pub mod schema;
pub mod tenants;
