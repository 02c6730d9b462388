//! Enqueues by SQL, through the views and functions of the migrations.

mod classes;
mod drivers;
mod lists;
#[cfg(feature = "postgres")]
mod roles;
mod triggers;
mod vectors;
mod wakeup;
