//! One file per verb: changes to several tables at once, in one fenced transaction.

pub(crate) mod audit;
pub(crate) mod claim;
pub(crate) mod clear;
pub(crate) mod dispatch;
pub(crate) mod end;
pub mod enqueue;
pub(crate) mod faults;
pub(crate) mod fingerprint;
pub(crate) mod finish;
pub(crate) mod fire;
pub(crate) mod flows;
pub(crate) mod fold;
pub(crate) mod gate;
pub(crate) mod operate;
pub(crate) mod pause;
pub(crate) mod promote;
mod promoted;
pub(crate) mod prune;
pub(crate) mod recover;
pub(crate) mod runnable;
pub(crate) mod schedule;
pub(crate) mod settle;
pub(crate) mod signal;
pub(crate) mod unique;
pub mod web;
