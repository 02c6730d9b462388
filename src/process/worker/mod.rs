//! The worker: claims jobs, performs them and writes down how they ended.

pub(crate) mod beat;
pub(crate) mod builder;
pub(crate) mod claim_gate;
pub(crate) mod completer;
pub(crate) mod completion;
pub(crate) mod in_flight;
pub(crate) mod listen_flag;
pub(crate) mod poller;
pub(crate) mod pool;
pub(crate) mod prefetch;
pub(crate) mod queues;
pub(crate) mod recycle;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod scan_cursors;
pub(crate) mod settings;
pub(crate) mod timeouts;
pub(crate) mod wakeup;
