//! A browser without a window, over the two pipes of Chromium's DevTools protocol: messages are
//! JSON that ends with a NUL, requests on descriptor 3, answers and events on 4.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for one answer or one condition: a hang is a failure, not a wait.
const LIMIT: Duration = Duration::from_secs(60);

/// Names of Debian's programs: with windows, and without.
const NAMES: [&str; 2] = ["chromium", "chromium-headless-shell"];

/// One browser at a time: each has several processes, and a test's time must not depend on other
/// tests.
static TURN: Mutex<()> = Mutex::new(());

/// A browser that shows one page.
pub(crate) struct Browser {
    process: Child,
    requests: RefCell<ChildStdin>,
    messages: Receiver<Value>,
    number: RefCell<u64>,
    session: RefCell<Option<String>>,
    /// Complaints of the page's script or the browser.
    complaints: RefCell<Vec<String>>,
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// Width of the screen, and whether the page is dark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    pub(crate) width: u32,
    pub(crate) dark: bool,
}

pub(crate) const DESK: Screen = Screen { width: 1280, dark: false };
pub(crate) const PHONE: Screen = Screen { width: 400, dark: false };

impl Browser {
    /// Starts a browser; `None`, with the reason on standard error, if there is none.
    pub(crate) fn start() -> Option<Self> {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let is_here =
            |name: &&str| std::env::split_paths(&folders).any(|at| at.join(name).is_file());
        let Some(program) = NAMES.into_iter().find(is_here) else {
            eprintln!(
                "SKIPPED: pages in a browser: no chromium on PATH: apt-get install \
                 chromium-headless-shell"
            );
            return None;
        };
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let mut process = start(program, folder.path());
        let requests = RefCell::new(process.stdin.take().expect("piped"));
        let mut answers = BufReader::new(process.stdout.take().expect("piped"));
        let (sender, messages) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            // This thread ends with the browser, whose end of the pipe closes.
            while answers.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let parsed = serde_json::from_slice(&message).expect("answers are JSON");
                message.clear();
                if sender.send(parsed).is_err() {
                    return;
                }
            }
        });
        let browser = Self {
            process,
            requests,
            messages,
            number: RefCell::default(),
            session: RefCell::default(),
            complaints: RefCell::default(),
            folder,
            _turn: turn,
        };
        let page = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", target);
        *browser.session.borrow_mut() = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Shows a page on a screen, from its start, without the storage of an earlier page.
    pub(crate) fn open(&self, page: &str, screen: Screen) {
        let path = self.folder.path().join("page.html");
        fs::write(&path, page).unwrap();
        let size = json!({
            "width": screen.width, "height": 900, "deviceScaleFactor": 1, "mobile": false,
        });
        self.ask("Emulation.setDeviceMetricsOverride", size);
        let scheme = if screen.dark { "dark" } else { "light" };
        let feature = |name: &str, value: &str| json!({ "name": name, "value": value });
        let features =
            [feature("prefers-color-scheme", scheme), feature("prefers-reduced-motion", "reduce")];
        self.ask("Emulation.setEmulatedMedia", json!({ "features": features }));
        // The blank page comes first, so that the same address is loaded again.
        for address in ["about:blank".to_owned(), format!("file://{}", path.display())] {
            self.ask("Page.navigate", json!({ "url": address }));
            let here = format!(
                "document.readyState === 'complete' && location.href === {}",
                json!(address)
            );
            self.wait(&here);
        }
        self.run("try { localStorage.clear() } catch {}");
        self.settle();
    }

    /// Waits until all changes are drawn.
    pub(crate) fn settle(&self) {
        let drawn =
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))";
        self.run(&format!("{drawn}.then(() => true)"));
    }

    /// The value of an expression on the page; waits for a promise.
    #[track_caller]
    pub(crate) fn run(&self, expression: &str) -> Value {
        let what = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.ask("Runtime.evaluate", what);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    #[track_caller]
    pub(crate) fn text(&self, expression: &str) -> String {
        let value = self.run(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}")).to_owned()
    }

    #[track_caller]
    pub(crate) fn number(&self, expression: &str) -> f64 {
        let value = self.run(expression);
        value.as_f64().unwrap_or_else(|| panic!("{expression} is {value}"))
    }

    /// Fails unless the expression is true.
    #[track_caller]
    pub(crate) fn holds(&self, expression: &str) {
        assert_eq!(self.run(expression), true, "{expression}");
    }

    /// Waits until the expression is true.
    #[track_caller]
    pub(crate) fn wait(&self, expression: &str) {
        let begin = Instant::now();
        while self.run(expression) != true {
            assert!(begin.elapsed() < LIMIT, "never true: {expression}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Moves the pointer to a location in the window.
    pub(crate) fn point(&self, x: f64, y: f64) {
        self.mouse("mouseMoved", "none", x, y);
    }

    /// Presses the button at one location and releases it at another.
    pub(crate) fn drag(&self, from: (f64, f64), to: (f64, f64)) {
        self.point(from.0, from.1);
        self.mouse("mousePressed", "left", from.0, from.1);
        let middle = (f64::midpoint(from.0, to.0), f64::midpoint(from.1, to.1));
        for (x, y) in [middle, to] {
            self.mouse("mouseMoved", "left", x, y);
        }
        self.mouse("mouseReleased", "left", to.0, to.1);
        self.settle();
    }

    /// Clicks in the middle of the selected element, after scrolling it into view.
    #[track_caller]
    pub(crate) fn click(&self, selector: &str) {
        let (x, y) = self.middle(selector);
        for kind in ["mousePressed", "mouseReleased"] {
            self.mouse(kind, "left", x, y);
        }
        self.settle();
    }

    /// The middle of the selected element, in view.
    #[track_caller]
    pub(crate) fn middle(&self, selector: &str) -> (f64, f64) {
        let found = format!("document.querySelector({})", json!(selector));
        self.holds(&format!("{found} !== null"));
        self.run(&format!("{found}.scrollIntoView({{ block: 'center' }})"));
        self.settle();
        let side = |name: &str, size: &str| {
            self.number(&format!(
                "{found}.getBoundingClientRect().{name} + {found}.getBoundingClientRect().{size} / 2"
            ))
        };
        (side("left", "width"), side("top", "height"))
    }

    fn mouse(&self, kind: &str, button: &str, x: f64, y: f64) {
        let held = u8::from(button == "left" && kind != "mouseReleased");
        let count = u8::from(kind != "mouseMoved");
        let event = json!({
            "type": kind, "x": x, "y": y, "button": button, "buttons": held, "clickCount": count,
        });
        self.ask("Input.dispatchMouseEvent", event);
    }

    /// Presses a key of this name: `ArrowRight`, `Escape`, `Tab`.
    pub(crate) fn key(&self, name: &str) {
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": name, "code": name });
            self.ask("Input.dispatchKeyEvent", event);
        }
        self.settle();
    }

    /// Complaints of the page's script and the browser since the last call.
    pub(crate) fn complaints(&self) -> Vec<String> {
        // Events arrive in order: earlier ones precede this answer.
        self.run("true");
        self.complaints.take()
    }

    /// The answer to one request.
    #[track_caller]
    fn ask(&self, method: &str, parameters: Value) -> Value {
        let number = *self.number.borrow() + 1;
        *self.number.borrow_mut() = number;
        let mut request = json!({ "id": number, "method": method, "params": parameters });
        if let Some(session) = &*self.session.borrow() {
            request["sessionId"] = json!(session);
        }
        let request = format!("{request}\0");
        self.requests.borrow_mut().write_all(request.as_bytes()).expect("the browser lives");
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = match self.messages.recv_timeout(left) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("no answer to {method} in {LIMIT:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the browser ended: {method}"),
            };
            if message["id"] == number {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&self, event: &Value) {
        let is_complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            _ => false,
        };
        if is_complaint {
            self.complaints.borrow_mut().push(event["params"].to_string());
        }
    }
}

/// The shell gives the browser its pipes as the descriptors that it expects.
fn start(program: &str, folder: &Path) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh", program]);
    // Only this project's pages are shown, so the browser needs no sandbox, which a container
    // without user namespaces cannot give.
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.args(["--no-first-run", "--hide-scrollbars", "--disable-background-networking"]);
    command.args(["--disable-component-update", "--disable-extensions", "--disable-sync"]);
    command.arg("--remote-debugging-pipe");
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    command.env("HOME", folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().expect("sh starts")
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends by itself when its pipe closes; its unwritten data is not needed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
