//! The steps of a plan, and their statements.

/// One statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Run(String),
    /// Gives a column another definition, where SQL has no statement for it.
    Define {
        table: String,
        column: String,
        definition: String,
    },
    /// Makes an index; on a large table without blocking writers.
    Index {
        name: String,
        text: String,
        is_there: bool,
    },
}

/// One thing that a database lacks.
#[derive(Debug)]
pub(crate) struct PlanStep {
    /// As in `the {what} {fault}`. `None` for a part of a migration.
    pub(crate) what: Option<String>,
    pub(crate) fault: String,
    /// The version of its migration.
    pub(crate) version: String,
    /// The existing table that is changed.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) table: Option<String>,
    /// Other tables that the statements lock.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) locks: Vec<String>,
    /// Empty if a person has to do it.
    pub(crate) acts: Vec<Action>,
    /// Whether programs cannot work without it.
    pub(crate) is_vital: bool,
}

impl PlanStep {
    pub(crate) fn says(&self) -> Option<String> {
        let what = self.what.as_ref()?;
        Some(format!("the {what} {}", self.fault))
    }
}
