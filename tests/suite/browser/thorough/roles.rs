//! Signing in and out, and what a viewer cannot do.

use crate::browser::chrome::Chrome;
use crate::browser::site::Site;
use crate::browser::world::World;
use crate::support::TestDb;
use crate::web::access::token;
use crate::web::client::Ask;

crate::on_each_database!(tokens_are_asked_for, a_viewer_changes_nothing);

fn tokens_are_asked_for(db: &TestDb) {
    let secret = token(db, "ada", "operator", &[]);
    let world = World::new(db);
    let chrome = Chrome::start();
    for scripts in [true, false] {
        let page = chrome.page(&world.origin());
        page.scripts(scripts);
        // The form is at the address that was asked for.
        page.goto("/jobs?state=failed");
        assert!(page.has("#token", ""), "{}", page.text("body"));
        assert!(!page.shows("SendWelcome"));
        page.problems();
        page.fill("#token", "not a token");
        page.follow("button.go", "Sign in");
        assert!(!page.text("#wrong").is_empty(), "{}", page.text("main"));
        page.problems();
        page.fill("#token", &secret);
        page.follow("button.go", "Sign in");
        assert_eq!(page.address(), "/jobs?state=failed");
        assert!(
            page.shows("ada") && page.shows("SendWelcome"),
            "{}",
            page.text("body")
        );
        assert!(page.is("document.cookie === ''"), "scripts see the session");
        page.follow("button", "Sign out");
        page.goto("/");
        assert!(page.has("#token", ""), "{}", page.text("body"));
    }
}

fn a_viewer_changes_nothing(db: &TestDb) {
    let secret = token(db, "eve", "viewer", &[]);
    let world = World::new(db);
    let chrome = Chrome::start();
    let page = chrome.page(&world.origin());
    page.goto("/login");
    page.problems();
    page.fill("#token", &secret);
    page.follow("button.go", "Sign in");
    let site = Site::asked(&world, |address| {
        let ask = Ask::new(world.server.address(), "GET", address);
        ask.header("Authorization", &format!("Bearer {secret}"))
            .send()
    });
    let failed = world.job("ChargeCard", "failed");
    for (_, address) in site.addresses() {
        page.goto(address);
        // Only what changes nothing for others: the theme, signing in and out.
        let enabled = page.eval(
            "[...document.querySelectorAll('form[method=post] button:not([disabled])')]\
             .filter(b => !/\\/(theme|login|logout)$/.test(b.form.action)).map(b => b.outerHTML)",
        );
        assert_eq!(enabled, serde_json::json!([]), "{address}");
        assert_eq!(page.problems(), [""; 0], "{address}");
    }
    // A form that no page has shown is refused, too.
    for path in [
        format!("/jobs/{failed}/retry"),
        format!("/jobs/{failed}/discard"),
        "/preview".to_owned(),
    ] {
        let status = page.eval(&format!(
            "fetch('{path}', {{method: 'POST', headers: {{'Content-Type': 'application/x-www-form-urlencoded'}}, body: 'do=discard&class=ChargeCard&state=failed&which=matching'}}).then(r => r.status)"
        ));
        assert_eq!(status, 403, "{path}");
    }
    assert_eq!(world.job("ChargeCard", "failed"), failed);
    assert_eq!(
        db.count("SELECT count(*) AS n FROM windlass_audit WHERE actor = 'eve'"),
        0
    );
}
