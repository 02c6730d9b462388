//! Jobs that wait for jobs and batches: their results, and the graph that `windlass flows` shows.
//!
//! [`Flow`](crate::Flow) and [`NewJob::after`](crate::NewJob::after) make them.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::flows::{FlowGraph, On};
//! use windlass::{Flow, NewJob};
//!
//! let alert = NewJob::of_class("alert", "{}").when(On::Failure);
//! let flow = Flow::new()
//!     .job("read", NewJob::of_class("read", "{}"))?
//!     .job("alert", alert)?
//!     .after("alert", ["read"])?
//!     .enqueue(&mut conn)?;
//! let graph = FlowGraph::around(&mut conn, flow.jobs["read"].id)?;
//! assert_eq!(graph.tree(), "job 1 read: waits\n└─ failure, read: job 2 alert: waits\n");
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::admin::flows::{FlowEdge, FlowGraph, FlowId, FlowNode};
pub use crate::db::model::extras::On;
pub use crate::flow::batch::ToNewJob;
pub use crate::flow::graph::EnqueuedFlow;
pub use crate::flow::inputs::{Input, Inputs, Joined};
pub use crate::flow::undo::Undo;
pub use crate::job::new_job::parents::{After, ToParent};
