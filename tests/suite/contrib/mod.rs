//! The files of `contrib` that run Windlass: linted, and run by the real program. Its rules and its dashboard are tested
//! with the metrics.

mod kubernetes;
mod lint;
mod services;

use serde_json::Value;
use std::path::{Path, PathBuf};
use yaml_rust2::{Yaml, YamlLoader};

/// The number of seconds that a stop takes by default: `shutdown_timeout`, and 5 s for the supervisor's own end.
const STOP: u64 = 30;

fn path(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib");
    root.join(name).canonicalize().unwrap()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

/// Returns the documents of a file of YAML.
fn documents(name: &str) -> Vec<Value> {
    let documents = YamlLoader::load_from_str(&read(name)).unwrap();
    documents.iter().map(json).collect()
}

fn json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Boolean(value) => Value::from(*value),
        Yaml::Integer(value) => Value::from(*value),
        Yaml::String(text) => Value::from(text.as_str()),
        Yaml::Array(items) => items.iter().map(json).collect(),
        Yaml::Hash(entries) => {
            let mut object = serde_json::Map::new();
            for (key, value) in entries {
                match (key.as_str().unwrap(), json(value)) {
                    // It comes first, so later keys replace what it merges.
                    ("<<", Value::Object(merged)) => object.extend(merged),
                    (key, value) => drop(object.insert(key.to_owned(), value)),
                }
            }
            Value::Object(object)
        }
        _ => Value::Null,
    }
}

#[track_caller]
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value}"))
}

/// Returns the texts of an array; none if it is not there.
fn texts(array: &Value) -> Vec<String> {
    let items = array.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().map(|item| text(item).to_owned()).collect()
}

/// Returns the container of a manifest; `null` if it has none.
fn container(manifest: &Value) -> &Value {
    &manifest["spec"]["template"]["spec"]["containers"][0]
}
