//! `windlass web`: pages, metrics, health checks and enqueueing over HTTP.
//!
//! [`Server`] serves them from a program of yours; the command `windlass web` does the same.

pub(crate) mod access;
pub(crate) mod api;
pub(crate) mod assets;
pub(crate) mod cache;
pub(crate) mod dispatch;
pub(crate) mod entry;
pub(crate) mod http;
pub(crate) mod live;
pub(crate) mod metrics;
pub(crate) mod net;
pub(crate) mod pages;
pub(crate) mod probes;
pub(crate) mod read;
pub(crate) mod readiness;
pub(crate) mod reads;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod show;
pub(crate) mod site;
pub(crate) mod start;

pub use crate::web::probes::Probes;
pub use crate::web::server::RunningServer;
pub use server::Server;
