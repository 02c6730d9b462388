//! Secrets of tokens and sessions, of which only digests are stored.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::fmt::Write as _;
use windlass::{Error, Result};

/// The start of each token's text, by which searches for leaked secrets find it.
const PREFIX: &str = "windlass_";

/// The number of a digest's digits that find its row. They are no secret; the rest is compared.
const LOOKUP: usize = 16;

/// A new secret of 256 bits.
pub(crate) struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret([hidden])")
    }
}

impl Secret {
    /// Makes a secret of the operating system's random bytes.
    ///
    /// # Errors
    /// If the operating system has none.
    pub(crate) fn generate() -> Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| Error::Io {
            action: "read",
            path: "the system's random source".into(),
            source: std::io::Error::other(error.to_string()),
        })?;
        Ok(Secret(hexadecimal(&bytes)))
    }

    /// Returns it as the text of a token.
    pub(crate) fn token(&self) -> String {
        format!("{PREFIX}{}", self.0)
    }

    /// Returns it as the value of a cookie.
    pub(crate) fn cookie(&self) -> &str {
        &self.0
    }
}

/// The SHA-256 of a secret's text.
pub(crate) struct SecretDigest(String);

impl SecretDigest {
    pub(crate) fn of(text: &str) -> Self {
        SecretDigest(hexadecimal(&Sha256::digest(text.as_bytes())))
    }

    /// Returns the digits by which its row is found.
    pub(crate) fn lookup(&self) -> &str {
        &self.0[..LOOKUP]
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares with a stored digest, in a time that does not depend on where they differ.
    pub(crate) fn is(&self, stored: &str) -> bool {
        if stored.len() != self.0.len() {
            return false;
        }
        let pairs = self.0.bytes().zip(stored.bytes());
        let differences = pairs.fold(0, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
        differences == 0
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_long_new_and_hidden() {
        let [one, other] = [(), ()].map(|()| Secret::generate().unwrap());
        assert_ne!(one.token(), other.token());
        assert_eq!(one.token().len(), "windlass_".len() + 64);
        assert!(!format!("{one:?}").contains(one.cookie()));
    }

    #[test]
    fn a_digest_is_equal_to_itself_only() {
        let digest = SecretDigest::of("abc");
        assert!(digest.as_str().starts_with("ba7816bf8f01cfea"));
        assert_eq!(digest.lookup(), "ba7816bf8f01cfea");
        let stored = digest.as_str().to_owned();
        assert!(digest.is(&stored));
        for wrong in [
            "",
            digest.lookup(),
            &stored.replace('a', "b"),
            SecretDigest::of("abd").as_str(),
        ] {
            assert!(!digest.is(wrong), "{wrong}");
        }
    }
}
