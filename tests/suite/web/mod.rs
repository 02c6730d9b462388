//! `windlass web`: a real server, asked over real HTTP.

pub mod access;
mod api;
mod away;
pub mod client;
mod closed;
mod job_pages;
mod live;
mod pages;
mod places;
mod server;
