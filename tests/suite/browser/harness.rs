//! The tests would see what is wrong with a page: here is one with everything.

use super::chrome::Chrome;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

const BAD: &str = "<!doctype html><html><head><title>bad</title>\
    <style>body { color: #ccc; background: #ddd }</style></head><body>\
    <div style='width: 3000px; height: 10px'>wide</div><img src='http://127.0.0.1:9/other.png'>\
    <input id='f'><button>press</button><script src='/missing.js'></script></body></html>";

/// Answers every request with the same page.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let count = client.read(&mut request).unwrap_or(0);
            let is_page = request[..count].starts_with(b"GET / ");
            let is_icon = request[..count].starts_with(b"GET /favicon.ico ");
            let (status, body) = match (is_page, is_icon) {
                (true, _) => ("200 OK", BAD),
                (_, true) => ("204 No Content", ""),
                _ => ("404 Not Found", ""),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\
                 Content-Security-Policy: default-src 'self'\r\n\r\n",
                body.len()
            );
            let _ = client.write_all(head.as_bytes());
            let _ = client.write_all(body.as_bytes());
        }
    });
    origin
}

#[test]
fn what_is_wrong_with_a_page_is_seen() {
    let chrome = Chrome::start();
    let page = chrome.page(&serve());
    page.goto("/");
    let problems = page.problems().join("\n");
    for part in [
        "Applying inline style violates",
        "violates the following Content Security Policy directive",
        "asks another: http://127.0.0.1:9/other.png",
        "404",
    ] {
        assert!(problems.contains(part), "no {part:?} in {problems}");
    }
    let overflow = page.overflow();
    page.eval("document.querySelector('div').attributeStyleMap.set('width', '3000px'); null");
    assert!(overflow.is_empty(), "the policy holds: {overflow:?}");
    assert!(
        page.overflow().join(" ").contains("3000"),
        "{:?}",
        page.overflow()
    );
    let violations = page.violations().join("\n");
    for part in ["html-has-lang", "image-alt", "label: #f"] {
        assert!(violations.contains(part), "no {part:?} in {violations}");
    }
    assert_eq!(page.problems(), [""; 0], "axe-core itself asks nothing");
    page.eval("console.error('oh'); setTimeout(() => { throw new Error('late') }); null");
    page.wait("true");
    crate::support::wait::until("both are heard", || {
        let problems = page.problems().join("\n");
        problems.contains("late")
    });
}
