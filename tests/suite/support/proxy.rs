//! A TCP proxy before a server: a test cuts it, opens it again, or lets it swallow what arrives.

use super::server::free_port;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Passes TCP connections on while it is open, and refuses them otherwise.
pub struct Proxy {
    server: String,
    port: u16,
    open: Option<Open>,
    /// The bits of [`Swallow`].
    swallows: Arc<AtomicU8>,
}

/// The data that is acknowledged to its sender and never passed on.
#[derive(Debug, Clone, Copy)]
pub enum Swallow {
    Questions = 1,
    Answers = 2,
    Everything = 3,
}

struct Open {
    stop: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    accepts: JoinHandle<()>,
}

impl Proxy {
    /// Creates a closed proxy to the server of a Postgres address.
    pub fn closed(url: &str) -> Self {
        Proxy {
            server: server(url).to_owned(),
            port: free_port(),
            open: None,
            swallows: Arc::default(),
        }
    }

    /// From now on, on connections that exist and on new ones. Whether a side
    /// has gone is not passed on either.
    pub fn swallow(&self, what: Swallow) {
        self.swallows.store(what as u8, Ordering::SeqCst);
    }

    /// Passes on what comes from now on. What was swallowed is lost.
    pub fn pass(&self) {
        self.swallows.store(0, Ordering::SeqCst);
    }

    /// Creates an open proxy to the server of a Postgres address.
    pub fn opened(url: &str) -> Self {
        let mut proxy = Self::closed(url);
        proxy.open();
        proxy
    }

    /// Returns the address that leads through the proxy.
    pub fn url(&self, url: &str) -> String {
        url.replacen(&self.server, &format!("127.0.0.1:{}", self.port), 1)
    }

    pub fn open(&mut self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        let (stop, streams) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let accepts = std::thread::spawn({
            let (server, stop, streams) = (self.server.clone(), stop.clone(), Arc::clone(&streams));
            let swallows = Arc::clone(&self.swallows);
            move || accept(&listener, &server, &stop, (&streams, &swallows))
        });
        self.open = Some(Open {
            stop,
            streams,
            accepts,
        });
    }

    /// Ends every connection and refuses new ones.
    pub fn close(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        self.pass();
        open.stop.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        open.accepts.join().unwrap();
        for stream in open.streams.lock().unwrap().iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.close();
    }
}

/// The address of a way to the server that ends the first connection on which a
/// client says `text`, before the server hears of it.
pub fn cut_once_at(url: &str, text: &'static str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (to, cuts) = (server(url).to_owned(), Arc::new(AtomicBool::new(true)));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let upstream = TcpStream::connect(&to).unwrap();
            let (mut answers, mut back) =
                (upstream.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            let (cuts, mut client, mut upstream) = (Arc::clone(&cuts), client, upstream);
            std::thread::spawn(move || {
                let mut bytes = [0; 16 * 1024];
                while let Ok(count @ 1..) = client.read(&mut bytes) {
                    let says = bytes[..count]
                        .windows(text.len())
                        .any(|part| part == text.as_bytes());
                    if says && cuts.swap(false, Ordering::SeqCst)
                        || upstream.write_all(&bytes[..count]).is_err()
                    {
                        break;
                    }
                }
                let _ = client.shutdown(Shutdown::Both);
                let _ = upstream.shutdown(Shutdown::Both);
            });
        }
    });
    url.replacen(server(url), &format!("127.0.0.1:{port}"), 1)
}

/// `host:port` of a Postgres address.
pub fn server(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap();
    let rest = rest.split(['/', '?']).next().unwrap();
    let server = rest.rsplit_once('@').map_or(rest, |(_, server)| server);
    assert!(server.contains(':'), "the tests' Postgres needs a port");
    server
}

fn accept(
    listener: &TcpListener,
    server: &str,
    stop: &AtomicBool,
    (streams, swallows): (&Mutex<Vec<TcpStream>>, &Arc<AtomicU8>),
) {
    for client in listener.incoming() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let (Ok(client), Ok(upstream)) = (client, TcpStream::connect(server)) else {
            continue;
        };
        let ways = [
            (&client, &upstream, Swallow::Questions),
            (&upstream, &client, Swallow::Answers),
        ];
        for (from, to, way) in ways {
            let swallows = Arc::clone(swallows);
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            streams.lock().unwrap().push(from.try_clone().unwrap());
            std::thread::spawn(move || {
                let is_swallowed = || swallows.load(Ordering::SeqCst) & way as u8 != 0;
                let mut bytes = [0; 16 * 1024];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    if !is_swallowed() && to.write_all(&bytes[..count]).is_err() {
                        break;
                    }
                }
                while is_swallowed() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }
}
