//! Every process of the units, of the image, of Compose and of Kubernetes: the real program with their arguments,
//! variables and probes.

use super::{STOP, container, documents, read, text, texts};
use crate::support::TestDb;
use crate::support::program::{Windlass, windlass};
use crate::support::server::free_port;
use crate::support::wait::until;
use rustix::process::Signal;
use serde_json::Value;

/// A process that a file describes.
#[derive(Debug, Clone)]
struct Service {
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    /// The addresses at which its probes ask.
    probes: Vec<String>,
}

/// Returns the rest of the only line that starts so.
#[track_caller]
fn line<'f>(file: &'f str, start: &str) -> &'f str {
    let found: Vec<&str> = file
        .lines()
        .filter_map(|line| line.strip_prefix(start))
        .collect();
    assert_eq!(found.len(), 1, "{start} in {file}");
    found[0]
}

fn assignments(lines: &str, start: &str) -> Vec<(String, String)> {
    let lines = lines.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.strip_prefix(start)?.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn unit(name: &str, port: u16) -> Service {
    let mut variables = assignments(&read("systemd/windlass.env"), "");
    variables.retain(|(name, _)| name != "WINDLASS_WORKERS_PROGRAM"); // the user's
    let unit = read(&format!("systemd/windlass-{name}.service"));
    let command = line(&unit, "ExecStart=/usr/local/bin/windlass ");
    Service {
        arguments: command.split(' ').map(str::to_owned).collect(),
        variables,
        probes: vec![format!("http://127.0.0.1:{port}/readyz")],
    }
}

/// Returns the address of a probe that is a command line.
fn health(command: &Value) -> Vec<String> {
    let words = texts(command);
    let words = words.strip_prefix(&["CMD".to_owned()]).unwrap_or(&words);
    assert_eq!(words[..3], ["windlass", "health", "--url"]);
    words[3..].to_vec()
}

fn image() -> Service {
    let file = read("Dockerfile");
    let array = |start| serde_json::from_str::<Value>(line(&file, start)).unwrap();
    assert_eq!(texts(&array("ENTRYPOINT ")), ["windlass"]);
    assert_eq!(line(&file, "STOPSIGNAL "), "SIGTERM");
    Service {
        arguments: texts(&array("CMD ")),
        variables: assignments(&file, "ENV "),
        probes: health(&array("    CMD ")),
    }
}

fn composed(service: &Value) -> Option<Service> {
    service.get("command")?;
    let mut own = image();
    own.arguments = texts(&service["command"]);
    let variables = service["environment"].as_object()?;
    let variables = variables
        .iter()
        .map(|(name, value)| (name.clone(), text(value).to_owned()));
    own.variables.extend(variables);
    if let Some(test) = service.pointer("/healthcheck/test") {
        own.probes = health(test);
    }
    Some(own)
}

fn pod(manifest: &Value) -> Option<Service> {
    let container = container(manifest);
    let mut own = image();
    own.arguments = texts(container.get("args")?);
    let variables = container["env"].as_array().into_iter().flatten();
    let variables = variables.map(|one| {
        (
            text(&one["name"]).to_owned(),
            text(&one["value"]).to_owned(),
        )
    });
    own.variables.extend(variables);
    let probes = ["startupProbe", "readinessProbe", "livenessProbe"];
    let gets = probes
        .iter()
        .filter_map(|probe| container.get(probe)?.get("httpGet"));
    let port = &container["ports"][0];
    let probes = gets.map(|get| {
        assert_eq!(get["port"], port["name"], "{container:#}");
        format!(
            "http://127.0.0.1:{}{}",
            port["containerPort"],
            text(&get["path"])
        )
    });
    own.probes = probes.collect();
    Some(own)
}

fn all() -> Vec<Service> {
    let mut all = vec![unit("supervisor", 4041), unit("web", 4040), image()];
    let compose = documents("compose.yml").remove(0);
    all.extend(
        compose["services"]
            .as_object()
            .unwrap()
            .values()
            .filter_map(composed),
    );
    for name in ["migrate", "supervisor", "web"] {
        all.extend(
            documents(&format!("kubernetes/{name}.yaml"))
                .iter()
                .filter_map(pod),
        );
    }
    assert_eq!(all.len(), 9, "{all:?}");
    all
}

/// Runs one at other ports until each probe was answered, or until it ends by itself.
fn runs(db: &TestDb, service: &Service) {
    let (web, probes) = (format!(":{}", free_port()), format!(":{}", free_port()));
    let moved = |text: &String| text.replace(":4040", &web).replace(":4041", &probes);
    let arguments: Vec<String> = service.arguments.iter().map(moved).collect();
    let mut program = Windlass::new(&arguments);
    for (name, value) in &service.variables {
        program = program.env(name, &moved(value));
    }
    let program = program.env("DATABASE_URL", &db.url).start();
    if arguments != ["migrate"] {
        assert!(!service.probes.is_empty(), "{service:?}");
        for url in service.probes.iter().map(moved) {
            until(&format!("{url} of {service:?} is answered"), || {
                windlass(&db.url, &["health", "--url", &url]).code == Some(0)
            });
        }
        program.signal(Signal::TERM);
    }
    let said = program.said();
    assert_eq!(said.code, Some(0), "{service:?}: {said:?}");
    assert!(
        !said.err.contains("this variable"),
        "is not known: {said:?}"
    );
}

/// The files name Postgres, but the same commands run on any database.
#[test]
fn each_process_runs_and_its_probes_are_answered() {
    let db = TestDb::sqlite();
    // Without one, the pages are not served to other hosts.
    let said = windlass(
        &db.url,
        &["web", "tokens", "add", "ada", "--role", "operator"],
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    for service in all() {
        runs(&db, &service);
    }
}

#[test]
fn each_supervisor_has_the_time_that_a_stop_needs() {
    let unit = read("systemd/windlass-supervisor.service");
    let compose = documents("compose.yml").remove(0);
    let grace = text(&compose["services"]["supervisor"]["stop_grace_period"]);
    for seconds in [line(&unit, "TimeoutStopSec="), grace.trim_end_matches('s')] {
        assert!(seconds.parse::<u64>().unwrap() > STOP, "{seconds}");
    }
    let starts = &compose["services"]["supervisor"]["depends_on"]["migrate"]["condition"];
    assert_eq!(text(starts), "service_completed_successfully");
}
