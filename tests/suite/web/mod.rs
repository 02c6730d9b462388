//! `windlass web`: a real server, asked over real HTTP.

mod access;
mod away;
mod client;
mod closed;
mod live;
mod pages;
mod places;
mod server;
