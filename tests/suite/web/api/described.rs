//! The description of `/v1/` is what the server does.

use super::super::access::token;
use super::super::client::{Reply, get, serve};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::wait::DEADLINE;
use serde_json::{Map, Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use windlass_console::web::Server;

static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!(
        "../../../../crates/windlass-console/src/web/api/openapi.json"
    ))
    .unwrap()
});

/// The path of the description that a request's path fits.
fn described_path(path: &str) -> &str {
    let path = path.split('?').next().unwrap();
    match path {
        one if one.starts_with("/v1/jobs/") => "/v1/jobs/{id}",
        one if one.starts_with("/v1/batches/") => "/v1/batches/{id}",
        path => path,
    }
}

/// Follows a reference within the description.
fn resolved(value: &Value) -> &Value {
    match value["$ref"].as_str() {
        Some(to) => {
            let to = DESCRIPTION.pointer(to.strip_prefix('#').unwrap());
            to.unwrap_or_else(|| panic!("nothing is at {value}"))
        }
        None => value,
    }
}

/// A schema that can stand alone.
fn with_components(schema: &Value) -> Value {
    json!({"components": DESCRIPTION["components"], "allOf": [schema]})
}

/// Returns how a value differs from a schema, by Python's `jsonschema` in one process for all tests.
fn differences(schema: &Value, value: &Value) -> Vec<String> {
    static PROGRAM: Mutex<Option<(Child, Receiver<String>)>> = Mutex::new(None);
    let mut program = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner);
    let (child, answers) = program.get_or_insert_with(|| {
        let python = std::env::var_os("WINDLASS_TEST_PYTHON").unwrap_or_else(|| "python3".into());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers/described.py");
        let (takes, says) = (Stdio::piped(), Stdio::piped());
        let mut command = Command::new(python);
        command.arg(script).stdin(takes).stdout(says);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (line, answers) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|it| line.send(it)));
        (child, answers)
    });
    let needs = "install python3 and its jsonschema (python3-jsonschema), or run ./bin/test";
    let asked = child.stdin.as_mut().unwrap();
    writeln!(asked, "{}", json!([schema, value])).expect(needs);
    let answer = answers.recv_timeout(DEADLINE).expect(needs);
    serde_json::from_str(&answer).unwrap()
}

/// Checks that the description has this response, and that the response is as it says.
#[track_caller]
pub fn assert_described(method: &str, path: &str, reply: &Reply, json: &Value) {
    let place = described_path(path);
    let responses = &DESCRIPTION["paths"][place][method]["responses"];
    let response = resolved(&responses[reply.status.to_string()]);
    let kind = reply.header("content-type").unwrap();
    let schema = &response["content"][kind]["schema"];
    assert!(
        schema.is_object(),
        "{method} {place} is not described: {reply:?}"
    );
    let errors = differences(&with_components(schema), json);
    assert!(errors.is_empty(), "{errors:?} in {reply:?}");
    if let Some(Value::Object(headers)) = response.get("headers") {
        for name in headers.keys() {
            assert!(
                reply.header(&name.to_lowercase()).is_some(),
                "{name}: {reply:?}"
            );
        }
    }
}

/// Calls `see` for each object within a value.
fn each_object(value: &Value, see: &mut impl FnMut(&Map<String, Value>)) {
    match value {
        Value::Object(map) => {
            see(map);
            map.values().for_each(|value| each_object(value, see));
        }
        Value::Array(values) => values.iter().for_each(|value| each_object(value, see)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_part_is_used() {
    let mut used = Vec::new();
    each_object(&DESCRIPTION, &mut |map| {
        if let Some(to) = map.get("$ref") {
            resolved(&json!({"$ref": to}));
            used.push(to.as_str().unwrap().to_owned());
        }
    });
    for kind in ["schemas", "responses"] {
        for name in DESCRIPTION["components"][kind].as_object().unwrap().keys() {
            let part = format!("#/components/{kind}/{name}");
            assert!(used.contains(&part), "{part} is not used");
        }
    }
    for (path, methods) in DESCRIPTION["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            assert!(operation["operationId"].is_string(), "{method} {path}");
        }
    }
}

/// The columns that a request may have are those of the view for SQL.
fn a_job_has_the_columns_of_the_view(db: &TestDb) {
    let mut described: Vec<String> = DESCRIPTION["components"]["schemas"]["NewJob"]["properties"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    described.sort();
    let columns = if db.is_postgres() {
        "SELECT CAST(column_name AS text) AS t FROM information_schema.columns \
         WHERE table_name = 'windlass_enqueue' AND table_schema = current_schema() \
         AND column_name NOT IN ('id', 'outcome')"
    } else {
        "SELECT name AS t FROM pragma_table_info('windlass_enqueue') WHERE name NOT IN ('id', 'outcome')"
    };
    let mut columns = db.texts(columns);
    columns.sort();
    assert_eq!(described, columns);
    // And the server knows no others.
    let server = serve(&db.database);
    let program = super::Program::local(&server);
    let answer = program.post("/v1/jobs", "{\"class\": \"import\", \"clas\": 1}");
    let said = answer.refused(400);
    let (_, expected) = said.split_once("expected one of ").unwrap();
    let mut known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    known.sort_unstable();
    assert_eq!(known, described);
    assert_eq!(db.rows("jobs"), 0);
}

fn the_description_names_the_server(db: &TestDb) {
    let server = serve(&db.database);
    let described: Value =
        serde_json::from_str(&get(&server, "/v1/openapi.json").expect(200)).unwrap();
    assert_eq!(described["openapi"], "3.1.0");
    assert_eq!(described["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(described["servers"], json!([{"url": "/"}]));
    assert_eq!(described["paths"], DESCRIPTION["paths"]);
    token(db, "shop", "enqueuer", &[]);
    let below = Server::new(&db.database)
        .base_path("/shop")
        .listen("127.0.0.1:0");
    let below = get(&below.start().unwrap(), "/shop/v1/openapi.json").expect(200);
    let described: Value = serde_json::from_str(&below).unwrap();
    assert_eq!(described["servers"], json!([{"url": "/shop"}]));
}

on_each_database!(
    a_job_has_the_columns_of_the_view,
    the_description_names_the_server,
);
