//! Shares as operators see and set them: the program, explanations, metrics, doctor, the configuration and tests.

use super::{jobs_of, registry, share};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::program::windlass;
use crate::support::wait::until;
use std::sync::Arc;
use windlass::jobs::{self, Reason};
use windlass::tenants::{self, ShareBy};
use windlass::{Dispatcher, enqueue_all, testing};
use windlass_console::Config;

/// Lets jobs of two tenants wait for their share. Returns the last job of the first.
pub fn two_wait(db: &TestDb) -> windlass::JobId {
    share(db);
    let mut conn = db.connection();
    let all = enqueue_all(&mut conn, jobs_of("acme", 5)).unwrap();
    enqueue_all(&mut conn, jobs_of("globex", 5)).unwrap();
    let dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("both wait", || db.rows_of("windlass_lines") == 2);
    drop(dispatcher);
    all[4].id
}

fn shares_are_set_and_shown_by_the_program(db: &TestDb) {
    let says = |arguments: &[&str], words: &str| {
        let said = windlass(&db.url, arguments);
        assert!(
            said.is_done() && said.out.contains(words),
            "{words}: {said:?}"
        );
        said.out
    };
    says(&["tenants", "list"], "No queue is shared.");
    says(&["tenants", "list", "mail"], "No tenant uses mail.");
    let by_time = ["tenants", "share", "mail", "--time", "--by", "ada"];
    says(
        &by_time,
        "mail is shared by time; `windlass tenants unshare",
    );
    says(&["tenants", "share", "mail"], "mail is shared by jobs");
    let weight = ["tenants", "weight", "mail", "acme", "3"];
    says(&weight, "The weight of acme in mail is 3.");
    says(&weight, "The weight of acme in mail was 3 already.");
    two_wait(db);
    let listed = says(&["tenants", "list"], "mail");
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["mail", "jobs", "2"], "{listed}");
    let json = says(&["tenants", "list", "--json"], "queues");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["queues"][0]["by"], "jobs", "{json}");
    let listed = says(&["tenants", "list", "mail"], "acme");
    let row = listed.lines().find(|line| line.starts_with("acme"));
    let row: Vec<&str> = row.unwrap().split_whitespace().collect();
    assert_eq!((row[1], row[3], row[5]), ("3", "0", "%"), "{listed}");
    let json = says(&["tenants", "list", "mail", "--json"], "tenants");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["tenants"].as_array().unwrap().len(), 2, "{json}");
    says(&["tenants", "unshare", "mail"], "mail is shared no more.");
    says(&["tenants", "unshare", "mail"], "mail was not shared.");
    for wrong in [
        ["tenants", "weight", "mail", "acme", "0"].as_slice(),
        &["tenants", "weight", "mail", "acme", "1001"],
        &["tenants", "weight", "mail", "a\nb", "2"],
        &["tenants", "share", "a\nb"],
    ] {
        assert!(!windlass(&db.url, wrong).is_done(), "{wrong:?}");
    }
    let audited = db.texts(
        "SELECT action || ' ' || coalesce(parameters, '') AS t FROM windlass_audit WHERE target = 'mail' ORDER BY id",
    );
    let expected = [
        r#"tenants.share {"by":"time"}"#,
        r#"tenants.share {"by":"jobs"}"#,
        r#"tenants.weight {"tenant":"acme","weight":3}"#,
        "tenants.unshare ",
    ];
    assert_eq!(audited, expected);
}

fn a_job_that_waits_for_a_share_is_explained(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    let explained = |conn: &mut _, job| jobs::explain(conn, job).unwrap().unwrap().reason;
    // No promotion has looked at its line.
    let job = enqueue_all(&mut conn, jobs_of("acme", 3)).unwrap()[2].id;
    let waits = |ahead| Reason::Share {
        queue: "mail".to_owned(),
        tenant: "acme".to_owned(),
        ahead,
    };
    assert_eq!(explained(&mut conn, job), waits(2));
    let job = two_wait(db);
    let Reason::Share { ahead, .. } = explained(&mut conn, job) else {
        panic!("it waits for no share");
    };
    assert!(ahead > 0 && ahead < 8, "{ahead}");
    let said = windlass(&db.url, &["explain", &job.to_string()]);
    let words = format!("It waits for its tenant's share of mail, behind {ahead} of acme.");
    assert!(said.out.contains(&words), "{said:?}");
}

fn doctor_reports_a_queue_that_stands_still(db: &TestDb) {
    two_wait(db);
    let fine = "no shared queue stands still";
    let said = windlass(&db.url, &["doctor"]);
    assert!(said.out.contains(fine), "{said:?}");
    db.execute("UPDATE windlass_fair_queues SET moved_at = moved_at - 601000000");
    let ready =
        db.count("SELECT job_id AS n FROM solid_queue_ready_executions ORDER BY job_id LIMIT 1");
    let said = windlass(&db.url, &["doctor"]);
    for words in [
        "jobs wait for their share of the queue mail, and none of it has started for more than ten minutes".to_owned(),
        format!("`windlass explain {ready}`"),
    ] {
        assert!(said.out.contains(&words), "{words}: {said:?}");
    }
    windlass::queues::pause(&mut db.connection(), "mail", "", "").unwrap();
    let said = windlass(&db.url, &["doctor"]);
    assert!(said.out.contains(fine), "{said:?}");
}

fn a_configuration_shares_queues(db: &TestDb) {
    let mut conn = db.connection();
    tenants::share(&mut conn, "import", ShareBy::Time).unwrap();
    tenants::share(&mut conn, "kept", ShareBy::Time).unwrap();
    tenants::set_weight(&mut conn, "mail", "globex", 7).unwrap();
    let config = Config::parse(
        "[queues.mail]\nfair = \"time\"\nweights = { acme = 3, 'in \"quotes\"' = 2 }\n\
         [queues.report]\nfair = true\nmax_wait = '2s'\n[queues.import]\nfair = false\n",
    )
    .unwrap();
    for _ in 0..2 {
        let worker = config.worker(&db.database, registry(&Arc::new(Log::default())));
        drop(worker.unwrap());
        let queues = tenants::queues(&mut conn).unwrap();
        let queues: Vec<_> = queues
            .iter()
            .map(|queue| (&*queue.queue, queue.by))
            .collect();
        let expected = [
            ("kept", ShareBy::Time),
            ("mail", ShareBy::Time),
            ("report", ShareBy::Jobs),
        ];
        assert_eq!(queues, expected);
    }
    let weights = "SELECT tenant || ' ' || weight AS t FROM windlass_tenants ORDER BY tenant";
    assert_eq!(db.texts(weights), ["acme 3", "globex 7", "in \"quotes\" 2"]);
    // Nothing changed the second time.
    let audited = "SELECT action || ' ' || target || ' ' || reason AS t FROM windlass_audit WHERE reason IS NOT NULL ORDER BY target, id";
    let expected = [
        "tenants.unshare import configured: line 8",
        "tenants.share mail configured: line 2",
        "tenants.weight mail configured: line 3",
        "tenants.weight mail configured: line 3",
        "tenants.share report configured: line 5",
    ];
    assert_eq!(db.texts(audited), expected);
    let supervisor = Config::parse("[queues.kept]\nfair = false\n").unwrap();
    drop(supervisor.supervisor(&db.database, None).unwrap());
    assert_eq!(tenants::queues(&mut conn).unwrap().len(), 2);
}

fn tests_ignore_shares_unless_they_ask(db: &TestDb) {
    let mut conn = db.connection();
    let registry = registry(&Arc::new(Log::default()));
    enqueue_all(&mut conn, jobs_of("acme", 4)).unwrap();
    share(db);
    enqueue_all(&mut conn, jobs_of("acme", 4)).unwrap();
    let drain = testing::Drain::new(&registry).without_limits();
    drain.run_on(&mut conn).unwrap().assert_all_finished(8);
    assert_eq!(db.rows("blocked_executions"), 0);
}

on_each_database!(
    shares_are_set_and_shown_by_the_program,
    a_job_that_waits_for_a_share_is_explained,
    doctor_reports_a_queue_that_stands_still,
    a_configuration_shares_queues,
    tests_ignore_shares_unless_they_ask,
);
