//! Who may come in.

use super::client::{Ask, Reply, get, post, serve};
use crate::support::TestDb;
use crate::support::program::windlass;
use crate::support::wait::until;
use windlass_console::web::{RunningServer, Server};

/// Makes a token as an operator does, and returns its text.
pub fn token(db: &TestDb, name: &str, role: &str, more: &[&str]) -> String {
    let arguments = [
        &["web", "tokens", "add", name, "--role", role, "--json"],
        more,
    ]
    .concat();
    let said = windlass(&db.url, &arguments);
    assert_eq!(said.code, Some(0), "{said:?}");
    let made: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    made["token"].as_str().unwrap().to_owned()
}

fn with_token(server: &RunningServer, path: &str, token: &str) -> Reply {
    let ask = Ask::new(server.address(), "GET", path);
    ask.header("Authorization", &format!("Bearer {token}"))
        .send()
}

fn with_cookie(server: &RunningServer, path: &str, cookie: &str) -> Reply {
    let ask = Ask::new(server.address(), "GET", path);
    ask.header("Cookie", cookie)
        .header("Accept", "text/html")
        .send()
}

/// Signs in, and returns the cookie.
pub fn sign_in(server: &RunningServer, token: &str) -> String {
    let reply = post(server, "/login", &format!("token={token}&back=%2F"));
    assert_eq!(
        (reply.status, reply.header("location")),
        (303, Some("/")),
        "{reply:?}"
    );
    let cookie = reply.cookies()[0];
    for part in ["; Path=/;", "HttpOnly", "SameSite=Strict", "Max-Age=604800"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

fn without_tokens_those_on_this_host_are_operators(db: &TestDb) {
    let server = Server::new(&db.database)
        .listen("127.0.0.1:0")
        .local_name("ada@web-1");
    let page = get(&server.start().unwrap(), "/").expect(200);
    assert!(
        page.contains("ada@web-1") && !page.contains("Sign out"),
        "{page}"
    );
}

fn with_a_token_everyone_must_sign_in(db: &TestDb) {
    let server = serve(&db.database);
    get(&server, "/").expect(200);
    let secret = token(db, "ada", "operator", &[]);
    assert!(
        secret.starts_with("windlass_") && secret.len() == 73,
        "{secret}"
    );
    assert_eq!(
        db.count("SELECT count(*) AS n FROM windlass_web_tokens WHERE length(digest) = 64"),
        1
    );
    until("everyone must sign in", || get(&server, "/").status == 401);
    let ask = Ask::new(server.address(), "GET", "/jobs?a=1").header("Accept", "text/html");
    let form = ask.send().expect(401);
    assert!(
        form.contains("name=\"token\"") && form.contains("value=\"/jobs?a=1\""),
        "{form}"
    );
    assert!(!form.contains("aria-label=\"Main\""), "{form}");

    with_token(&server, "/", &secret).expect(200);
    for wrong in [
        "",
        "windlass_",
        &secret[..72],
        &secret.replace("windlass_", ""),
    ] {
        let reply = with_token(&server, "/", wrong);
        assert_eq!(
            (reply.status, reply.header("www-authenticate")),
            (401, Some("Bearer")),
            "{wrong}"
        );
    }
    let cookie = sign_in(&server, &secret);
    let page = with_cookie(&server, "/", &cookie).expect(200);
    assert!(
        page.contains("<span>ada</span>") && page.contains("Sign out"),
        "{page}"
    );
    with_cookie(&server, "/", &format!("a=b; {cookie}")).expect(200);
    with_cookie(&server, "/", &cookie.replace('=', "=0")).expect(401);
    // Signing out ends this session, and no other.
    let other = sign_in(&server, &secret);
    let ask = Ask::new(server.address(), "POST", "/logout")
        .form("")
        .header("Cookie", &cookie);
    assert_eq!(ask.send().status, 303);
    with_cookie(&server, "/", &cookie).expect(401);
    with_cookie(&server, "/", &other).expect(200);
}

fn a_revoked_token_ends_its_sessions(db: &TestDb) {
    let server = serve(&db.database);
    let (ada, ben) = (
        token(db, "ada", "operator", &[]),
        token(db, "ben", "viewer", &[]),
    );
    let (of_ada, of_ben) = (sign_in(&server, &ada), sign_in(&server, &ben));
    let said = windlass(&db.url, &["web", "tokens", "revoke", "ada"]);
    assert!(said.out.contains("1 sessions ended"), "{said:?}");
    with_token(&server, "/", &ada).expect(401);
    with_cookie(&server, "/", &of_ada).expect(401);
    with_cookie(&server, "/", &of_ben).expect(200);
    assert_eq!(post(&server, "/login", &format!("token={ada}")).status, 401);
    assert_eq!(
        windlass(&db.url, &["web", "tokens", "revoke", "ada"]).code,
        Some(2)
    );
    // After the last one, those on this host must still sign in.
    assert_eq!(
        windlass(&db.url, &["web", "tokens", "revoke", "ben"]).code,
        Some(0)
    );
    get(&server, "/").expect(401);
    let said = windlass(&db.url, &["web", "tokens", "list", "--json"]);
    assert_eq!(said.out.matches("\"revoked\"").count(), 2, "{said:?}");
    let audited = "SELECT action || ' ' || target AS t FROM windlass_audit ORDER BY id";
    assert_eq!(
        db.texts(audited),
        [
            "tokens.add ada",
            "tokens.add ben",
            "tokens.revoke ada",
            "tokens.revoke ben"
        ]
    );
    assert!(!said.out.contains(&ada[9..]), "{said:?}");
}

fn tokens_and_sessions_expire(db: &TestDb) {
    let server = Server::new(&db.database)
        .listen("127.0.0.1:0")
        .session_times(
            std::time::Duration::from_secs(3600),
            std::time::Duration::from_secs(604_800),
        )
        .start()
        .unwrap();
    let secret = token(db, "ada", "operator", &["--expires", "1 day"]);
    let cookie = sign_in(&server, &secret);
    let past = "'2026-01-01 00:00:00.000000'";
    db.execute(&format!(
        "UPDATE windlass_web_sessions SET seen_at = {past}"
    ));
    with_cookie(&server, "/", &cookie).expect(401);
    let cookie = sign_in(&server, &secret);
    db.execute(&format!(
        "UPDATE windlass_web_sessions SET expires_at = {past}"
    ));
    with_cookie(&server, "/", &cookie).expect(401);
    let cookie = sign_in(&server, &secret);
    db.execute(&format!(
        "UPDATE windlass_web_tokens SET expires_at = {past}"
    ));
    with_cookie(&server, "/", &cookie).expect(401);
    with_token(&server, "/", &secret).expect(401);
}

fn a_use_is_noted_now_and_then(db: &TestDb) {
    let server = serve(&db.database);
    let secret = token(db, "ada", "viewer", &[]);
    let used =
        || db.count("SELECT count(*) AS n FROM windlass_web_tokens WHERE last_used_at IS NOT NULL");
    assert_eq!(used(), 0);
    with_token(&server, "/", &secret).expect(200);
    assert_eq!(used(), 1);
    let cookie = sign_in(&server, &secret);
    let old = "seen_at < '2026-11-01 00:00:00.000000'";
    db.execute("UPDATE windlass_web_sessions SET seen_at = created_at");
    let seen = || {
        db.count(&format!(
            "SELECT count(*) AS n FROM windlass_web_sessions WHERE {old}"
        ))
    };
    assert_eq!(seen(), 0);
    with_cookie(&server, "/", &cookie).expect(200);
    assert_eq!(db.rows_of("windlass_web_sessions"), 1);
}

fn roles_are_kept(db: &TestDb) {
    let server = serve(&db.database);
    let enqueuer = token(db, "app", "enqueuer", &[]);
    with_token(&server, "/", &enqueuer).expect(403);
    assert_eq!(
        post(&server, "/login", &format!("token={enqueuer}")).status,
        403
    );
    // An enqueuer must not find out which pages exist.
    with_token(&server, "/nowhere", &enqueuer).expect(401);
    let viewer = token(db, "ben", "viewer", &[]);
    with_token(&server, "/nowhere", &viewer).expect(404);
}

fn wrong_tokens_are_limited(db: &TestDb) {
    let server = serve(&db.database);
    let secret = token(db, "ada", "operator", &[]);
    // A token that was accepted lately is let in, whatever others of its address try.
    let known = token(db, "prometheus", "viewer", &[]);
    with_token(&server, "/", &known).expect(200);
    for _ in 0..10 {
        assert_eq!(post(&server, "/login", "token=windlass_0000").status, 401);
    }
    let reply = post(&server, "/login", &format!("token={secret}"));
    assert_eq!(
        (reply.status, reply.header("retry-after").is_some()),
        (429, true)
    );
    with_token(&server, "/", &secret).expect(429);
    with_token(&server, "/", &known).expect(200);
    // The form can still be read.
    get(&server, "/login").expect(200);
}

fn it_does_not_listen_for_others_without_a_way_to_sign_in(db: &TestDb) {
    let open = || Server::new(&db.database).listen("0.0.0.0:0");
    let refused = open().start().unwrap_err().to_string();
    assert!(refused.contains("windlass web tokens add"), "{refused}");
    let refused = open()
        .trusted_proxy("10.0.0.1")
        .start()
        .unwrap_err()
        .to_string();
    assert!(refused.contains("windlass web tokens add"), "{refused}");
    let refused = open()
        .user_header("X-User")
        .start()
        .unwrap_err()
        .to_string();
    assert!(refused.contains("trusted_proxies"), "{refused}");
    open()
        .user_header("X-User")
        .trusted_proxy("10.0.0.1")
        .start()
        .unwrap();
    let secret = token(db, "ada", "operator", &[]);
    let server = open().start().unwrap();
    let local = format!("127.0.0.1:{}", server.address().port())
        .parse()
        .unwrap();
    assert_eq!(Ask::new(local, "GET", "/").send().status, 401);
    let ask = Ask::new(local, "GET", "/").header("Authorization", &format!("Bearer {secret}"));
    assert_eq!(ask.send().status, 200);
    assert_eq!(
        windlass(&db.url, &["web", "tokens", "revoke", "ada"]).code,
        Some(0)
    );
    open().start().unwrap_err();
}

fn a_trusted_proxy_names_the_user(db: &TestDb) {
    let base = || {
        Server::new(&db.database)
            .listen("127.0.0.1:0")
            .user_header("X-User")
            .operator("ada")
    };
    let trusted = base().trusted_proxy("127.0.0.0/8").start().unwrap();
    let other = base().trusted_proxy("10.0.0.1").start().unwrap();
    let ask = |server: &RunningServer, user: &str| {
        Ask::new(server.address(), "GET", "/")
            .header("X-User", user)
            .send()
    };
    assert!(
        ask(&trusted, "ada")
            .expect(200)
            .contains("<span>ada</span>")
    );
    assert!(
        ask(&trusted, "b<n")
            .expect(200)
            .contains("<span>b&#60;n</span>")
    );
    ask(&trusted, "").expect(401);
    get(&trusted, "/").expect(401);
    ask(&other, "ada").expect(401);
    let twice = Ask::new(trusted.address(), "GET", "/").header("X-User", "ada\r\nX-User: ben");
    assert_eq!(twice.send().status, 400);
}

fn a_proxy_that_is_not_known_does_not_open_it(db: &TestDb) {
    let server = serve(&db.database);
    for (header, value) in [
        ("X-Forwarded-For", "1.2.3.4"),
        ("Forwarded", "for=1.2.3.4"),
        ("Via", "1.1 proxy"),
        ("X-Real-IP", "1.2.3.4"),
        ("Host", "10.0.0.7:4040"),
    ] {
        let ask = Ask::new(server.address(), "GET", "/").header(header, value);
        let refused = ask.send().expect(403);
        assert!(refused.contains("proxy"), "{refused}");
    }
    // Everyone must sign in to a server that expects a proxy.
    let base = || Server::new(&db.database).listen("127.0.0.1:0");
    let expecting = || {
        [
            base().host("jobs.example.com"),
            base().public_origin("https://jobs.example.com"),
            base().base_path("/windlass"),
            base().trusted_proxy("10.0.0.1"),
        ]
    };
    for server in expecting() {
        let refused = server.start().unwrap_err().to_string();
        assert!(refused.contains("windlass web tokens add"), "{refused}");
    }
    token(db, "ada", "viewer", &[]);
    for server in expecting() {
        assert_eq!(get(&server.start().unwrap(), "/").status, 401);
    }
}

fn cookies_are_secure_behind_tls(db: &TestDb) {
    let secret = token(db, "ada", "operator", &[]);
    let server = Server::new(&db.database)
        .listen("127.0.0.1:0")
        .public_origin("https://jobs.example.com")
        .base_path("/windlass/")
        .start()
        .unwrap();
    let ask = Ask::new(server.address(), "POST", "/windlass/login")
        .header("Host", "jobs.example.com")
        .form(&format!("token={secret}&back=%2Fjobs"))
        .header("Origin", "https://jobs.example.com");
    let reply = ask.send();
    assert_eq!(
        (reply.status, reply.header("location")),
        (303, Some("/windlass/jobs"))
    );
    let cookie = reply.cookies()[0];
    assert!(
        cookie.contains("; Path=/windlass;") && cookie.ends_with("; Secure"),
        "{cookie}"
    );
}

fn a_link_from_elsewhere_is_followed_once_more(db: &TestDb) {
    token(db, "ada", "operator", &[]);
    let server = serve(&db.database);
    let ask = Ask::new(server.address(), "GET", "/jobs?a=1")
        .header("Accept", "text/html")
        .header("Sec-Fetch-Site", "cross-site");
    let page = ask.clone().send().expect(401);
    assert!(
        page.contains("http-equiv=\"refresh\"") && page.contains("href=\"/jobs?a=1\""),
        "{page}"
    );
    let page = ask
        .header("Sec-Fetch-Site", "same-origin")
        .send()
        .expect(401);
    assert!(page.contains("name=\"token\""), "{page}");
}

crate::on_each_database!(
    without_tokens_those_on_this_host_are_operators,
    with_a_token_everyone_must_sign_in,
    a_revoked_token_ends_its_sessions,
    tokens_and_sessions_expire,
    a_use_is_noted_now_and_then,
    roles_are_kept,
    wrong_tokens_are_limited,
    it_does_not_listen_for_others_without_a_way_to_sign_in,
    a_trusted_proxy_names_the_user,
    a_proxy_that_is_not_known_does_not_open_it,
    cookies_are_secure_behind_tls,
    a_link_from_elsewhere_is_followed_once_more,
);
