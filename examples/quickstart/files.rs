//! The files below a directory.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// The regular files below a directory. Symbolic links are not followed.
pub(crate) struct Files {
    pub(crate) paths: Vec<PathBuf>,
    /// The paths that could not be read, and the reasons.
    pub(crate) skipped: Vec<String>,
}

/// The directory itself could not be read.
#[derive(Debug)]
pub(crate) struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

impl Files {
    pub(crate) fn below(directory: &Path) -> Result<Self, Unreadable> {
        let shown = directory.display();
        // Absolute, so that a job does not depend on where its worker runs.
        let directory = directory
            .canonicalize()
            .map_err(|error| Unreadable(format!("cannot read the directory {shown}: {error}")))?;
        if !directory.is_dir() {
            return Err(Unreadable(format!("{shown} is no directory")));
        }
        std::fs::read_dir(&directory)
            .map_err(|error| Unreadable(format!("cannot read the directory {shown}: {error}")))?;
        let (mut paths, mut skipped) = (Vec::new(), Vec::new());
        for entry in WalkDir::new(directory).sort_by_file_name() {
            match entry {
                Ok(entry) if entry.file_type().is_file() => match File::open(entry.path()) {
                    Ok(_) => paths.push(entry.into_path()),
                    Err(error) => skipped.push(format!("{}: {error}", entry.path().display())),
                },
                Ok(_) => {}
                Err(error) => skipped.push(error.to_string()),
            }
        }
        Ok(Files { paths, skipped })
    }
}
