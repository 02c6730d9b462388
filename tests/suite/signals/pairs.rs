//! The pairs of requests, and what follows from each.

use rustix::process::Signal;

/// In seconds.
const DISTANCES: [u64; 4] = [0, 1, 3, 10];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Hup,
    Term,
    Int,
    Tstp,
    Cont,
    Quit,
    /// The supervisor's byte.
    Quiet,
    /// The end of the standard input.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Supervisor,
    Worker,
    Group,
    /// A worker whose supervisor is the test.
    Alone,
}

pub type Request = (What, Target);

#[derive(Debug, Clone, Copy)]
pub struct Pair {
    pub requests: [Request; 2],
    pub distance: u64,
}

impl What {
    pub fn signal(self) -> Option<Signal> {
        Some(match self {
            What::Hup => Signal::HUP,
            What::Term => Signal::TERM,
            What::Int => Signal::INT,
            What::Tstp => Signal::TSTP,
            What::Cont => Signal::CONT,
            What::Quit => Signal::QUIT,
            What::Quiet | What::Closed => return None,
        })
    }

    /// Returns whether it stops a process for which SIGHUP is not a stop.
    fn stops(self) -> bool {
        matches!(self, What::Term | What::Int | What::Quit | What::Closed)
    }
}

fn requests() -> [Vec<Request>; 2] {
    use Target::{Alone, Group, Supervisor, Worker};
    use What::{Closed, Cont, Hup, Int, Quiet, Quit, Term, Tstp};
    let signals = [Hup, Term, Int, Tstp, Cont, Quit];
    let whole = [Supervisor, Worker, Group];
    let whole = whole
        .into_iter()
        .flat_map(|to| signals.map(|what| (what, to)));
    let alone = signals.into_iter().chain([Quiet, Closed]);
    [whole.collect(), alone.map(|what| (what, Alone)).collect()]
}

pub fn every_pair() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for requests in requests() {
        for first in &requests {
            for second in &requests {
                pairs.extend(DISTANCES.map(|distance| Pair {
                    requests: [*first, *second],
                    distance,
                }));
            }
        }
    }
    pairs
}

/// Those that went wrong once or are closest to that, and some of all others.
pub fn some_pairs() -> Vec<Pair> {
    use Target::{Alone, Group, Supervisor, Worker};
    use What::{Closed, Cont, Hup, Int, Term, Tstp};
    let known = [
        [(Hup, Supervisor), (Term, Supervisor)],
        [(Hup, Group), (Term, Group)],
        [(Term, Worker), (Term, Supervisor)],
        [(Term, Worker), (Hup, Supervisor)],
        [(Term, Group), (Term, Group)],
        [(Int, Group), (Int, Worker)],
        [(Int, Supervisor), (Int, Supervisor)],
        [(Tstp, Group), (Cont, Supervisor)],
        [(Term, Alone), (Closed, Alone)],
    ];
    let known = known.into_iter().map(|requests| Pair {
        requests,
        distance: 3,
    });
    let quick = [(Tstp, Supervisor), (Cont, Supervisor)];
    let quick = [quick, quick.map(|(what, _)| (what, Group))];
    let quick = quick.into_iter().map(|requests| Pair {
        requests,
        distance: 0,
    });
    let others = every_pair().into_iter().step_by(29);
    known.chain(quick).chain(others).collect()
}

/// The expected effects of a pair.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// The run ends before the job does.
    pub is_cut: bool,
    /// The supervisor, or the worker that the test supervises, ends by itself.
    pub is_over: bool,
    /// True if the worker then claims nothing; `None` if that is not certain.
    pub is_quiet: Option<bool>,
}

impl Expected {
    pub fn of(pair: Pair) -> Self {
        let [first, second] = pair.requests;
        let is_whole = |to: Target| matches!(to, Target::Supervisor | Target::Group);
        let stops_whole = |(what, to): Request| what.stops() && is_whole(to);
        let is_second_interrupt = stops_whole(first)
            && (second.0 == What::Int && is_whole(second.1))
            && pair.distance >= 3;
        let asks = |wanted: What| pair.requests.iter().any(|(what, _)| *what == wanted);
        let ends = |(what, to): &Request| what.stops() && *to != Target::Worker;
        let is_over = pair.requests.iter().any(ends);
        // A worker that is replaced takes the mode of its supervisor.
        let stays = !pair.requests.iter().any(|(what, _)| what.stops()) && !asks(What::Hup);
        // The system may run the handlers of two signals that come in one instant in either order.
        let is_either = pair.distance == 0 && asks(What::Tstp) && asks(What::Cont);
        let stays = stays && !is_either;
        Expected {
            is_cut: asks(What::Quit) || is_second_interrupt,
            is_over,
            is_quiet: (stays
                && (pair.distance > 0
                    || first == second
                    || first.1 == second.1 && !asks(What::Quiet)))
            .then(|| is_quiet_after(pair.requests)),
        }
    }
}

/// The last change wins; a supervisor passes on its own changes.
fn is_quiet_after(requests: [Request; 2]) -> bool {
    let (mut supervisor, mut worker) = (false, false);
    for (what, to) in requests {
        let is_quiet = match what {
            What::Tstp | What::Quiet => true,
            What::Cont => false,
            _ => continue,
        };
        if to != Target::Worker && to != Target::Alone {
            if supervisor != is_quiet {
                worker = is_quiet;
            }
            supervisor = is_quiet;
        }
        if to != Target::Supervisor {
            worker = is_quiet;
        }
    }
    worker
}
