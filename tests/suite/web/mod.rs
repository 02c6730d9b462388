//! `windlass web`: a real server, asked over real HTTP.

mod client;
mod job_pages;
mod overview;
mod server;
