//! Open pages that are kept up to date.

use crate::clock;
use crate::db::{Database, DbConnection};
use crate::error::{Error, Result};
use crate::laboratory::comparison::FigureValue;
use crate::laboratory::jobs::nothing;
use crate::laboratory::program::Program;
use crate::laboratory::run::BenchRun;
use crate::laboratory::web::client;
use crate::laboratory::worker::Cost;
use std::io::Read as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Between two changes that open pages show.
const CHANGES: Duration = Duration::from_millis(200);

/// Measures what a server does while so many copies of the first page are open.
pub(crate) fn measure(
    run: &BenchRun,
    database: &Database,
    url: &str,
    viewers: u32,
) -> Result<Vec<FigureValue>> {
    let (mut server, address) = Program::serve(url, run.settings.web.slow)?;
    let streams = (0..viewers).map(|_| open(address));
    let streams = streams.collect::<Result<Vec<TcpStream>>>()?;
    let events = AtomicUsize::new(0);
    let mut connection = database.connect()?;
    let observed = std::thread::scope(|scope| {
        for stream in &streams {
            scope.spawn(|| count(stream, &events));
        }
        let observed = observe(run.settings.idle, &mut server, &mut connection, &events);
        for stream in &streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
        observed
    });
    let (before, after, seconds) = observed?;
    server.stop();
    let statements = (after.statements - before.statements) as f64 / seconds;
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64() / seconds;
    let events = events.load(Ordering::Relaxed) as f64 / seconds / f64::from(viewers);
    Ok(vec![
        FigureValue::new("statements", "a second", statements),
        FigureValue::new("processor", "% of a core", cpu * 100.0),
        FigureValue::new("events for each", "a second", events),
    ])
}

/// Returns the cost of the server before and after some time, in which jobs are enqueued, and that
/// time in seconds.
fn observe(
    time: Duration,
    server: &mut Program,
    connection: &mut DbConnection,
    events: &AtomicUsize,
) -> Result<(Cost, Cost, f64)> {
    // The first samples are larger.
    clock::nap(Duration::from_secs(2).min(time));
    let before = server.cost()?;
    events.store(0, Ordering::Relaxed);
    let begun = clock::instant();
    while begun.elapsed() < time {
        nothing(0)?.queue("changing").enqueue(connection)?;
        clock::nap(CHANGES);
    }
    let after = server.cost()?;
    Ok((before, after, begun.elapsed().as_secs_f64()))
}

/// Opens the first page, and the stream that keeps it up to date.
fn open(address: SocketAddr) -> Result<TcpStream> {
    let failed = |kind: std::io::Error| Error::Io {
        action: "follow",
        path: "the first page of the web server".into(),
        source: kind,
    };
    let page = client::get(address, "/")?;
    let from = page.text.split_once("data-live-from=\"");
    let from = from.and_then(|(_, rest)| rest.split('"').next());
    let from = from.ok_or_else(|| failed(std::io::ErrorKind::Unsupported.into()))?;
    let from = from.replace("&#38;", "&").replace("&amp;", "&");
    client::open(address, &from, "").map_err(failed)
}

/// Counts the events of a stream until it ends.
fn count(mut stream: &TcpStream, events: &AtomicUsize) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        let new = bytes[..count].windows(6).filter(|part| part == b"event:");
        events.fetch_add(new.count(), Ordering::Relaxed);
    }
}
