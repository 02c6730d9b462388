//! A TCP proxy before a Postgres server, to lose what goes over a network.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The treatment of the bytes of all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Passes them on.
    Pass,
    /// Loses what the server answers: a COMMIT is done and nobody hears of it.
    LoseAnswers,
    /// Loses everything, without a word: a half-open connection.
    LoseAll,
}

#[derive(Default)]
struct Shared {
    mode: AtomicU8,
    streams: Mutex<Vec<TcpStream>>,
}

/// Runs on threads until the program ends.
#[derive(Clone)]
pub struct Proxy {
    shared: Arc<Shared>,
    pub port: u16,
}

impl Proxy {
    pub fn start(server: String) -> std::io::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared::default());
        std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for client in listener.incoming().flatten() {
                    // A server that restarts refuses: so does the proxy then.
                    if let Ok(server) = TcpStream::connect(&server) {
                        let _ = shared.join(&client, &server);
                    }
                }
            }
        });
        Ok(Proxy { shared, port })
    }

    /// From now on; connections stay.
    pub fn set(&self, mode: Mode) {
        self.shared.mode.store(mode as u8, Ordering::SeqCst);
    }

    /// Loses bytes for a while, then cuts every connection: a client must not
    /// read on in the middle of an answer.
    pub fn lose(&self, mode: Mode, time: Duration) {
        self.shared.mode.store(mode as u8, Ordering::SeqCst);
        std::thread::sleep(time);
        let mut streams = self
            .shared
            .streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for stream in streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.shared.mode.store(Mode::Pass as u8, Ordering::SeqCst);
    }
}

impl Shared {
    fn join(self: &Arc<Self>, client: &TcpStream, server: &TcpStream) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        self.streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend([client.try_clone()?, server.try_clone()?]);
        self.pump(client.try_clone()?, server.try_clone()?, Mode::LoseAll);
        self.pump(server.try_clone()?, client.try_clone()?, Mode::LoseAnswers);
        Ok(())
    }

    /// Passes bytes on, unless the mode is `loses` or worse.
    fn pump(self: &Arc<Self>, mut from: TcpStream, mut to: TcpStream, loses: Mode) {
        let shared = Arc::clone(self);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                let lost = shared.mode.load(Ordering::SeqCst) >= loses as u8;
                if !lost && to.write_all(&buffer[..n]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        });
    }
}
