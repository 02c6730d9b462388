//! Panels that are not ready in time.

#[cfg(feature = "postgres")]
use super::post;
use super::{enqueue, page, serve, text};
use crate::support::TestDb;

fn only_the_panel_that_was_asked_for_is_read(db: &TestDb) {
    enqueue(db, "mail", "send");
    let server = serve(&db.database);
    let page = page(&server, "/?alone=the-busiest-classes-of-the-last-hour");
    let text = text(&page);
    assert!(
        text.contains("Nothing has ended in the last hour."),
        "{text}"
    );
    assert!(
        text.contains(
            "Left out, because another panel was asked for alone. It shows what needs attention."
        ),
        "{text}"
    );
    assert!(
        page.contains("href=\"/?alone=what-needs-attention\""),
        "{page}"
    );
    assert!(
        !page.contains("data-live-from"),
        "it is not read again and again"
    );
}

/// On SQLite, no reader waits.
#[cfg(feature = "postgres")]
fn a_late_panel_says_so_and_the_page_stands() {
    let db = TestDb::postgres();
    enqueue(&db, "mail", "send");
    let server = serve(&db.database);
    let mut conn = db.connect();
    crate::support::db::execute(&mut conn, "BEGIN");
    crate::support::db::execute(
        &mut conn,
        "LOCK TABLE windlass_stats IN ACCESS EXCLUSIVE MODE",
    );
    let page = page(&server, "/queues");
    assert!(text(&page).contains("Queue Verdict"), "{page}");
    let of_queue = super::page(&server, "/queues/mail");
    let shown = text(&of_queue);
    assert!(
        shown.contains("This panel was not ready within 1 s. It shows the history of this queue."),
        "{shown}"
    );
    assert!(
        of_queue
            .contains("href=\"/queues/mail?alone=the-history-of-this-queue\">Try this panel alone"),
        "{of_queue}"
    );
    assert!(
        shown.contains("Ready 1"),
        "the other panels are there: {shown}"
    );
    crate::support::db::execute(&mut conn, "ROLLBACK");
    assert!(!super::page(&server, "/queues/mail").contains("This panel"));
}

#[cfg(feature = "postgres")]
fn a_late_check_of_doctor_is_not_fine() {
    let db = TestDb::postgres();
    let server = serve(&db.database);
    // It has checked the tables then, and no page has read what pages share.
    post(&server, "/limits/set", "key=import%2F7&slots=3").expect(303);
    let mut conn = db.connect();
    crate::support::db::execute(&mut conn, "BEGIN");
    // The checks read it, and the frame of a page does not.
    crate::support::db::execute(
        &mut conn,
        "LOCK TABLE solid_queue_recurring_tasks IN ACCESS EXCLUSIVE MODE",
    );
    for (path, what) in [
        ("/doctor", "the checks of doctor"),
        ("/doctor?full=1", "the checks of all rows"),
    ] {
        let page = page(&server, path);
        let shown = text(&page);
        let late = format!("This panel was not ready within 1 s. It shows {what}.");
        assert!(shown.contains(&late), "{path}: {shown}");
        assert!(!shown.contains("checks are fine"), "{path}: {shown}");
        let alone = format!("alone={}\">Try this panel alone", what.replace(' ', "-"));
        assert!(page.contains(&alone), "{path}: {page}");
    }
    let overview = text(&page(&server, "/"));
    assert!(!overview.contains("checks are fine"), "{overview}");
    crate::support::db::execute(&mut conn, "ROLLBACK");
    crate::support::wait::until("the checks are there", || {
        text(&page(&server, "/doctor")).contains("checks are fine")
    });
}

#[cfg(feature = "postgres")]
#[test]
fn late_on_postgres() {
    a_late_panel_says_so_and_the_page_stands();
}

#[cfg(feature = "postgres")]
#[test]
fn doctor_is_late_on_postgres() {
    a_late_check_of_doctor_is_not_fine();
}

crate::on_each_database!(only_the_panel_that_was_asked_for_is_read);
