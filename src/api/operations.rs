//! Changes of many jobs in the background: as `windlass operations` shows and stops them.
//!
//! [`Jobs::in_background`](crate::jobs::Jobs::in_background) starts one. Supervisors and `windlass web` run it.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use std::time::Duration;
//! use windlass::jobs::{Change, Jobs};
//! use windlass::operations::{self, OperationState};
//!
//! let started = Jobs::failed().class("import").in_background(Change::Discard).start(&mut conn)?;
//! assert_eq!(operations::list(&mut conn, None, 20)?[0].id, started.id);
//!
//! operations::run(&mut conn, Duration::from_secs(1))?; // without a supervisor
//! let operation = operations::find(&mut conn, started.id)?.expect("it is stored");
//! assert_eq!(operation.state, OperationState::Done);
//! assert!(!operations::stop(&mut conn, started.id)?, "it has ended");
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::operation::chunk::OperationCounts;
pub use crate::operation::start::{
    NewOperation, Operation, OperationState, Preview, operation as find, operations as list,
    stop_operation as stop,
};
pub use crate::operation::{OperationsRun, run_operations as run};
