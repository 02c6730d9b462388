//! The filters of the templates: `{{ queue.ready|count }}`.
//!
//! A module with a template has `use crate::web::show::filters;`.

#![allow(
    unreachable_pub,
    reason = "the attribute `filter_fn` makes public items of them"
)]

use crate::web::show;
use std::fmt::Display;
use std::time::Duration;
use windlass::internal::db::query::ready::CappedCount;

/// A duration of any type.
pub(crate) trait InSeconds {
    fn in_seconds(&self) -> f64;
}

impl InSeconds for f64 {
    fn in_seconds(&self) -> f64 {
        *self
    }
}

impl InSeconds for Duration {
    fn in_seconds(&self) -> f64 {
        self.as_secs_f64()
    }
}

impl<T: InSeconds + ?Sized> InSeconds for &T {
    fn in_seconds(&self) -> f64 {
        (**self).in_seconds()
    }
}

/// `1,204`
#[askama::filter_fn]
pub(crate) fn count<T: Display>(number: T, _: &dyn askama::Values) -> askama::Result<String> {
    Ok(show::count(number))
}

/// `10,000+`, of a bounded count.
#[askama::filter_fn]
pub(crate) fn bounded(count: &CappedCount, _: &dyn askama::Values) -> askama::Result<String> {
    Ok(show::bounded(*count))
}

/// `6 min 12 s`
#[askama::filter_fn]
pub(crate) fn duration<T: InSeconds>(
    duration: T,
    _: &dyn askama::Values,
) -> askama::Result<String> {
    Ok(show::duration(duration.in_seconds()))
}

/// `6 min ago`
#[askama::filter_fn]
pub(crate) fn ago<T: InSeconds>(duration: T, _: &dyn askama::Values) -> askama::Result<String> {
    Ok(show::ago(duration.in_seconds()))
}
