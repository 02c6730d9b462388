//! The pages. Each is a plain function of a [`Cx`](crate::web::request::route::Cx), listed in
//! [`routes`].

pub(crate) mod audit;
pub(crate) mod batches;
pub(crate) mod doctor;
pub(crate) mod failed;
pub(crate) mod flow;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod limits;
pub(crate) mod login;
pub(crate) mod operations;
pub(crate) mod overview;
pub(crate) mod processes;
pub(crate) mod queue;
pub(crate) mod queues;
pub(crate) mod rates;
pub(crate) mod recurring;
pub(crate) mod saturation;
pub(crate) mod tenants;
pub(crate) mod words;
