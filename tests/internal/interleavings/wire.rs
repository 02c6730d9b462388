//! The answers of a Postgres server, heard on their way to an actor.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufReader, BufWriter, Read, Result, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A hash of the answers since it was last taken.
pub type Answers = Arc<AtomicU64>;

/// An address that leads to the database at `url`, for one connection.
pub fn to(url: &str) -> (String, Answers) {
    let (before, path) = url.rsplit_once('/').expect("an address of a server");
    let (user, host) = before.rsplit_once('@').expect("an address with a user");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("a bound port").port();
    let (host, answers) = (host.to_owned(), Answers::default());
    let heard = Arc::clone(&answers);
    std::thread::spawn(move || {
        let client = listener.accept().expect("an actor").0;
        let server = TcpStream::connect(&host).expect("the server");
        // Either end may close: the other then reads the end of its stream.
        let _ = pass_both(&client, &server, &heard);
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    });
    // Encrypted answers could not be read.
    (
        format!(
            "{user}@127.0.0.1:{port}/{path}?pooling=session&sslmode=disable&gssencmode=disable"
        ),
        answers,
    )
}

fn pass_both(client: &TcpStream, server: &TcpStream, heard: &Answers) -> Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut from, mut to) = (BufReader::new(server), BufWriter::new(client));
    loop {
        let mut head = [0; 5];
        from.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; length as usize - 4];
        from.read_exact(&mut body)?;
        // Rows, the number of rows, and errors; not what comes by itself.
        let answer = match head[0] {
            b'D' => Some(repeatable(&body)),
            b'C' | b'E' => Some(vec![&body[..]]),
            _ => None,
        };
        if let Some(answer) = answer {
            let mut hasher = DefaultHasher::new();
            (heard.load(Ordering::SeqCst), head[0], answer).hash(&mut hasher);
            heard.store(hasher.finish(), Ordering::SeqCst);
        }
        to.write_all(&head)?;
        to.write_all(&body)?;
        if from.buffer().is_empty() {
            to.flush()?;
        }
    }
}

/// A row without times and random ids, which differ from run to run.
fn repeatable(body: &[u8]) -> Vec<&[u8]> {
    // The number of its values, and each after its length.
    let (mut values, mut rest) = (Vec::new(), body.get(2..).unwrap_or_default());
    while let Some((length, after)) = rest.split_at_checked(4) {
        let length = i32::from_be_bytes([length[0], length[1], length[2], length[3]]);
        let Some((value, after)) = after.split_at_checked(usize::try_from(length).unwrap_or(0))
        else {
            return vec![body];
        };
        values.push(if is_time(value) || is_random_id(value) {
            &[]
        } else {
            value
        });
        rest = after;
    }
    values
}

/// A time between 2020 and 2060: microseconds since the year 2000 or 1970, or text. Or seconds, as a float.
fn is_time(value: &[u8]) -> bool {
    const YEAR: i64 = 31_557_600_000_000;
    let number = <[u8; 8]>::try_from(value);
    let is_at = number.is_ok_and(|it| (20 * YEAR..90 * YEAR).contains(&i64::from_be_bytes(it)));
    let is_long = number.is_ok_and(|it| (1e-9..1e9).contains(&f64::from_be_bytes(it).abs()));
    let is_written = value.starts_with(b"20") && value.len() >= 19 && value[13] == b':';
    is_at || is_long || is_written
}

fn is_random_id(value: &[u8]) -> bool {
    value.len() == 36
        && value
            .iter()
            .all(|byte| *byte == b'-' || byte.is_ascii_hexdigit())
}
