//! A very large database with jobs in every state, for the pages of `windlass web`.

pub(crate) mod around;
pub(crate) mod ended;
pub(crate) mod failures;
pub(crate) mod fill;
pub(crate) mod past;
pub(crate) mod sizes;
pub(crate) mod text;
pub(crate) mod waiting;
