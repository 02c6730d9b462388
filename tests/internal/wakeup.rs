//! Whoever listens hears of every commit.

use crate::clock;
use crate::db::conn::connection::AsConn as _;
use crate::db::internal_tests::db::{TestDb, execute};
use crate::db::query::status;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// For how long a commit may go unheard of, counted from its end. Shorter than
/// the pause after which a listener looks though it has heard nothing.
const DEADLINE: Duration = Duration::from_secs(30);

/// A commit that takes longer, on a busy disk, is heard of by that look only.
const LONG: Duration = Duration::from_secs(1);

/// An idle worker sees two commits, one right behind the other, as a claim and
/// its end. The second is written while the first is looked at.
#[test]
fn the_second_of_two_commits_is_heard_of() {
    let db = TestDb::sqlite();
    let mut listener = db.database.listen(None).unwrap();
    let mut reader = db.connect();
    let (next, done, writer) = writer(&db);
    for round in 1..=150 {
        next.send(()).unwrap();
        let mut deadline = None;
        // Only what was heard is a reason to look.
        loop {
            let heard = listener.wait(Duration::from_millis(50)).unwrap();
            if heard && status::queues(&mut reader.as_conn()).unwrap().len() == 2 * round {
                break;
            }
            if let Ok(took) = done.try_recv() {
                let more = if took < LONG { 1 } else { 4 };
                deadline = Some(clock::deadline(DEADLINE * more));
            }
            let is_over = deadline.is_some_and(|deadline| clock::instant() > deadline);
            assert!(!is_over, "not heard of in round {round}");
        }
        if deadline.is_none() {
            done.recv().unwrap();
        }
    }
    drop(next);
    writer.join().unwrap();
}

/// Commits twice, durably, for each `()`, and says how long that took.
fn writer(db: &TestDb) -> (Sender<()>, Receiver<Duration>, std::thread::JoinHandle<()>) {
    let (next, rounds) = channel();
    let (tell, done) = channel();
    let mut connections = [0, 1].map(|_| db.database.connect().unwrap());
    let writer = std::thread::spawn(move || {
        for ((), round) in rounds.iter().zip(0..) {
            let start = clock::instant();
            for (number, connection) in connections.iter_mut().enumerate() {
                let text = format!(
                    "INSERT INTO solid_queue_pauses (queue_name, created_at) \
                     VALUES ('{round}-{number}', '2026-11-21 00:00:00')"
                );
                execute(&mut connection.as_conn(), &text);
            }
            tell.send(start.elapsed()).unwrap();
        }
    });
    (next, done, writer)
}
