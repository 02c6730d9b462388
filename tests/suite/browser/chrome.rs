//! A real browser, and what a page in it complains about.

use crate::browser::protocol::{Browser, Tab};
use crate::support::wait::{eventually, until};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The most browsers that run at once: each takes a core while it loads a page.
const AT_ONCE: usize = 2;

static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// One of the places for browsers that run at once.
struct Turn;

impl Turn {
    fn take() -> Self {
        let (running, freed) = &RUNNING;
        let mut running = freed
            .wait_while(running.lock().unwrap(), |running| *running >= AT_ONCE)
            .unwrap();
        *running += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (running, freed) = &RUNNING;
        *running.lock().unwrap() -= 1;
        freed.notify_one();
    }
}

/// A browser with an empty profile. Ends when dropped.
pub struct Chrome {
    browser: Browser,
    _turn: Turn,
}

/// The program, which a test of the browser cannot do without.
fn program() -> PathBuf {
    let named = std::env::var_os("WINDLASS_TEST_CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = [
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    ];
    let found = std::env::split_paths(&path)
        .flat_map(|directory| names.map(|name| directory.join(name)))
        .find(|program| program.is_file());
    named.or(found).unwrap_or_else(|| {
        panic!(
            "no Chromium: install Debian's package `chromium`, or name the program in \
             WINDLASS_TEST_CHROMIUM; bin/test does the former"
        )
    })
}

impl Chrome {
    pub fn start() -> Self {
        let turn = Turn::take();
        let mut arguments = vec![
            "--disable-quic",
            "--disable-component-update",
            "--disable-gpu",
            "--hide-scrollbars",
            "--mute-audio",
        ];
        // Root may not have one; the pages are our own.
        if rustix::process::geteuid().is_root() {
            arguments.push("--no-sandbox");
        }
        Chrome {
            browser: Browser::start(&program(), &arguments),
            _turn: turn,
        }
    }

    /// An empty page that shares no cookies with others, for a server at `http://host:port`.
    pub fn page(&self, origin: &str) -> Page {
        let tab = self.browser.tab();
        let problems = Arc::default();
        listen(&tab, origin, &problems);
        let page = Page {
            tab,
            origin: origin.to_owned(),
            problems,
            has_scripts: AtomicBool::new(true),
        };
        page.look(1280, false);
        page
    }
}

/// A tab.
pub struct Page {
    tab: Tab,
    origin: String,
    problems: Arc<Mutex<Vec<String>>>,
    has_scripts: AtomicBool,
}

/// Notes what no page may do: complain on the console, break the policy, and ask others.
fn listen(tab: &Tab, origin: &str, problems: &Arc<Mutex<Vec<String>>>) {
    let (origin, noted) = (origin.to_owned(), Arc::clone(problems));
    tab.listen(move |event, params| {
        noted
            .lock()
            .unwrap()
            .extend(problem(event, params, &origin))
    });
    for method in [
        "Log.enable",
        "Runtime.enable",
        "Network.enable",
        "Page.enable",
    ] {
        call(tab, method, json!({}));
    }
}

fn problem(event: &str, params: &Value, origin: &str) -> Option<String> {
    match event {
        "Log.entryAdded" => {
            let entry = &params["entry"];
            let is_bad = ["error", "warning"]
                .map(Value::from)
                .contains(&entry["level"]);
            is_bad.then(|| format!("log: {} ({})", entry["text"], entry["url"]))
        }
        "Runtime.exceptionThrown" => Some(format!("exception: {}", params["exceptionDetails"])),
        "Runtime.consoleAPICalled" => Some(format!("console: {}", params["args"])),
        "Network.requestWillBeSent" => {
            let url = params["request"]["url"].as_str().unwrap_or_default();
            let is_own = url
                .strip_prefix(origin)
                .is_some_and(|rest| rest.starts_with('/'));
            // The browser draws its own fields with images in `data:`; pages may have none.
            let is_internal = url.starts_with("about:") || url.starts_with("data:");
            (!is_own && !is_internal).then(|| format!("asks another: {url}"))
        }
        _ => None,
    }
}

/// Calls a method of the protocol.
fn call(tab: &Tab, method: &str, params: Value) -> Value {
    tab.call(method, params)
        .unwrap_or_else(|error| panic!("{method}: {error}"))
}

/// The element meant by a selector and a part of its text: the first that is seen.
fn finder(selector: &str, text: &str) -> String {
    format!(
        "[...document.querySelectorAll({})].filter(e => e.checkVisibility() && \
         (e.innerText || e.value || '').includes({}))[0]",
        json!(selector),
        json!(text)
    )
}

impl Page {
    /// Follows an address of the server, such as `/jobs?state=failed`, and waits until it is there.
    pub fn goto(&self, address: &str) {
        let url = format!("{}{address}", self.origin);
        let answer = call(&self.tab, "Page.navigate", json!({ "url": url }));
        assert_eq!(answer["errorText"], Value::Null, "{url}");
        self.is_loaded();
    }

    fn is_loaded(&self) {
        until("the page is loaded", || {
            self.eval("document.readyState") == json!("complete")
        });
    }

    /// The path and query of the page.
    pub fn address(&self) -> String {
        let address = self.eval("location.pathname + location.search");
        address.as_str().unwrap().to_owned()
    }

    /// The value of an expression, which may be a promise.
    pub fn eval(&self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        // Between two pages there is nothing to ask.
        let Ok(answer) = self.tab.call("Runtime.evaluate", params) else {
            return Value::Null;
        };
        let exception = &answer["exceptionDetails"];
        assert!(exception.is_null(), "{expression}: {exception}");
        answer["result"]["value"].clone()
    }

    pub fn is(&self, expression: &str) -> bool {
        self.eval(expression) == json!(true)
    }

    pub fn wait(&self, expression: &str) {
        eventually(expression, || self.is(expression).then_some(()));
    }

    /// The text of the first element, as it is seen.
    pub fn text(&self, selector: &str) -> String {
        let text = self.eval(&format!(
            "document.querySelector({})?.innerText ?? ''",
            json!(selector)
        ));
        text.as_str().unwrap_or_default().to_owned()
    }

    pub fn shows(&self, text: &str) -> bool {
        self.text("body").contains(text)
    }

    pub fn wait_for(&self, text: &str) {
        let start = std::time::Instant::now();
        while !self.shows(text) {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "no {text:?} at {}:\n{}",
                self.address(),
                self.text("body")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn has(&self, selector: &str, text: &str) -> bool {
        self.is(&format!("{} !== undefined", finder(selector, text)))
    }

    /// Clicks with the mouse at the middle of an element.
    pub fn click(&self, selector: &str, text: &str) {
        let element = finder(selector, text);
        let place = self.eval(&format!(
            "(() => {{ const e = {element}; if (!e) return null; e.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const r = e.getClientRects()[0]; const x = r.x + r.width / 2, y = r.y + r.height / 2; \
             const hit = document.elementFromPoint(x, y); \
             return {{x, y, hit: e.contains(hit) || hit?.contains(e) || hit?.outerHTML.slice(0, 200)}} }})()"
        ));
        let what = format!("{selector} with {text:?} at {}", self.address());
        assert!(place.is_object(), "no {what}:\n{}", self.text("body"));
        assert_eq!(place["hit"], json!(true), "covered: {what}");
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let params = json!({ "type": kind, "x": place["x"], "y": place["y"], "button": "left", "clickCount": 1 });
            call(&self.tab, "Input.dispatchMouseEvent", params);
        }
    }

    /// Clicks what leads to another page, or to this one once more, and waits for it.
    pub fn follow(&self, selector: &str, text: &str) {
        self.eval("window.left = true");
        self.click(selector, text);
        until("another page", || {
            self.eval("window.left === undefined") == json!(true)
        });
        self.is_loaded();
    }

    /// Types text into a field, in place of what is there.
    pub fn fill(&self, selector: &str, text: &str) {
        let field = json!(selector);
        let found = self.eval(&format!(
            "(() => {{ const e = document.querySelector({field}); e?.focus(); e?.select?.(); return !!e }})()"
        ));
        assert_eq!(found, json!(true), "no {selector} at {}", self.address());
        call(&self.tab, "Input.insertText", json!({ "text": text }));
    }

    /// Presses a key where the focus is.
    pub fn press(&self, key: &str) {
        let (text, code) = match key {
            "Enter" => ("\r", 13),
            "Tab" => ("", 9),
            _ => (key, 0),
        };
        for kind in ["keyDown", "keyUp"] {
            let params = json!({ "type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code });
            call(&self.tab, "Input.dispatchKeyEvent", params);
        }
    }

    /// Runs a script in each page that is loaded from now on, before its own.
    pub fn runs_first(&self, source: &str) {
        call(
            &self.tab,
            "Page.addScriptToEvaluateOnNewDocument",
            json!({ "source": source }),
        );
    }

    /// Sets whether scripts of pages run, from the next page on.
    pub fn scripts(&self, run: bool) {
        call(
            &self.tab,
            "Emulation.setScriptExecutionDisabled",
            json!({ "value": !run }),
        );
        self.has_scripts.store(run, Ordering::SeqCst);
    }

    pub fn has_scripts(&self) -> bool {
        self.has_scripts.load(Ordering::SeqCst)
    }

    /// Sets the width of the window, and the colours that the system prefers.
    pub fn look(&self, width: u32, dark: bool) {
        let height = if width < 600 { 812 } else { 800 };
        self.size(width, height);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        call(
            &self.tab,
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    pub fn size(&self, width: u32, height: u32) {
        let params =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1.0, "mobile": false });
        call(&self.tab, "Emulation.setDeviceMetricsOverride", params);
    }

    /// Returns a screenshot as PNG.
    pub fn picture(&self) -> Vec<u8> {
        let params = json!({ "format": "png", "fromSurface": true });
        let picture = call(&self.tab, "Page.captureScreenshot", params);
        let text = picture["data"].as_str().expect("no picture");
        STANDARD.decode(text).expect("no picture")
    }

    /// Returns what was wrong since the last call.
    pub fn problems(&self) -> Vec<String> {
        std::mem::take(&mut *self.problems.lock().unwrap())
    }
}
