//! Chromium's own protocol, through the pipes that it offers: messages of JSON, each with a zero byte behind it. The
//! methods are those of <https://chromedevtools.github.io/devtools-protocol/>. A crate for it generates types for all of
//! them, which took an eighth of the time that the tests take to compile.

use crossbeam_channel::{Sender, bounded};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// A function that is called with the name and the parameters of each event of a tab.
type Listener = Box<dyn Fn(&str, &Value) + Send>;
type Answer = Result<Value, String>;

/// A browser that runs. Ends when dropped.
pub struct Browser {
    child: Child,
    pipe: Arc<Pipe>,
    _profile: TempDir,
}

struct Pipe {
    to: Mutex<ChildStdin>,
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, Sender<Answer>>>,
    listeners: Mutex<HashMap<String, Listener>>,
}

/// A page of it.
pub struct Tab {
    pipe: Arc<Pipe>,
    session: String,
}

impl Browser {
    pub fn start(program: &Path, arguments: &[&str]) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // It reads at 3 and writes at 4. Some Chromiums are scripts, which keep both open.
        let mut child = Command::new("sh")
            .args([
                "-c",
                r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#,
                "sh",
            ])
            .arg(program)
            .args(["--headless", "--remote-debugging-pipe", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-sync"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(arguments)
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Chromium does not start");
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let pipe = Arc::new(Pipe {
            to: Mutex::new(to),
            last: AtomicU64::new(0),
            waiting: Mutex::default(),
            listeners: Mutex::default(),
        });
        let reader = Arc::clone(&pipe);
        std::thread::spawn(move || reader.read(from));
        Browser {
            child,
            pipe,
            _profile: profile,
        }
    }

    /// An empty page that shares nothing with others.
    pub fn tab(&self) -> Tab {
        let call = |method, params| self.pipe.call(None, method, params).unwrap();
        let context = call("Target.createBrowserContext", json!({}));
        let context = &context["browserContextId"];
        let page = json!({ "url": "about:blank", "browserContextId": context });
        let target = call("Target.createTarget", page);
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = call("Target.attachToTarget", attach);
        Tab {
            pipe: Arc::clone(&self.pipe),
            session: session["sessionId"].as_str().unwrap().to_owned(),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // So that its own children end, too.
        let _ = self.pipe.call(None, "Browser.close", json!({}));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tab {
    /// Calls a method; an error when there is no page to ask, or the method was refused.
    pub fn call(&self, method: &str, params: Value) -> Answer {
        self.pipe.call(Some(&self.session), method, params)
    }

    pub fn listen(&self, listener: impl Fn(&str, &Value) + Send + 'static) {
        let mut listeners = self.pipe.listeners.lock().unwrap();
        listeners.insert(self.session.clone(), Box::new(listener));
    }
}

impl Pipe {
    fn call(&self, session: Option<&str>, method: &str, params: Value) -> Answer {
        let id = self.last.fetch_add(1, Ordering::SeqCst);
        let (sender, answer) = bounded(1);
        self.waiting.lock().unwrap().insert(id, sender);
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let sent = self
            .to
            .lock()
            .unwrap()
            .write_all(format!("{message}\0").as_bytes());
        sent.map_err(|error| format!("{method}: {error}"))?;
        let answer = answer.recv_timeout(PATIENCE);
        answer.map_err(|error| format!("{method}: no answer: {error}"))?
    }

    /// Hands on what the browser says, until it ends.
    fn read(&self, from: ChildStdout) {
        let mut from = BufReader::new(from);
        let mut message = Vec::new();
        while from
            .read_until(0, &mut message)
            .is_ok_and(|length| length > 0)
        {
            let told = message.strip_suffix(b"\0").unwrap_or(&message);
            let told: Value = serde_json::from_slice(told).unwrap();
            message.clear();
            self.hand_on(told);
        }
        // Every call that still waits gets an error.
        self.waiting.lock().unwrap().clear();
    }

    fn hand_on(&self, mut told: Value) {
        if let Some(id) = told["id"].as_u64() {
            let answer = match told.get("error") {
                Some(error) => Err(error.to_string()),
                None => Ok(told["result"].take()),
            };
            if let Some(waits) = self.waiting.lock().unwrap().remove(&id) {
                let _ = waits.send(answer);
            }
        } else if let (Some(session), Some(method)) =
            (told["sessionId"].as_str(), told["method"].as_str())
            && let Some(listener) = self.listeners.lock().unwrap().get(session)
        {
            listener(method, &told["params"]);
        }
    }
}
