//! Something that needs attention.

/// What is wrong, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConcernKind {
    Failing,
    Late,
    Dead,
    Problem,
    Unserved,
    Overdue,
    Warning,
    Paused,
}

impl ConcernKind {
    /// Returns a class of the style sheet, the class of its mark, and its word.
    pub(crate) fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            ConcernKind::Failing => ("fail", "s fail", "Failing"),
            ConcernKind::Late => ("bad", "v bad", "Late"),
            ConcernKind::Dead => ("bad", "v bad", "Dead"),
            ConcernKind::Problem => ("bad", "v bad", "Problem"),
            ConcernKind::Unserved => ("warn", "v warn", "Unserved"),
            ConcernKind::Overdue => ("warn", "v warn", "Overdue"),
            ConcernKind::Warning => ("warn", "v warn", "Warning"),
            ConcernKind::Paused => ("pause", "s pause", "Paused"),
        }
    }

    /// Whether jobs fail, are late, or may be lost.
    pub(crate) fn is_bad(self) -> bool {
        self <= ConcernKind::Problem
    }
}

/// What can be done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConcernAction {
    /// A page to look at.
    Look { path: String },
    /// A change that can be undone.
    Post { path: String, label: &'static str },
}

/// Something that needs attention, and one thing to do about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Concern {
    pub(crate) kind: ConcernKind,
    /// What it is about, which is a link to `path`.
    pub(crate) name: String,
    pub(crate) path: String,
    /// The rest of the sentence.
    pub(crate) text: String,
    /// For how many seconds it has been so, if that is known.
    pub(crate) since: Option<f64>,
    pub(crate) action: ConcernAction,
}

impl Concern {
    /// Returns a concern with a page to look at.
    pub(crate) fn new(kind: ConcernKind, name: impl Into<String>, path: String) -> Self {
        Concern {
            kind,
            name: name.into(),
            action: ConcernAction::Look { path: path.clone() },
            path,
            text: String::new(),
            since: None,
        }
    }

    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    pub(crate) fn since(mut self, seconds: f64) -> Self {
        self.since = Some(seconds);
        self
    }

    pub(crate) fn post(mut self, path: String, label: &'static str) -> Self {
        self.action = ConcernAction::Post { path, label };
        self
    }
}
