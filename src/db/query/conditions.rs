//! The conditions of a statement, with their parameters.

use crate::db::conn::statement::Param;

/// Conditions, each after an `AND`, and the parameters of the statement so far.
#[derive(Debug, Default)]
pub(super) struct Conditions<'s> {
    pub(super) text: String,
    pub(super) params: Vec<Param<'s>>,
}

impl<'s> Conditions<'s> {
    #[cfg(feature = "web")]
    pub(super) fn after(params: Vec<Param<'s>>) -> Self {
        Conditions {
            text: String::new(),
            params,
        }
    }

    /// Adds a condition in which each `?` is this value.
    pub(super) fn add(&mut self, condition: &str, value: impl Into<Param<'s>>) {
        let place = self.param(value);
        self.always(&condition.replace('?', &place));
    }

    /// Adds a condition without a value.
    pub(super) fn always(&mut self, condition: &str) {
        self.text.push_str(" AND ");
        self.text.push_str(condition);
    }

    /// Adds a parameter, and returns its place in the text.
    pub(super) fn param(&mut self, value: impl Into<Param<'s>>) -> String {
        self.params.push(value.into());
        format!("${}", self.params.len())
    }
}
