//! The file that prevents a second supervisor on a host.

use crate::error::{Error, Result};
use rustix::fs::{FlockOperation, flock, fstat, stat};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

#[expect(
    clippy::cast_possible_wrap,
    reason = "a flag, and the standard library wants it signed"
)]
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// A pidfile that this process holds. The lock counts, not the number in the file: the system
/// releases it when its holder ends, however it ends. So a stale file has no effect, and neither
/// has a reused process id.
///
/// No child inherits it: the standard library closes its descriptors on exec.
#[derive(Debug)]
pub(crate) struct Pidfile {
    path: PathBuf,
    _file: File,
}

impl Pidfile {
    /// Creates, locks and writes the file.
    ///
    /// # Errors
    /// Returns an error if another process holds it, or it cannot be written.
    pub(crate) fn hold(path: &Path) -> Result<Self> {
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                // A file that a link points to must not be overwritten.
                .custom_flags(NO_FOLLOW)
                .mode(0o644)
                .open(path)
                .map_err(|source| io("open the pidfile", path, source))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(Error::AlreadyRunning {
                        path: path.to_owned(),
                        holder: holder(&mut file),
                    });
                }
                Err(source) => return Err(io("lock the pidfile", path, source.into())),
            }
            // Its last holder may have removed it since it was opened: then the lock is on a file
            // that no other process can find.
            if !is_at(&file, path) {
                continue;
            }
            write(&mut file).map_err(|source| io("write the pidfile", path, source))?;
            return Ok(Pidfile {
                path: path.to_owned(),
                _file: file,
            });
        }
    }
}

impl Drop for Pidfile {
    /// Removes the file while it is locked, so that it is this process' own.
    fn drop(&mut self) {
        if is_at(&self._file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (fstat(file), stat(path)) {
        (Ok(held), Ok(found)) => (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino),
        _ => false,
    }
}

fn write(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.take(32).read_to_string(&mut text);
    match text.trim().parse::<u32>() {
        Ok(pid) => format!("process {pid}"),
        // The file is locked, and not written yet.
        Err(_) => "another process".to_owned(),
    }
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_stale_files_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        // The id of a process that is gone, and longer than what will be written.
        std::fs::write(&path, "4194304999\n").unwrap();
        let held = Pidfile::hold(&path).unwrap();
        let own = format!("{}\n", std::process::id());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), own);
        let second = Pidfile::hold(&path).unwrap_err().to_string();
        assert!(
            second.contains(&format!("process {}", own.trim())),
            "{second}"
        );
        drop(held);
        assert!(!path.exists());
        drop(Pidfile::hold(&path).unwrap());
    }

    #[test]
    fn a_file_that_somebody_put_in_its_place_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        let first = Pidfile::hold(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Pidfile::hold(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
    }

    #[test]
    fn a_link_is_not_followed() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let (path, victim) = (
            directory.path().join("pid"),
            directory.path().join("victim"),
        );
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert!(Pidfile::hold(&path).is_err());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert!(path.symlink_metadata().is_ok(), "the link stays");
        std::fs::remove_file(&path).unwrap();
        let _held = Pidfile::hold(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o133, 0, "{mode:o}");
    }

    #[test]
    fn a_directory_that_is_missing_is_told() {
        let error = Pidfile::hold(Path::new("/no/such/place/pid")).unwrap_err();
        assert!(error.to_string().contains("/no/such/place/pid"), "{error}");
    }
}
