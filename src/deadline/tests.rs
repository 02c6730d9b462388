use super::*;
use rustix::net::sockopt::set_tcp_user_timeout;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};

/// A connection to a server that never answers.
fn silent(tag: u32) -> (TcpListener, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    set_tcp_user_timeout(&stream, tag).unwrap();
    (listener, stream)
}

const SOON: Duration = Duration::from_millis(300);

#[test]
fn tags_are_unique_and_used_again() {
    let (one, two) = (Deadline::new(7_000, None), Deadline::new(7_000, None));
    assert_eq!((one.tag(), two.tag()), (7_010, 7_020));
    // The tag of another base must not be the same.
    assert_eq!(Deadline::new(7_010, None).tag(), 7_030);
    drop(one);
    assert_eq!(Deadline::new(7_000, None).tag(), 7_010);
    assert_eq!(Deadline::new(0, None).tag(), 86_400_010);
}

#[test]
fn a_wait_ends_at_its_deadline_and_another_goes_on() {
    let (one, two) = (Deadline::new(8_000, None), Deadline::new(8_000, None));
    let (_first, mut cut) = silent(one.tag());
    let (_second, mut spared) = silent(two.tag());
    let start = clock::instant();
    let armed = (one.arm(SOON), two.arm(Duration::from_secs(3_600)));
    assert_eq!(cut.read(&mut [0]).unwrap(), 0);
    // Deadlines count whole milliseconds.
    assert!(start.elapsed() + Duration::from_millis(1) >= SOON);
    assert_eq!(one.missed(), Some(SOON));
    assert_eq!(two.missed(), None);
    spared.set_read_timeout(Some(SOON)).unwrap();
    assert!(spared.read(&mut [0]).is_err(), "it is not shut down");
    drop(armed);
    assert_eq!(one.missed(), Some(SOON), "it stays of no use");
}

#[test]
fn each_statement_has_its_own_time() {
    let deadline = Deadline::new(9_000, None);
    let (_server, mut stream) = silent(deadline.tag());
    let armed = deadline.arm(4 * SOON);
    let first = deadline.0.deadline.load(Ordering::SeqCst);
    clock::nap(SOON);
    deadline.again();
    assert!(deadline.0.deadline.load(Ordering::SeqCst) > first);
    drop(armed);
    deadline.again();
    assert_eq!(deadline.0.deadline.load(Ordering::SeqCst), DISARMED);
    // Nothing closes it now.
    stream.set_read_timeout(Some(SOON)).unwrap();
    assert!(stream.read(&mut [0]).is_err());
    assert_eq!(deadline.missed(), None);
}

#[test]
fn a_stop_shortens_what_is_under_way() {
    let stopping = Arc::new(AtomicBool::new(false));
    let hurry = Hurry {
        stopping: Arc::clone(&stopping),
        limit: SOON,
    };
    let deadline = Deadline::new(11_000, Some(hurry));
    let (_server, mut stream) = silent(deadline.tag());
    let _armed = deadline.arm(Duration::from_secs(3_600));
    stream.set_read_timeout(Some(2 * SOON)).unwrap();
    assert!(stream.read(&mut [0]).is_err(), "nothing asks for haste");
    stopping.store(true, Ordering::Relaxed);
    stream.set_read_timeout(None).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert_eq!(deadline.missed(), Some(SOON));
}

#[test]
fn a_descriptor_that_is_no_socket_is_left_alone() {
    let file = tempfile::tempfile().unwrap();
    assert!(sockets::shut_down(&[1]).is_empty());
    assert_eq!(sockets::with_tag(1), 0);
    file.metadata().unwrap();
}

/// Another socket with this number would be shut down together with the connection's.
#[test]
fn a_number_that_a_socket_has_already_is_passed_over() {
    let (_server, _stranger) = silent(12_010);
    assert_eq!(Deadline::new(12_000, None).tag(), 12_020);
}
