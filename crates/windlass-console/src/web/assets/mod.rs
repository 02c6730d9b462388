//! The style sheet and the script, compiled in.

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};
use std::io::Write as _;

/// A file that never changes under its name.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Its name with the hash of its content: `style.0f1e2d3c4b5a.css`.
    pub(crate) name: String,
    pub(crate) content_type: &'static str,
    pub(crate) plain: &'static [u8],
    pub(crate) gzipped: Vec<u8>,
}

/// All assets.
#[derive(Debug)]
pub(crate) struct Assets {
    pub(crate) style: Asset,
    pub(crate) script: Asset,
}

impl Asset {
    fn new(stem: &str, end: &str, content_type: &'static str, plain: &'static [u8]) -> Self {
        let digest = Sha256::digest(plain);
        let hash: String = digest[..6]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let gzipped = encoder.write_all(plain).and_then(|()| encoder.finish());
        Asset {
            name: format!("{stem}.{hash}.{end}"),
            content_type,
            plain,
            gzipped: gzipped.unwrap_or_default(),
        }
    }
}

impl Default for Assets {
    fn default() -> Self {
        Assets {
            style: Asset::new(
                "style",
                "css",
                "text/css; charset=utf-8",
                include_bytes!("style.css"),
            ),
            script: Asset::new(
                "windlass",
                "js",
                "text/javascript; charset=utf-8",
                include_bytes!("windlass.js"),
            ),
        }
    }
}

impl Assets {
    pub(crate) fn named(&self, name: &str) -> Option<&Asset> {
        [&self.style, &self.script]
            .into_iter()
            .find(|asset| asset.name == name)
    }
}
