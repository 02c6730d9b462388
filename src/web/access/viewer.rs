//! Whom a request is from, and what they may do.

use crate::web::access::limits::TokenLimits;
use std::net::IpAddr;
use std::sync::Arc;

/// What a token, or a user, may do.
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

/// What a page needs.
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

/// How a viewer is proven.
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
    /// What an enqueuer may enqueue; `None`: everything.
    pub(crate) limits: Option<Arc<TokenLimits>>,
}

impl Viewer {
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
