//! Enqueues by SQL, through the views and functions of the migrations.

mod classes;
mod drivers;
mod lists;
#[cfg(feature = "postgres")]
mod roles;
mod vectors;
mod wakeup;
