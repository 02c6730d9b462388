//! The commands of the program `windlass`.

mod batches;
mod bench;
mod check;
mod doctor;
mod enqueue;
mod events;
mod explain;
mod flows;
mod jobs;
mod looking;
mod migrate;
mod mount;
mod pages;
mod queues;
mod reference;
mod show;
mod snapshot;
mod states;
mod status;
mod supervise;
mod tags;
mod top;
mod usage;
