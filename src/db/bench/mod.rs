//! What `windlass bench` asks of a database: a place of its own, the same
//! rows moved by plain SQL, and counters.

mod counters;
mod place;
mod plain;

pub(crate) use counters::{count_statements, counted, open_snapshot, written};
pub(crate) use place::Place;
pub(crate) use plain::{
    Shape, add_indexes, claim, create, enqueue, enqueue_all, enqueue_and_tell, finish, version,
};
