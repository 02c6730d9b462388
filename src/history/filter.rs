//! Which part of the history is read.

/// Selects a part of the history: everything, a queue, a class, or a class in a queue.
///
/// At most 1,000 pairs of a queue and a class are told apart. What exceeds this is counted under the
/// class `other` of its queue, or under the queue `other`.
///
/// ```
/// use windlass::history::HistoryFilter;
///
/// let imports = HistoryFilter::all().queue("slow").class("import");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "a filter does nothing by itself"]
pub struct HistoryFilter {
    pub(crate) queue: Option<String>,
    pub(crate) class: Option<String>,
}

impl HistoryFilter {
    /// Selects everything.
    pub fn all() -> Self {
        Self::default()
    }

    /// Restricts it to a queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Restricts it to a class.
    pub fn class(mut self, class: impl Into<String>) -> Self {
        self.class = Some(class.into());
        self
    }

    /// Returns whether what is counted under these names is selected.
    pub(crate) fn selects(&self, queue: &str, class: &str) -> bool {
        let is = |wanted: &Option<String>, name| wanted.as_deref().is_none_or(|one| one == name);
        is(&self.queue, queue) && is(&self.class, class)
    }
}
