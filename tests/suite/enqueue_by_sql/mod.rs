//! Enqueues by SQL, through the views and functions of the migrations.

mod batches;
mod classes;
mod drivers;
mod events;
mod lists;
#[cfg(feature = "postgres")]
mod postgres_attacks;
#[cfg(feature = "postgres")]
mod postgres_roles;
mod storm;
mod triggers;
mod typed;
mod vectors;
mod wakeup;
