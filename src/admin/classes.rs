//! Pauses of classes, and which classes are known.

use crate::db::model::audit::{Actor, AuditAction};
use crate::db::table::run_time::{self, PausedClass};
use crate::db::transition::audit::AuditTrail;
use crate::db::transition::pause;
use crate::db::{AsConn, own};
use crate::error::{ErrorContext, Result};

/// Pauses a class: within a second, workers start none of its jobs. Running jobs continue, and jobs
/// can still be enqueued. Jobs of other classes are not held up.
///
/// `class` is the name of the job type, as jobs are stored with it. `by` and `reason` are shown
/// with the class and may be empty. Workers of Rails do not heed it.
///
/// Returns `false` if the class was already paused; its original `by`, `reason` and time are kept.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// assert!(windlass::classes::pause(&mut conn, "send_invoice", "ada", "wrong amounts")?);
/// assert_eq!(windlass::classes::paused(&mut conn)?[0].class_name, "send_invoice");
/// assert!(windlass::classes::resume(&mut conn, "send_invoice")?);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn pause_class<C: AsConn + ?Sized>(
    conn: &mut C,
    class: &str,
    by: &str,
    reason: &str,
) -> Result<bool> {
    Actor::named(by)
        .reason(reason)
        .pause_named(conn, class, !by.is_empty())
}

/// Resumes a paused class: within a second, workers start its jobs again. Returns `false` if it was
/// not paused.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::classes;
///
/// classes::pause(&mut conn, "send_invoice", "ada", "wrong amounts")?;
/// assert!(classes::resume(&mut conn, "send_invoice")?);
/// assert!(!classes::resume(&mut conn, "send_invoice")?, "it is not paused any more");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn resume_class<C: AsConn + ?Sized>(conn: &mut C, class: &str) -> Result<bool> {
    Actor::default().resume_class(conn, class)
}

impl Actor {
    /// Does what [`classes::pause`](crate::classes::pause) does.
    ///
    /// # Errors
    /// As for [`classes::pause`](crate::classes::pause).
    pub fn pause_class<C: AsConn + ?Sized>(&self, conn: &mut C, class: &str) -> Result<bool> {
        self.pause_named(conn, class, true)
    }

    fn pause_named<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        class: &str,
        is_named: bool,
    ) -> Result<bool> {
        let (by, reason) = (
            Some(self.name()).filter(|_| is_named),
            self.reason.as_deref(),
        );
        let paused = AuditTrail::new(self, AuditAction::PauseClass)
            .target(class)
            .record_if(&mut own(conn), |conn| {
                run_time::insert_class_pause(conn, class, by, reason)
            });
        paused.during("pause the class")
    }

    /// Does what [`classes::resume`](crate::classes::resume) does.
    ///
    /// # Errors
    /// As for [`classes::resume`](crate::classes::resume).
    pub fn resume_class<C: AsConn + ?Sized>(&self, conn: &mut C, class: &str) -> Result<bool> {
        let resumed = AuditTrail::new(self, AuditAction::ResumeClass)
            .target(class)
            .record_if(&mut own(conn), |conn| pause::resume_class(conn, class));
        resumed.during("resume the class")
    }

    /// Sets whether enqueues by the name of a class refuse the classes that no worker has stored; see
    /// [`classes::strict`](crate::classes::strict). Returns `false` if that was set already.
    ///
    /// # Errors
    /// If the database does not answer or has no tables.
    pub fn set_strict_classes<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        strict: bool,
    ) -> Result<bool> {
        let set = AuditTrail::new(self, AuditAction::SetStrictClasses)
            .target(if strict { "on" } else { "off" })
            .record_if(&mut own(conn), |conn| run_time::set_strict(conn, strict));
        set.during("change the settings")
    }
}

/// Returns whether enqueues by the name of a class refuse the classes that no worker has stored.
///
/// That holds for [`NewJob::of_class`](crate::NewJob::of_class), and for programs that enqueue by SQL.
/// A worker stores its classes when it starts; they are known until no worker has stored them for the
/// time that the supervisor keeps them. Default: no.
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::audit::Actor;
/// # use windlass::{Error, NewJob};
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// assert!(!windlass::classes::strict(&mut conn)?);
/// Actor::default().set_strict_classes(&mut conn, true)?;
/// let typo = NewJob::of_class("send_invocie", "{}").enqueue(&mut conn);
/// assert!(matches!(typo, Err(Error::UnknownClass { .. })));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn strict_classes<C: AsConn + ?Sized>(conn: &mut C) -> Result<bool> {
    run_time::is_strict(&mut own(conn)).during("read the settings")
}

/// Returns the paused classes, by name.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::classes;
///
/// classes::pause(&mut conn, "send_invoice", "ada", "wrong amounts")?;
/// let paused = &classes::paused(&mut conn)?[0];
/// assert_eq!(paused.pause_reason.as_deref(), Some("wrong amounts"));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn paused_classes<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<PausedClass>> {
    run_time::list_paused_classes(&mut own(conn)).during("read the paused classes")
}
