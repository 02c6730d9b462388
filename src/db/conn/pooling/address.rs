//! The parameters of an address that are for Windlass and not for libpq.

use crate::db::conn::pooling::pooler::Pooling;

/// An address of Postgres without the parameters that libpq would refuse.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolerAddress {
    pub(crate) url: String,
    pub(crate) pooling: Pooling,
    pub(crate) listen_url: Option<String>,
}

impl PoolerAddress {
    /// Takes `pooling` and `listen_url` out of an address whose percent signs start codes.
    ///
    /// # Errors
    /// Returns what is wrong with them.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let Some((path, query)) = url.split_once('?') else {
            return Ok(PoolerAddress {
                url: url.to_owned(),
                ..PoolerAddress::default()
            });
        };
        let mut address = PoolerAddress::default();
        let mut rest = Vec::new();
        for parameter in query.split('&') {
            match parameter.split_once('=') {
                Some(("pooling", value)) => {
                    address.pooling = Pooling::parse(value).ok_or_else(|| {
                        "its parameter `pooling` can be `auto`, `session` or `transaction`"
                            .to_owned()
                    })?;
                }
                Some(("listen_url", value)) => address.listen_url = Some(decoded(value)),
                _ => rest.push(parameter),
            }
        }
        let sign = if rest.is_empty() { "" } else { "?" };
        address.url = format!("{path}{sign}{}", rest.join("&"));
        Ok(address)
    }
}

/// Replaces percent codes by the bytes that they stand for.
fn decoded(text: &str) -> String {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let code = piece
            .get(..2)
            .and_then(|code| u8::from_str_radix(code, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&piece.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(piece.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> (String, Pooling, Option<String>) {
        let address = PoolerAddress::parse(url).unwrap();
        (address.url, address.pooling, address.listen_url)
    }

    #[test]
    fn the_parameters_are_taken_out() {
        let plain = |url: &str, pooling| (url.to_owned(), pooling, None);
        for (url, expected) in [
            ("postgres://h/d", plain("postgres://h/d", Pooling::Auto)),
            (
                "postgres://h/d?sslmode=disable",
                plain("postgres://h/d?sslmode=disable", Pooling::Auto),
            ),
            (
                "postgres://h/d?pooling=transaction",
                plain("postgres://h/d", Pooling::Transaction),
            ),
            (
                "postgres://h/d?sslmode=disable&pooling=session&options=-cx%3Dy",
                plain(
                    "postgres://h/d?sslmode=disable&options=-cx%3Dy",
                    Pooling::Session,
                ),
            ),
        ] {
            assert_eq!(parsed(url), expected, "{url}");
        }
        assert!(PoolerAddress::parse("postgres://h/d?pooling=on").is_err());
    }

    #[test]
    fn the_direct_address_is_decoded() {
        let url = "postgres://h/d?listen_url=postgres%3A%2F%2Fme%3Aa%2540b%40db:5432/d%3Fsslmode%3Drequire";
        let direct = "postgres://me:a%40b@db:5432/d?sslmode=require";
        assert_eq!(parsed(url).2.as_deref(), Some(direct));
    }
}
