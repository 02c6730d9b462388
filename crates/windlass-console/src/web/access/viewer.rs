//! Whom a request is from, and what they may do.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;

/// The role of a token or a user, which decides what it may see and change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Role {
    /// Has not signed in.
    Outsider,
    /// May enqueue jobs over HTTP, and ask what became of them.
    Enqueuer,
    /// May see everything but hidden arguments.
    Viewer,
    /// May see and change.
    Operator,
}

impl Role {
    /// The roles of tokens.
    pub(crate) const ALL: [Role; 3] = [Role::Enqueuer, Role::Viewer, Role::Operator];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Outsider => "outsider",
            Role::Enqueuer => "enqueuer",
            Role::Viewer => "viewer",
            Role::Operator => "operator",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// The role that a page needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: also without signing in.
    Nothing,
    /// A viewer or an operator.
    Viewer,
    Operator,
    /// An enqueuer or an operator.
    Enqueuer,
    /// A viewer, an operator or an enqueuer.
    Anyone,
}

impl Need {
    pub(crate) fn is_met_by(self, role: Role) -> bool {
        match self {
            Need::Nothing => true,
            Need::Viewer => role >= Role::Viewer,
            Need::Operator => role == Role::Operator,
            Need::Enqueuer => role == Role::Enqueuer || role == Role::Operator,
            Need::Anyone => role != Role::Outsider,
        }
    }
}

/// The way in which a viewer was authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    Nothing,
    /// They are on this host, where there are no tokens.
    Local,
    /// A trusted proxy names them.
    Proxy,
    /// The id of their token.
    Token(i64),
    /// The id of their session.
    Session(i64),
    /// They were proven lately, and the database is away: they may see, and change nothing.
    Recalled,
}

/// Whom a request is from, proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Viewer {
    /// The name of the token, the proxy's user, or `user@host`: what the audit records as the actor.
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) client: IpAddr,
    pub(crate) proof: Proof,
    /// The limits of an enqueuer; `None`: it may enqueue everything.
    pub(crate) limits: Option<Arc<TokenLimits>>,
}

impl Viewer {
    /// Returns whether it may emit an event of this name: an operator each, an enqueuer those of its token.
    pub(crate) fn may_emit(&self, name: &str) -> bool {
        match &self.limits {
            Some(limits) => limits.has_event(name),
            None => self.role == Role::Operator,
        }
    }

    /// Returns the viewer of a request that nothing proves.
    pub(crate) fn outsider(client: IpAddr) -> Self {
        Viewer {
            name: String::new(),
            role: Role::Outsider,
            client,
            proof: Proof::Nothing,
            limits: None,
        }
    }

    pub(crate) fn is_operator(&self) -> bool {
        self.role == Role::Operator
    }

    /// Returns whether they may change anything at all.
    pub(crate) fn may_write(&self) -> bool {
        self.role == Role::Operator || self.role == Role::Enqueuer
    }
}

// --- The limits of a token: some classes, and some queues ---

/// The classes and queues of a token. A name that ends in `*` stands for all that begin so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenLimits {
    /// `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) classes: Option<Vec<String>>,
    /// `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queues: Option<Vec<String>>,
    /// True if it may pass arguments and nothing else: all options are those of the class.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) arguments_only: bool,
    /// The events that it may emit. `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<Vec<String>>,
}

impl TokenLimits {
    /// Returns limits to these names; an empty list is no limit.
    pub(crate) fn new(classes: &[String], queues: &[String]) -> Self {
        let some = |names: &[String]| (!names.is_empty()).then(|| names.to_vec());
        TokenLimits {
            classes: some(classes),
            queues: some(queues),
            arguments_only: false,
            events: None,
        }
    }

    /// Allows these events, if there are any. Without classes, the token is for them alone.
    pub(crate) fn with_events(mut self, events: &[String]) -> Self {
        if !events.is_empty() {
            self.events = Some(events.to_vec());
            self.classes.get_or_insert_default();
        }
        self
    }

    /// Reads the column. What cannot be read allows nothing.
    pub(crate) fn of_column(column: &str) -> Self {
        // serde reads a struct from a list, too.
        let read = column
            .starts_with('{')
            .then(|| serde_json::from_str(column));
        read.and_then(Result::ok).unwrap_or(TokenLimits {
            classes: Some(Vec::new()),
            queues: Some(Vec::new()),
            arguments_only: true,
            events: None,
        })
    }

    /// Returns the column; `None` without limits.
    pub(crate) fn to_column(&self) -> Option<String> {
        let is_limited = *self != TokenLimits::default();
        is_limited.then(|| serde_json::to_string(self).unwrap_or_default())
    }

    pub(crate) fn has_class(&self, name: &str) -> bool {
        is_one_of(self.classes.as_deref(), name)
    }

    pub(crate) fn has_queue(&self, name: &str) -> bool {
        is_one_of(self.queues.as_deref(), name)
    }

    fn has_event(&self, name: &str) -> bool {
        self.events.is_some() && is_one_of(self.events.as_deref(), name)
    }
}

fn is_one_of(names: Option<&[String]>, name: &str) -> bool {
    let is_it = |allowed: &String| match allowed.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => allowed == name,
    };
    names.is_none_or(|names| names.iter().any(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_beginnings_of_names_are_allowed() {
        let limits = TokenLimits::new(&["mail".to_owned(), "report/*".to_owned()], &[]);
        for (class, may) in [
            ("mail", true),
            ("mails", false),
            ("report/daily", true),
            ("report", false),
            ("Mail", false),
        ] {
            assert_eq!(limits.has_class(class), may, "{class}");
        }
        assert!(limits.has_queue("any"));
        let column = limits.to_column().unwrap();
        assert_eq!(TokenLimits::of_column(&column), limits);
        assert_eq!(TokenLimits::new(&[], &[]).to_column(), None);
    }

    #[test]
    fn what_cannot_be_read_allows_nothing() {
        for column in [
            "",
            "[]",
            "{\"classes\": 7}",
            "{\"users\": [\"ada\"]}",
            "null",
        ] {
            let limits = TokenLimits::of_column(column);
            assert!(
                !limits.has_class("mail") && !limits.has_queue("mail"),
                "{column}"
            );
        }
    }
}
