//! Tags, metadata and public tokens on the command line.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;
use windlass::jobs;

on_each_database!(
    tags_are_given_listed_and_changed,
    a_public_token_is_printed_once,
    wrong_tags_and_metadata_are_refused,
);

fn out(db: &TestDb, arguments: &[&str]) -> String {
    let said = windlass(&db.url, arguments);
    assert!(said.is_done(), "{said:?}");
    said.out
}

fn tags_are_given_listed_and_changed(db: &TestDb) {
    let import = "enqueue import --tag a --tag b --meta x={\"y\":1} --meta n=7";
    out(db, &import.split(' ').collect::<Vec<_>>());
    let plain = out(db, &["enqueue", "import"]);
    assert_eq!(plain, "Enqueued job 2.\n");
    let listed = out(db, &["jobs", "list"]);
    assert!(
        listed.contains("TAGS") && listed.contains("a, b"),
        "{listed}"
    );
    let listed = out(db, &["jobs", "list", "--tag", "a", "--tag", "b"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let none = out(db, &["jobs", "list", "--tag", "a", "--tag", "c"]);
    assert_eq!(none, "No job matches.\n");
    let none = out(db, &["failed", "list", "--any-tag", "a"]);
    assert_eq!(none, "No failed job matches.\n");
    assert_eq!(
        out(db, &["jobs", "tag", "c", "1", "2"]),
        "2 jobs were tagged.\n"
    );
    let both = out(db, &["jobs", "list", "--any-tag", "c", "--any-tag", "d"]);
    assert_eq!(both.lines().count(), 3, "{both}");
    let untagged = out(db, &["jobs", "untag", "b", "--tag", "c"]);
    assert!(untagged.starts_with("1 job was untagged."), "{untagged}");
    let shown = out(db, &["jobs", "show", "1"]);
    assert!(shown.contains("\nTags:\n  a\n  c\n"), "{shown}");
    // No worker has stored which fields of the class are secret.
    let metadata = "\nMetadata:\n  n: \"[hidden]\"\n  x: \"[hidden]\"\n";
    assert!(shown.contains(metadata), "{shown}");
    let shown = out(db, &["jobs", "show", "1", "--show-arguments"]);
    let metadata = "\nMetadata:\n  n: 7\n  x: {\"y\":1}\n";
    assert!(shown.contains(metadata), "{shown}");
    let listed = windlass(&db.url, &["jobs", "list", "--json"]).json();
    assert_eq!(listed["jobs"][0]["tags"], serde_json::json!(["a", "c"]));
    assert_eq!(
        out(db, &["jobs", "cancel", "--tag", "a"]),
        "1 job was cancelled.\n"
    );
}

fn a_public_token_is_printed_once(db: &TestDb) {
    let said = out(db, &["enqueue", "import", "--public-token", "--key", "k"]);
    let token = said
        .strip_prefix("Enqueued job 1.\nPublic token: ")
        .unwrap();
    let task = jobs::status_by_token(&mut db.connection(), token.trim_end());
    assert_eq!(task.unwrap().unwrap().job_id.0, 1);
    let again = [
        "enqueue",
        "import",
        "--public-token",
        "--key",
        "k",
        "--json",
    ];
    let again = windlass(&db.url, &again).json();
    assert_eq!(again["is_new"], false);
    assert_eq!(again["public_token"].as_str().unwrap().len(), 40);
    assert!(!out(db, &["jobs", "show", "1"]).contains(token.trim_end()));
    let plain = windlass(&db.url, &["enqueue", "import", "--json"]).json();
    assert!(plain.get("public_token").is_none());
    let old = ["enqueue", "import", "--arguments-version", "3", "--json"];
    let old = windlass(&db.url, &old).json()["job_id"].to_string();
    let shown = windlass(&db.url, &["jobs", "show", &old, "--json"]).json();
    assert_eq!(shown["arguments_version"], 3);
}

fn wrong_tags_and_metadata_are_refused(db: &TestDb) {
    for (arguments, part) in [
        (&["enqueue", "a", "--meta", "x"][..], "key=JSON"),
        (&["enqueue", "a", "--meta", "x=y"], "not JSON"),
        (&["enqueue", "a", "--tag", ""], "1 to 100 bytes"),
        (&["jobs", "tag", "", "--all"], "1 to 100 bytes"),
        (&["jobs", "tag", "a"], "no jobs are selected"),
        (
            &["jobs", "tag", "a", "--all", "--tag", "b"],
            "cannot be used",
        ),
    ] {
        let said = windlass(&db.url, arguments);
        assert!(!said.is_done() && said.err.contains(part), "{said:?}");
    }
    assert_eq!(db.rows("jobs"), 0);
}
