//! `windlass web`: a real server, asked over real HTTP.

pub mod client;
mod overview;
mod server;
