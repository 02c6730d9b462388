//! Who changes something, and what the audit says about it.

use serde::Serialize;

/// The way by which a change came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Via {
    /// By a page of `windlass web`.
    Page,
    /// By a command of `windlass`.
    Cli,
    /// By a program that called this library.
    Library,
    /// By a request over HTTP that no page sent.
    Http,
}

impl Via {
    pub(crate) fn column(self) -> &'static str {
        match self {
            Via::Page => "page",
            Via::Cli => "cli",
            Via::Library => "library",
            Via::Http => "http",
        }
    }

    /// Returns the way of a stored row.
    pub(crate) fn of_column(text: &str) -> Self {
        match text {
            "page" => Via::Page,
            "cli" => Via::Cli,
            "http" => Via::Http,
            _ => Via::Library,
        }
    }
}

/// The name, the way, the place and the reason of a change, as the audit stores them.
///
/// Every function of this crate that changes something as an operator does has a method of the same
/// kind here. The functions record the [default](Self::default) actor, [`Jobs::by`](crate::jobs::Jobs::by)
/// names another one.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::audit::{Actor, AuditLog};
///
/// let ada = Actor::named("ada").reason("the provider is down");
/// ada.pause_queue(&mut conn, "mail")?;
/// let entry = &AuditLog::new().list(&mut conn)?[0];
/// assert_eq!((&*entry.actor, &*entry.action), ("ada", "queues.pause"));
/// assert_eq!(entry.target.as_deref(), Some("mail"));
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Actor {
    pub(crate) name: String,
    pub(crate) via: Via,
    pub(crate) origin: Option<String>,
    pub(crate) reason: Option<String>,
}

/// The most bytes of a name or a place.
const MOST_OF_NAME: usize = 255;

/// The most bytes of a reason.
const MOST_OF_REASON: usize = 2_000;

/// Replaces NUL, which Postgres refuses, and cuts long text.
fn stored(text: String, most: usize) -> String {
    let text = text.replace('\0', "\u{FFFD}");
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

impl Actor {
    pub(crate) fn new(name: String, via: Via, origin: Option<String>) -> Self {
        Actor {
            name: stored(name, MOST_OF_NAME),
            via,
            origin: origin.map(|origin| stored(origin, MOST_OF_NAME)),
            reason: None,
        }
    }

    /// Returns the actor with another name, of at most 255 bytes; the rest is cut off.
    pub(crate) fn with_name(mut self, name: String) -> Self {
        self.name = stored(name, MOST_OF_NAME);
        self
    }

    /// Sets the way by which the change comes. Default: [`Via::Library`].
    #[must_use]
    pub fn via(mut self, via: Via) -> Self {
        self.via = via;
        self
    }

    /// Sets from where the change comes: a host or an address, of at most 255 bytes. Default: the
    /// name of this host.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origin = Some(stored(origin.into(), MOST_OF_NAME));
        self
    }

    /// Sets the reason, of at most 2,000 bytes. An empty one is none, which is the default.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        let reason = stored(reason.into(), MOST_OF_REASON);
        self.reason = Some(reason).filter(|reason| !reason.is_empty());
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// An action as the audit stores it: the words of the command that does the same.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditAction {
    CancelJobs,
    DiscardJobs,
    RetryJobs,
    RescheduleJobs,
    SetPriority,
    MoveJobs,
    EditJob,
    TagJobs,
    UntagJobs,
    PauseQueue,
    ResumeQueue,
    ClearQueue,
    PauseClass,
    ResumeClass,
    SetStrictClasses,
    SetMaxPayload,
    SetLimit,
    ClearLimit,
    ReopenRate,
    ShareQueue,
    UnshareQueue,
    SetWeight,
    ScheduleTask,
    RemoveTask,
    PauseTask,
    ResumeTask,
    RunTask,
    StopOperation,
    AddToken,
    RevokeToken,
}

impl AuditAction {
    /// All of them, by their names.
    pub const ALL: [AuditAction; 30] = [
        AuditAction::PauseClass,
        AuditAction::ResumeClass,
        AuditAction::SetStrictClasses,
        AuditAction::SetMaxPayload,
        AuditAction::CancelJobs,
        AuditAction::DiscardJobs,
        AuditAction::EditJob,
        AuditAction::MoveJobs,
        AuditAction::SetPriority,
        AuditAction::RescheduleJobs,
        AuditAction::RetryJobs,
        AuditAction::TagJobs,
        AuditAction::UntagJobs,
        AuditAction::ClearLimit,
        AuditAction::ReopenRate,
        AuditAction::SetLimit,
        AuditAction::StopOperation,
        AuditAction::ClearQueue,
        AuditAction::PauseQueue,
        AuditAction::ResumeQueue,
        AuditAction::PauseTask,
        AuditAction::RemoveTask,
        AuditAction::ResumeTask,
        AuditAction::RunTask,
        AuditAction::ScheduleTask,
        AuditAction::SetWeight,
        AuditAction::ShareQueue,
        AuditAction::UnshareQueue,
        AuditAction::AddToken,
        AuditAction::RevokeToken,
    ];

    #[doc(hidden)]
    pub fn column(self) -> &'static str {
        match self {
            AuditAction::CancelJobs => "jobs.cancel",
            AuditAction::DiscardJobs => "jobs.discard",
            AuditAction::RetryJobs => "jobs.retry",
            AuditAction::RescheduleJobs => "jobs.reschedule",
            AuditAction::SetPriority => "jobs.priority",
            AuditAction::MoveJobs => "jobs.move",
            AuditAction::EditJob => "jobs.edit",
            AuditAction::TagJobs => "jobs.tag",
            AuditAction::UntagJobs => "jobs.untag",
            AuditAction::PauseQueue => "queues.pause",
            AuditAction::ResumeQueue => "queues.resume",
            AuditAction::ClearQueue => "queues.clear",
            AuditAction::PauseClass => "classes.pause",
            AuditAction::ResumeClass => "classes.resume",
            AuditAction::SetStrictClasses => "classes.strict",
            AuditAction::SetMaxPayload => "events.max",
            AuditAction::SetLimit => "limits.set",
            AuditAction::ClearLimit => "limits.clear",
            AuditAction::ReopenRate => "limits.reopen",
            AuditAction::ShareQueue => "tenants.share",
            AuditAction::UnshareQueue => "tenants.unshare",
            AuditAction::SetWeight => "tenants.weight",
            AuditAction::ScheduleTask => "recurring.schedule",
            AuditAction::RemoveTask => "recurring.remove",
            AuditAction::PauseTask => "recurring.pause",
            AuditAction::ResumeTask => "recurring.resume",
            AuditAction::RunTask => "recurring.run",
            AuditAction::StopOperation => "operations.stop",
            AuditAction::AddToken => "tokens.add",
            AuditAction::RevokeToken => "tokens.revoke",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_are_made_storable() {
        let actor = Actor::new("a\0b".into(), Via::Cli, None).reason("ä".repeat(3_000));
        assert_eq!(actor.name, "a\u{FFFD}b");
        assert_eq!(actor.reason.unwrap().len(), MOST_OF_REASON);
        let named = Actor::new("ä".repeat(200), Via::Cli, None);
        assert_eq!(named.name.chars().count(), 127);
        assert_eq!(named.reason("").reason, None);
    }
}
