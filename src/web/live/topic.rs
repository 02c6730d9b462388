//! What viewers have open: the same for all who see the same.

use crate::web::access::viewer::Role;

/// A page as viewers of one role see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Topic {
    /// The place of the database in the list of the site.
    pub(crate) database: usize,
    /// Path and query.
    pub(crate) address: String,
    pub(crate) role: Role,
}
