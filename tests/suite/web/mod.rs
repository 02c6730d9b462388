//! `windlass web`: a real server, asked over real HTTP.

mod access;
mod away;
mod client;
mod closed;
mod live;
mod overview;
mod places;
mod server;
