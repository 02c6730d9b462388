//! Output: reports as text or JSON, tables, progress, questions.

pub(crate) mod output;
pub(crate) mod table;
