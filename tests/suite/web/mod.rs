//! `windlass web`: a real server, asked over real HTTP.

mod client;
mod overview;
mod server;
