//! The entries of the navigation.

/// An entry of the navigation, which the current page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Overview,
    Queues,
    Jobs,
    Failed,
    Recurring,
    Processes,
    Limits,
    Batches,
    Operations,
    Audit,
    /// Not in the navigation: sign in, errors.
    Other,
}

impl Section {
    /// All that the navigation may show, in order.
    pub(crate) const ALL: [Section; 10] = [
        Section::Overview,
        Section::Queues,
        Section::Jobs,
        Section::Failed,
        Section::Recurring,
        Section::Processes,
        Section::Limits,
        Section::Batches,
        Section::Operations,
        Section::Audit,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Section::Overview => "Overview",
            Section::Queues => "Queues",
            Section::Jobs => "Jobs",
            Section::Failed => "Failed",
            Section::Recurring => "Recurring",
            Section::Processes => "Processes",
            Section::Limits => "Limits",
            Section::Batches => "Batches",
            Section::Operations => "Operations",
            Section::Audit => "Audit",
            Section::Other => "",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Section::Overview | Section::Other => "/",
            Section::Queues => "/queues",
            Section::Jobs => "/jobs",
            Section::Failed => "/failed",
            Section::Recurring => "/recurring",
            Section::Processes => "/processes",
            Section::Limits => "/limits",
            Section::Batches => "/batches",
            Section::Operations => "/operations",
            Section::Audit => "/audit",
        }
    }
}
