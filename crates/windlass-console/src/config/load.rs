//! Settings from a file, the environment and the command line.
//!
//! `document` has the file with the places of its values, `reader` looks settings up and records
//! problems, `value` and `amounts` are the kinds of values, `settings` lists all settings, and
//! `combinations` compares them. All problems are collected and reported at once.

use crate::config::configuration::Config;
use crate::config::reader::{Argument, Reader};
use crate::config::settings::{
    DatabaseSettings, DispatcherSettings, SchedulerSettings, SupervisorSettings, WebSettings,
    WorkerSettings,
};
use crate::config::value::{FILE_VARIABLE, WORKER_VARIABLE};
use crate::config::{combinations, document, queues, recurring, settings};
use std::path::{Path, PathBuf};
use windlass::hooks::Subscriber;
use windlass::{Database, Error, Hooks, Result};

/// The file that is read if none is named.
const DEFAULT_FILE: &str = "windlass.toml";

impl Config {
    /// Reads a file and the environment.
    ///
    /// # Errors
    /// If the file cannot be read. [`Error::Configuration`] with all problems if the file or the
    /// environment is invalid.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_with(Some(path.as_ref()), Vec::new()).map(Self::warned)
    }

    /// Reads the file named by the environment variable `WINDLASS_CONFIG`, or else `windlass.toml`
    /// in the current directory if it exists, and the environment.
    ///
    /// # Errors
    /// As for [`load`](Self::load). A missing `windlass.toml` is not an error.
    pub fn find() -> Result<Self> {
        Self::load_with(None, Vec::new()).map(Self::warned)
    }

    /// Reads a text as if it were the file, without the environment.
    ///
    /// # Errors
    /// [`Error::Configuration`] with all problems if the text is invalid.
    pub fn parse(text: &str) -> Result<Self> {
        let file = document::ConfigFile::parse("", text);
        Self::read(Reader::of(file), None, None)
    }

    /// Reads the file and the environment; options of the command line override both.
    pub(crate) fn load_with(path: Option<&Path>, arguments: Vec<Argument>) -> Result<Self> {
        let mut environment = document::environment();
        let named = path.map(Path::to_owned);
        let named = named.or_else(|| environment.get(FILE_VARIABLE).map(PathBuf::from));
        let path = match named {
            Some(path) => Some(path),
            None => Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists()),
        };
        let file = match &path {
            Some(path) => document::ConfigFile::parse(&path.display().to_string(), &text_of(path)?),
            None => document::ConfigFile::default(),
        };
        let entry = environment.remove(WORKER_VARIABLE);
        let mut reader = Reader::of(file);
        reader.environment = environment;
        reader.arguments = arguments;
        Self::read(reader, path, entry)
    }

    fn read(mut reader: Reader, file: Option<PathBuf>, entry: Option<String>) -> Result<Self> {
        let r = &mut reader;
        let mut config = Config {
            file,
            entry: entry.map(|entry| entry.parse().unwrap_or(0)),
            database: r.one("database", DatabaseSettings::read),
            supervisor: r.one("supervisor", SupervisorSettings::read),
            workers: r.many("workers", WorkerSettings::read),
            dispatchers: r.many("dispatchers", DispatcherSettings::read),
            scheduler: r.one("scheduler", SchedulerSettings::read),
            tasks: recurring::read_all(r),
            queues: queues::read_all(r),
            retention: r.one("retention", settings::read_retention),
            web: r.one("web", WebSettings::read),
            hooks: Hooks::new(),
            subscriber: Subscriber::default(),
            settings: Vec::new(),
            timings: Vec::new(),
            warnings: r.end(),
        };
        config.settings = reader.settings;
        let mut problems = reader.problems;
        combinations::check(&config, &mut problems);
        match problems.sorted() {
            problems if problems.is_empty() => Ok(config),
            problems => Err(Error::Configuration(problems)),
        }
    }
}

/// Returns the address that the environment names, or that of the configuration that is found.
pub(crate) fn find_url() -> Result<Option<String>> {
    let environment = document::environment();
    let named = ["WINDLASS_DATABASE_URL", "DATABASE_URL"];
    match named.iter().find_map(|name| environment.get(*name)) {
        Some(url) => Ok(Some(url.clone())),
        None => Ok(Config::find()?.url().map(str::to_owned)),
    }
}

/// Returns the database with what the settings say about its pooler. The database may come from the environment, which
/// needs no valid file.
pub(crate) fn pooled(database: Database) -> Result<Database> {
    match Config::load_with(None, Vec::new()) {
        Ok(config) => config.pooled(database),
        Err(_) => Ok(database),
    }
}

fn text_of(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|source| Error::Io {
        action: "read the configuration",
        path: path.to_owned(),
        source,
    })
}
