//! The first page.

use super::client::{get, serve};
use crate::support::TestDb;
use windlass::NewJob;

fn it_shows_the_queues(db: &TestDb) {
    let mut conn = db.connect();
    for queue in ["mail", "hostile"] {
        let job = NewJob::of_class("send", "{}").queue(queue);
        job.enqueue(&mut conn).unwrap();
    }
    // As a Rails app could name it.
    let name = "<b>&\"''";
    db.execute(&format!(
        "UPDATE solid_queue_ready_executions SET queue_name = '{name}' WHERE queue_name = 'hostile'"
    ));
    let server = serve(&db.database);
    let page = get(&server, "/").expect(200);
    assert!(page.contains("<th scope=\"row\">mail</th>"), "{page}");
    assert!(page.contains("&#60;b&#62;&#38;&#34;&#39;"), "{page}");
    assert!(!page.contains("<b>&"), "{page}");
}

fn without_jobs_it_says_so(db: &TestDb) {
    let page = get(&serve(&db.database), "/").expect(200);
    assert!(page.contains("A queue appears here when a job is on it."));
}

crate::on_each_database!(it_shows_the_queues, without_jobs_it_says_so);
