//! The pages of `windlass web` on a very large database.

use crate::bench::figures::rate;
use crate::bench::figures::{median, quantile};
use crate::bench::place::Place;
use crate::db::{AsConn as _, Database};
use crate::error::{ErrorContext as _, Result};
use crate::laboratory::comparison::{Ceiling, Comparison, FigureValue};
use crate::laboratory::drains;
use crate::laboratory::filled::{around, fill};
use crate::laboratory::jobs::nothing;
use crate::laboratory::program::Program;
use crate::laboratory::role::Setup;
use crate::laboratory::run::BenchRun;
use crate::laboratory::web::addresses;
use crate::laboratory::web::first_page;
use crate::laboratory::web::traffic::{Heard, Traffic};
use crate::laboratory::web::viewers;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let shared = Rc::new(Shared::default());
    let viewers = run.settings.web.viewers;
    let (pages, undisturbed) = (Rc::clone(&shared), Rc::clone(&shared));
    let (many, one, first) = (Rc::clone(&shared), Rc::clone(&shared), Rc::clone(&shared));
    vec![
        Comparison::new("", move |run| Round::new(run, &pages)?.measure())
            .beside(Ceiling::one("drain without requests", move |_| {
                Ok(undisturbed.undisturbed())
            })),
        Comparison::new(format!("{viewers} viewers"), move |run| {
            let (database, url) = many.filled(run)?;
            viewers::measure(run, &database, &url, viewers)
        })
        .beside(Ceiling::one("one viewer", move |run| {
            let (database, url) = one.filled(run)?;
            viewers::measure(run, &database, &url, 1)
        })),
        Comparison::new("first page", move |run| {
            let (_, url) = first.filled(run)?;
            first_page::measure(&url)
        }),
    ]
}

/// The state that the measurements share.
#[derive(Default)]
struct Shared {
    place: RefCell<Option<Arc<Place>>>,
    /// The rates of drains without requests in the last round.
    undisturbed: RefCell<Vec<f64>>,
    /// The responses in all rounds, page by page, and the number of rounds.
    heard: RefCell<BTreeMap<String, Heard>>,
    rounds: RefCell<u32>,
}

impl Shared {
    /// Returns the filled database: the one of the options, or one of its own, which is filled once.
    fn filled(&self, run: &BenchRun) -> Result<(Database, String)> {
        let options = &run.settings.web;
        let url = match &options.filled {
            Some(url) => url.clone(),
            None => {
                let mut place = self.place.borrow_mut();
                match &*place {
                    Some(place) => place.url().to_owned(),
                    None => {
                        let new = run.place()?;
                        place.insert(new).url().to_owned()
                    }
                }
            }
        };
        let database = Database::open(&url)?;
        database.migrate()?;
        if fill::is_empty(&database)? {
            fill::fill(&database, options.sizes, &|text| {
                run.progress.say(format!("web: {text}"))
            })?;
        }
        let mut connection = database.connect()?;
        around::heartbeat(&mut connection.as_conn()).during("renew heartbeats")?;
        Ok((database, url))
    }

    fn undisturbed(&self) -> Vec<FigureValue> {
        let rates = self.undisturbed.borrow().clone();
        vec![FigureValue::new(DRAIN, "runs/s", median(rates))]
    }

    /// Adds what was heard in a round, and returns the figures of all rounds after the last one.
    fn add(&self, run: &BenchRun, heard: Vec<(String, Heard)>) -> Vec<FigureValue> {
        let mut all = self.heard.borrow_mut();
        for (page, heard) in heard {
            all.entry(page).or_default().add(heard);
        }
        *self.rounds.borrow_mut() += 1;
        if *self.rounds.borrow() < run.settings.rounds {
            return Vec::new();
        }
        all.iter()
            .flat_map(|(page, heard)| figures(page, heard))
            .collect()
    }
}

const DRAIN: &str = "drain while pages are requested";

/// The jobs of a drain that lasts for some seconds.
const JOBS: u32 = 200_000;

/// The number of comparisons of drains with and without requests in a round.
const PAIRS: usize = 8;

fn figures(page: &str, heard: &Heard) -> Vec<FigureValue> {
    let time = |name: &str, part| {
        FigureValue::new(
            format!("{page} {name}"),
            "ms",
            quantile(heard.millis.clone(), part),
        )
    };
    let mut figures = vec![time("p50", 0.5), time("p99", 0.99), time("max", 1.0)];
    let count =
        |name: &str, count: usize| FigureValue::new(format!("{page} {name}"), "", count as f64);
    figures.push(count("requests", heard.millis.len()));
    for (name, number) in [("errors", heard.errors), ("late panels", heard.late)] {
        if number > 0 {
            figures.push(count(&format!("{name}, {}", heard.wrong), number));
        }
    }
    figures
}

/// A round: a server, its clients, and a worker that drains jobs again and again.
struct Round<'r> {
    run: &'r BenchRun,
    shared: &'r Shared,
    database: Database,
    url: String,
    setup: Setup,
    /// Jobs that the last drain has left.
    left: Cell<u32>,
}

impl<'r> Round<'r> {
    fn new(run: &'r BenchRun, shared: &'r Shared) -> Result<Self> {
        let (database, url) = shared.filled(run)?;
        let setup = Setup {
            threads: run.settings.threads,
            runs: u64::from(run.jobs(JOBS)),
            // So that the database keeps its size.
            delete: true,
            dispatcher: false,
            queue: QUEUE,
        };
        Ok(Round {
            run,
            shared,
            database,
            url,
            setup,
            left: Cell::new(0),
        })
    }

    fn measure(&self) -> Result<Vec<FigureValue>> {
        let options = &self.run.settings.web;
        let (server, address) = Program::serve(&self.url, options.slow)?;
        let pages = addresses::pages(options.sizes)?;
        let traffic = Traffic::new(address, pages, f64::from(options.rate));
        let rates = std::thread::scope(|scope| {
            traffic.start(scope);
            let rates = self.drains(&traffic);
            traffic.stop();
            rates
        })?;
        server.stop();
        let mut values = vec![FigureValue::new(DRAIN, "runs/s", median(rates))];
        values.extend(self.shared.add(self.run, traffic.heard()));
        Ok(values)
    }

    /// Drains until every page was requested often enough, in turn with and without requests at
    /// first: only these are compared, as the tables change with every drain. Returns the rates of
    /// the drains during which pages were requested.
    fn drains(&self, traffic: &Traffic) -> Result<Vec<f64>> {
        let settings = &self.run.settings;
        let requests = settings.web.requests.div_ceil(settings.rounds) as usize;
        let (mut with, mut without) = (Vec::new(), Vec::new());
        while traffic.requests() < requests || with.len() < PAIRS {
            let is_compared = with.len() < PAIRS;
            if is_compared {
                without.push(self.drain()?);
            }
            traffic.switch(true);
            let drained = self.drain();
            traffic.switch(without.len() >= PAIRS);
            let drained = drained?;
            if is_compared {
                with.push(drained);
            }
            let (done, all) = (traffic.requests(), requests);
            self.run
                .progress
                .say(format!("web: {done} of {all} requests of each page"));
        }
        *self.shared.undisturbed.borrow_mut() = without;
        Ok(with)
    }

    /// Returns the jobs a second.
    fn drain(&self) -> Result<f64> {
        let jobs = self.run.jobs(JOBS);
        let mut connection = self.database.connect()?;
        let new = jobs.saturating_sub(self.left.get());
        drains::fill(&mut connection, new, &|number| {
            Ok(nothing(number)?.queue(QUEUE))
        })?;
        let cost = drains::move_jobs(self.run, &self.url, &self.database, self.setup)?;
        let done = u32::try_from(cost.runs).unwrap_or(jobs);
        self.left.set(jobs.saturating_sub(done));
        Ok(rate(cost.runs, cost.took))
    }
}

/// The queue of the jobs that are drained; all others stay as they are.
const QUEUE: &str = "drained";
