//! The commands of the program `windlass`.

mod bench;
mod explain;
mod jobs;
mod migrate;
mod status;
mod supervise;
mod usage;
