//! What waits for what, around a job or a batch: a picture, and a table that says the same.

mod alike;
mod kinds;
mod layers;
mod picture;
pub(crate) mod show;
mod table;
