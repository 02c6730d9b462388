//! A way to a server that can be cut and opened again.

use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Passes TCP connections on while it is open, and refuses them otherwise.
pub struct Proxy {
    server: String,
    port: u16,
    open: Option<Open>,
}

struct Open {
    stop: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    accepts: JoinHandle<()>,
}

impl Proxy {
    /// A closed way to the server of a Postgres address.
    pub fn closed(url: &str) -> Self {
        // Below the ports that outgoing connections get, so that it stays
        // free while it is closed.
        let mut ports = std::iter::repeat_with(|| fastrand::u16(10_000..30_000));
        let port = ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
        Proxy {
            server: server(url).to_owned(),
            port: port.unwrap(),
            open: None,
        }
    }

    /// An open one.
    pub fn opened(url: &str) -> Self {
        let mut proxy = Self::closed(url);
        proxy.open();
        proxy
    }

    /// The address that leads through here.
    pub fn url(&self, url: &str) -> String {
        url.replacen(&self.server, &format!("127.0.0.1:{}", self.port), 1)
    }

    pub fn open(&mut self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        let (stop, streams) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let accepts = std::thread::spawn({
            let (server, stop, streams) = (self.server.clone(), stop.clone(), Arc::clone(&streams));
            move || accept(&listener, &server, &stop, &streams)
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

/// `host:port` of a Postgres address.
fn server(url: &str) -> &str {
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
    streams: &Mutex<Vec<TcpStream>>,
) {
    for client in listener.incoming() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let (Ok(client), Ok(upstream)) = (client, TcpStream::connect(server)) else {
            continue;
        };
        for (from, to) in [(&client, &upstream), (&upstream, &client)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            streams.lock().unwrap().push(from.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }
}
