//! A configuration in, the sides that it asks for out.

use crate::config::{self, Config, DontFragment, Holding, Role as ConfigRole, SideConfig, Stage};
use crate::orders::Replacement;
use crate::roles::is_beside_kernel;
use crate::worker::Way;
use core::time::Duration;
use engine::{
    ANSWERS_BURST, ANSWERS_PER_SECOND, Answers, Border, Checksums, Coalescer, FLOW_CHARGE, Full, Hold, Identifiers,
    Join, JoinLimits, Joiner, Late, Limits, Mss, Narrowing, Output, Raise, Reassembler, Role, Rules, RunsBy,
    Secret, Side, Switch, Toward, Trains, Widening,
};
use packet::Pool;
use port::Offloads;
use std::sync::mpsc::Sender;

/// What all choices of one process are drawn from: nobody outside can foresee them.
#[derive(Clone, Copy, Debug)]
pub struct Secrets {
    /// Identifiers, and how answers are spread.
    pub seed: Secret,
    /// Places in tables.
    pub table_key: Secret,
}

impl Secrets {
    /// Drawn from the kernel.
    ///
    /// # Errors
    /// The kernel gives nothing that is random.
    pub fn draw() -> std::io::Result<Secrets> {
        let draw = || {
            let mut bytes = [0; 16];
            getrandom::fill(&mut bytes)
                .map_err(|error| std::io::Error::other(format!("cannot draw random numbers: {error}")))?;
            Ok::<_, std::io::Error>(Secret::new(u128::from_ne_bytes(bytes)))
        };
        Ok(Secrets { seed: draw()?, table_key: draw()? })
    }
}

/// The way to a side, as it is configured, by a port that takes these offloads.
pub fn way(config: &Config, toward: Toward, offloads: Offloads, secrets: Secrets) -> Way {
    let pool = Pool::new(pool_limit(config));
    let answers = match config.role {
        // The kernel tells senders itself.
        ConfigRole::WideInterface | ConfigRole::Router => None,
        ConfigRole::Border => Some(Answers::new(
            config.answers_at(answering_end(toward)),
            ANSWERS_PER_SECOND,
            ANSWERS_BURST,
            secrets.seed,
        )),
    };
    let releases_when_idle = of(config, toward).hold == Holding::Burst;
    Way::new(side(config, toward, offloads, secrets), Output::new(pool, answers), releases_when_idle)
}

/// The end by which answers leave about what goes to a side: that which it came in by.
fn answering_end(toward: Toward) -> usize {
    match toward {
        Toward::Narrow => 0,
        Toward::Wide => 1,
    }
}

/// What the pool of each way may take, in bytes.
pub fn pool_limit(config: &Config) -> usize {
    2 * config.limits.memory + POOL_EXTRA
}

/// All that changes in a worker that goes on by this configuration, whose ports take these offloads.
pub fn replacement(
    config: &Config,
    [wide, narrow]: [Offloads; 2],
    secrets: Secrets,
    done: Sender<()>,
) -> Replacement {
    let sides = [(Toward::Narrow, narrow), (Toward::Wide, wide)].map(|(toward, offloads)| {
        (side(config, toward, offloads, secrets), of(config, toward).hold == Holding::Burst)
    });
    Replacement {
        sides,
        mtus: [config.wide.mtu, config.narrow.mtu],
        pool_limit: pool_limit(config),
        answer_from: [Toward::Narrow, Toward::Wide].map(|toward| config.answers_at(answering_end(toward))),
        mss: mss(config, secrets),
        lends: lends(config),
        done,
    }
}

/// A side, as it is configured.
pub fn side(config: &Config, toward: Toward, offloads: Offloads, secrets: Secrets) -> Side {
    let side = of(config, toward);
    let role = match (config.role, toward) {
        (ConfigRole::WideInterface, Toward::Wide) | (ConfigRole::Router, _) if is_beside_kernel(config) => {
            Role::Helper
        }
        (ConfigRole::WideInterface, _) => {
            Role::Source(Identifiers::new(secrets.seed, config.limits.datagram_lifetime))
        }
        (ConfigRole::Router | ConfigRole::Border, _) => Role::Transit,
    };
    let narrowing = Narrowing {
        fill: side.fill,
        segment: unless(config, Stage::Segment, side.segment),
        fragment: unless(config, Stage::Fragment, side.fragment),
        trains: trains(config, toward, unless(config, Stage::Coalesce, Switch::On)),
        checksums: if offloads.checksum { Checksums::Left } else { Checksums::Finished },
        df_cut: (side.df == DontFragment::Cut).then(|| Identifiers::new(secrets.seed, engine::LIFETIME)),
        unknown_len_max: border(config).map_or(u16::MAX, |border| border.unknown_len_max(toward)),
        ..Narrowing::new(side.mtu, role)
    };
    Side { widening: widening(config, side, secrets), narrowing }
}

/// How long the segments of trains leave by a side whose coalescing is left out or not.
pub fn trains(config: &Config, toward: Toward, coalesces: Switch) -> Trains {
    let is_for_own_host = config.role == ConfigRole::WideInterface && toward == Toward::Wide;
    Trains::of(of(config, toward).coalesce.filter(|_| coalesces == Switch::On), is_for_own_host)
}

/// The stages of a side that join, as they are configured.
pub fn widening(config: &Config, side: &SideConfig, secrets: Secrets) -> Widening {
    let Secrets { seed, table_key } = secrets;
    let bytes = config.limits.memory;
    let patience = |join| side.patience_of(join, config.role);
    let whole = [Join::Destination, Join::Hop].into_iter().find(|join| side.joins_as(*join));
    let reassembler = whole.map(|join| {
        let limits = Limits { bytes, patience: patience(join) };
        Reassembler::new(limits, Late::Release { mtu: side.mtu }, seed).with_table_key(table_key)
    });
    let joiner = side.joins_as(Join::Graceful).then(|| {
        let patience = patience(Join::Graceful).unwrap_or(JOIN_PATIENCE);
        let limits = JoinLimits { bytes, patience, full: Full::Pass, runs: RunsBy::Datagram };
        Joiner::new(limits, side.mtu, seed).with_table_key(table_key)
    });
    let coalescer = side.coalesce.map(|mode| {
        let hold = match side.hold {
            Holding::Burst => Hold::Fixed(BURST_MAX),
            Holding::Adaptive => Hold::Adaptive,
            Holding::Fixed(stretch) => Hold::Fixed(stretch),
        };
        let rules = Rules { mode, hold, len_max: side.mtu, longer: side.segment, udp: false };
        Coalescer::new(bytes, rules, side.exempt.clone(), seed).with_table_key(table_key)
    });
    let is_on = |stage| is_on(config, stage);
    Widening {
        joins: side.joins(),
        reassembler: reassembler.filter(|_| is_on(rejoins_by(side))),
        joiner: joiner.filter(|_| is_on(Stage::Join)),
        coalescer: coalescer.filter(|_| is_on(Stage::Coalesce)),
    }
}

/// What remembers the MSS of a border's hosts; none in other roles, and where it is left out.
pub fn mss(config: &Config, secrets: Secrets) -> Option<Mss> {
    let limit = config.limits.flows * FLOW_CHARGE;
    border(config).map(|border| Mss::new(limit, border, secrets.seed).with_table_key(secrets.table_key))
}

/// Are ports to be able to lend flows to the kernel, and to write tags? Each has more descriptors then, and no more go from one
/// process to another at once than those of so many workers.
pub fn can_lend(config: &Config) -> bool {
    config.role == ConfigRole::Border && config.workers <= LENDERS_MAX
}

/// May flows be lent to the kernel, where ports are able to?
pub fn lends(config: &Config) -> bool {
    can_lend(config) && is_on(config, Stage::Lease)
}

fn border(config: &Config) -> Option<Border> {
    let is_border = config.role == ConfigRole::Border && !config.bypass.contains(&Stage::Mss);
    is_border.then_some(Border {
        wide_mtu: config.wide.mtu,
        narrow_mtu: config.narrow.mtu,
        raise: match config.mss.raise {
            config::Raise::Never => Raise::Never,
            config::Raise::BothWays => Raise::BothWays,
            config::Raise::Always => Raise::Always,
        },
        safe_len: config.mss.safe,
    })
}

/// What leaves by this side.
pub fn of(config: &Config, toward: Toward) -> &SideConfig {
    match toward {
        Toward::Wide => &config.wide,
        Toward::Narrow => &config.narrow,
    }
}

/// The stage to which a side's reassembler belongs: where it only serves joining hop by hop, it is part of that.
pub fn rejoins_by(side: &SideConfig) -> Stage {
    if side.joins_as(Join::Destination) || !side.joins_as(Join::Hop) { Stage::Reassemble } else { Stage::Join }
}

fn unless(config: &Config, stage: Stage, switch: Switch) -> Switch {
    if is_on(config, stage) { switch } else { Switch::Off }
}

fn is_on(config: &Config, stage: Stage) -> bool {
    !config.bypass.contains(&stage)
}

/// Pool beyond the limit of what is held, in bytes: packets that came, packets that leave, and what ports keep to receive into.
const POOL_EXTRA: usize = 32 << 20;
/// Workers that may lend flows.
const LENDERS_MAX: usize = 24;
/// Longest wait of a run that is released when its port has nothing more to give: for ports that never come to an end.
const BURST_MAX: Duration = Duration::from_millis(1);
/// How long joining on the way waits for the next fragment (rel:G18).
const JOIN_PATIENCE: Duration = Duration::from_millis(10);
