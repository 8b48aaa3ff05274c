//! A configuration in, workers that run out: in this process, on ports that this thread may open.

use crate::build::{Secrets, mss, side, way};
use crate::config::Config;
use crate::orders::{Order, Orders, Reins, orders};
use crate::reopen::{self, Reopening, open};
use crate::roles::{Seized, links};
use crate::siblings::Siblings;
use crate::snapshot::Snapshot;
use crate::worker::{End, Reopen, Worker};
use engine::Side;
use port::clock::Clock;
use port::{Offloads, Port};
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A gateway that runs in this process.
#[derive(Debug)]
pub struct Service {
    config: Config,
    offloads: [Offloads; 2],
    crew: Vec<Member>,
    note: Option<String>,
    seized: Arc<Mutex<Seized>>,
}

/// A worker on its thread.
#[derive(Debug)]
struct Member {
    reins: Reins,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Opens both ports in the namespace of this thread, and starts to work.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn start(config: Config) -> io::Result<Service> {
        let mut ports = Vec::new();
        for number in 0..config.workers {
            ports.push([open(&config, &config.wide, number)?, open(&config, &config.narrow, number)?]);
        }
        let note = reopen::note(&config);
        let offloads =
            ports.last().map_or([Offloads::default(); 2], |ports| ports.each_ref().map(|it| it.offloads()));
        let places = places(&config, note.is_none())?;
        let seized = Arc::new(Mutex::new(Seized::default()));
        let reopening = |end| Reopening::new(&config, end, Arc::clone(&seized)).map(Arc::new);
        let reopenings = [reopening(0)?, reopening(1)?];
        let mut service = Service { config, offloads, crew: Vec::new(), note, seized };
        for ((number, ports), place) in ports.into_iter().enumerate().zip(places) {
            service.crew.push(hire(&service.config, number, ports, place, reopenings.clone())?);
        }
        reopen::locked(&service.seized).renew(&service.config)?;
        Ok(service)
    }

    /// What whoever started it should hear: that something works otherwise than one would think.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// What it was told.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How things are with every worker.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn snapshots(&self) -> io::Result<Vec<Snapshot>> {
        self.crew.iter().map(|member| member.reins.ask()).collect()
    }

    /// Goes on as another configuration says, which has the same ports, without losing a packet.
    ///
    /// # Errors
    /// The new one has other ports or another number of workers.
    pub fn reload(&mut self, config: Config) -> io::Result<()> {
        if config.role != self.config.role
            || config.wide.port != self.config.wide.port
            || config.narrow.port != self.config.narrow.port
            || config.workers != self.config.workers
        {
            let said = "role, ports and workers cannot change while it runs; restart it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
        }
        let secrets = Secrets::draw()?;
        for member in &self.crew {
            let sides = sides(&config, self.offloads, secrets);
            if !member.reins.give(Order::Replace(Box::new(sides))) {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "a worker has ended"));
            }
        }
        self.config = config;
        Ok(())
    }

    /// Lets go of what is held, and ends.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.crew.iter().for_each(|member| member.reins.stop());
        for member in &mut self.crew {
            if let Some(thread) = member.thread.take() {
                // A worker that panicked has said why.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

/// To the narrow side, to the wide one.
fn sides(config: &Config, [wide, narrow]: [Offloads; 2], secrets: Secrets) -> [Side; 2] {
    [side(config, &config.narrow, narrow, secrets), side(config, &config.wide, wide, secrets)]
}

/// What connects a worker with who tells it what to do, and with its siblings.
type Place = (Reins, Orders, Option<Siblings>);

fn places(config: &Config, is_steered: bool) -> io::Result<Vec<Place>> {
    let (reins, orders): (Vec<_>, Vec<_>) =
        (0..config.workers).map(|_| orders()).collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
    let mut siblings = Vec::new();
    if config.workers > 1 && is_steered {
        siblings = Siblings::of(&reins);
    }
    let mut siblings = siblings.into_iter();
    Ok(reins.into_iter().zip(orders).map(|(reins, orders)| (reins, orders, siblings.next())).collect())
}

fn hire(
    config: &Config,
    number: usize,
    ports: [Box<dyn Port>; 2],
    (reins, orders, siblings): Place,
    reopenings: [Arc<Reopening>; 2],
) -> io::Result<Member> {
    let secrets = Secrets::draw()?;
    let [wide, narrow] = ports;
    let ways = [
        way(config, &config.narrow, narrow.offloads(), secrets),
        way(config, &config.wide, wide.offloads(), secrets),
    ];
    let [at_wide, at_narrow] = links(config, wide.as_ref())?;
    let [wide_again, narrow_again] =
        reopenings.map(|reopening| -> Reopen { Box::new(move || reopening.port(number)) });
    let ends = [
        End::new(wide, at_wide, config.wide.mtu).with_reopen(wide_again),
        End::new(narrow, at_narrow, config.narrow.mtu).with_reopen(narrow_again),
    ];
    let mut worker = Worker::new(Clock::start(), ends, ways, mss(config, secrets), orders).with_siblings(siblings);
    let thread = std::thread::Builder::new()
        .name(format!("{}-{number}", config.name))
        .spawn(move || worker.run())
        .map_err(|error| io::Error::new(error.kind(), format!("cannot start a thread: {error}")))?;
    Ok(Member { reins, thread: Some(thread) })
}
