//! A configuration in, workers that run out: in this process, on ports that this thread may open.

use crate::build::{Secrets, mss, side, way};
use crate::config::Config;
use crate::orders::{Order, Reins, orders};
use crate::roles::{Seized, links};
use crate::snapshot::Snapshot;
use crate::worker::{End, Worker};
use engine::{Side, Switch, Toward};
use port::clock::Clock;
use port::{Offloads, Options, Port};
use std::io;
use std::thread::JoinHandle;

/// A gateway that runs in this process.
#[derive(Debug)]
pub struct Service {
    config: Config,
    offloads: [Offloads; 2],
    crew: Vec<Member>,
    _seized: Seized,
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
        let mut crew = Vec::new();
        let mut offloads = [Offloads::default(); 2];
        for number in 0..config.workers {
            let ports = open(&config, number)?;
            offloads = [ports[0].offloads(), ports[1].offloads()];
            crew.push(hire(&config, number, ports)?);
        }
        let _seized = Seized::start(&config)?;
        Ok(Service { config, offloads, crew, _seized })
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

    /// What asks the workers, and tells them.
    pub fn reins(&self) -> Vec<Reins> {
        self.crew.iter().map(|member| member.reins.clone()).collect()
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
    [side(config, Toward::Narrow, narrow, secrets), side(config, Toward::Wide, wide, secrets)]
}

fn open(config: &Config, _number: usize) -> io::Result<[Box<dyn Port>; 2]> {
    let open = |side: &crate::config::SideConfig| {
        let offloads = match side.offloads {
            Switch::On => Options::default().offloads,
            Switch::Off => Offloads::default(),
        };
        port::open(&side.port, &Options { mtu: Some(side.mtu.into()), offloads, ..Options::default() })
    };
    Ok([open(&config.wide)?, open(&config.narrow)?])
}

fn hire(config: &Config, number: usize, ports: [Box<dyn Port>; 2]) -> io::Result<Member> {
    let secrets = Secrets::draw()?;
    let (reins, orders) = orders()?;
    let [wide, narrow] = ports;
    let ways = [
        way(config, Toward::Narrow, narrow.offloads(), secrets),
        way(config, Toward::Wide, wide.offloads(), secrets),
    ];
    let [at_wide, at_narrow] = links(config, wide.as_ref())?;
    let ends = [End::new(wide, at_wide, config.wide.mtu), End::new(narrow, at_narrow, config.narrow.mtu)];
    let mut worker = Worker::new(Clock::start(), ends, ways, mss(config, secrets), orders);
    let thread = std::thread::Builder::new()
        .name(format!("{}-{number}", config.name))
        .spawn(move || worker.run())
        .map_err(|error| io::Error::new(error.kind(), format!("cannot start a thread: {error}")))?;
    Ok(Member { reins, thread: Some(thread) })
}
