//! Base paths, several databases, and a replica.

use super::access::token;
use super::client::{Ask, get, post};
use crate::support::TestDb;
#[cfg(feature = "postgres")]
use crate::support::proxy::Proxy;
use windlass::NewJob;
use windlass_console::web::Server;

fn a_proxy_may_remove_the_base_path_or_not(db: &TestDb) {
    let secret = token(db, "ada", "operator", &[]);
    let server = Server::new(&db.database)
        .listen("127.0.0.1:0")
        .base_path("/tools/windlass/")
        .start()
        .unwrap();
    for path in ["/", "/tools/windlass/"] {
        let ask = Ask::new(server.address(), "GET", path);
        let ask = ask.header("Authorization", &format!("Bearer {secret}"));
        let page = ask.send().expect(200);
        assert!(
            page.contains("href=\"/tools/windlass/assets/style."),
            "{page}"
        );
        assert!(page.contains("action=\"/tools/windlass/theme\""), "{page}");
        assert!(
            page.contains("data-live-from=\"/tools/windlass/live?path=%2F\""),
            "{page}"
        );
        assert!(
            !page.contains("href=\"/\"") && !page.contains("href=\"/a"),
            "{page}"
        );
    }
    for path in ["/theme", "/tools/windlass/theme"] {
        let reply = post(&server, path, "theme=dark&back=%2Fjobs");
        assert_eq!(reply.header("location"), Some("/tools/windlass/jobs"));
        assert!(reply.cookies()[0].contains("; Path=/tools/windlass;"));
    }
    assert_eq!(get(&server, "/tools/windlass/livez").status, 200);
    assert_eq!(get(&server, "/tools/livez").status, 401);
    let wrong = Server::new(&db.database)
        .base_path("https://example.com/x")
        .start();
    assert!(wrong.unwrap_err().to_string().contains("web.base_path"));
    // The server has pages of its own at these paths, so it would be unclear which one is meant.
    for own in ["/jobs", "/assets/windlass", "db"] {
        let wrong = Server::new(&db.database).base_path(own).start();
        let says = wrong.unwrap_err().to_string();
        assert!(says.contains("pages of its own"), "{says}");
    }
}

fn several_databases_have_pages_of_their_own(db: &TestDb) {
    let other = TestDb::sqlite();
    for (db, queue) in [(db, "mail"), (&other, "invoices")] {
        let job = NewJob::of_class("send", "{}").queue(queue);
        job.enqueue(&mut db.connection()).unwrap();
    }
    let server = Server::new(&db.database)
        .listen("127.0.0.1:0")
        .name("main")
        .database("billing", &other.database)
        .start()
        .unwrap();
    let first = get(&server, "/").expect(200);
    assert!(
        first.contains(">mail<") && !first.contains(">invoices<"),
        "{first}"
    );
    assert!(first.contains("href=\"/db/billing/\""), "{first}");
    for path in ["/db/billing/", "/db/billing"] {
        let second = get(&server, path).expect(200);
        assert!(
            second.contains(">invoices<") && !second.contains(">mail<"),
            "{second}"
        );
        assert!(
            second.contains("href=\"/db/billing/jobs\"")
                || second.contains("action=\"/db/billing/jobs\"")
        );
        assert!(
            second.contains("data-live-from=\"/db/billing/live?path=%2F\""),
            "{second}"
        );
    }
    assert_eq!(get(&server, "/db/nowhere/").status, 404);
    let reply = post(&server, "/db/billing/theme", "theme=dark&back=%2Fjobs");
    assert_eq!(reply.header("location"), Some("/db/billing/jobs"));
    for name in ["main", "a/b"] {
        let server = Server::new(&db.database).listen("127.0.0.1:0").name("main");
        assert!(
            server.database(name, &other.database).start().is_err(),
            "{name}"
        );
    }
}

#[cfg(feature = "postgres")]
#[test]
fn reads_go_to_the_replica() {
    let db = TestDb::postgres();
    let mut proxy = Proxy::opened(&db.url);
    let server = Server::new(&db.database)
        .listen("127.0.0.1:0")
        .replica(&proxy.url(&db.url))
        .unwrap()
        .start()
        .unwrap();
    get(&server, "/").expect(200);
    proxy.close();
    // The overview was seen, so it is shown in grey.
    let ask = Ask::new(server.address(), "GET", "/").header("Accept", "text/html");
    let page = ask.send().expect(503);
    assert!(page.contains("What was last seen"), "{page}");
    let secret = token(&db, "ada", "operator", &[]);
    // Signing in needs the database itself, and no replica.
    assert_eq!(
        post(&server, "/login", &format!("token={secret}")).status,
        303
    );
    assert!(Server::new(&db.database).replica("sqlite://x.db").is_err());
}

crate::on_each_database!(
    a_proxy_may_remove_the_base_path_or_not,
    several_databases_have_pages_of_their_own,
);
