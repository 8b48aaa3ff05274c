//! Configuration -> the settings of the engine's gateway.
//!
//! The engine reads no configuration files and opens no ports. This module derives the engine's settings from the
//! configuration and from the offloads of the ports.

use crate::commands::{Intakes, Replacement};
use config::{Config, DontFragment, Queueing, Role, SideConfig, Stage};
use engine::{
    Border, Checksums, FairIntake, Gateway, GatewayRole, GatewaySettings, INTAKE_MEMORY, IntakeLimits, Position,
    Raise, Secret, Secrets, SideSettings, SideStage, Toggle, Toward,
};
use packet::Pool;
use port::Offloads;
use std::sync::mpsc::Sender;

/// Draws the random seeds of one process. Other hosts cannot predict the seeds.
///
/// # Errors
/// The kernel returns no random bytes.
pub fn draw_secrets() -> std::io::Result<Secrets> {
    let draw = || {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| std::io::Error::other(format!("cannot draw random numbers: {error}")))?;
        Ok::<_, std::io::Error>(Secret::new(u128::from_ne_bytes(bytes)))
    };
    Ok(Secrets { seed: draw()?, table_key: draw()? })
}

/// Builds the gateway of this configuration. `offloads` contains the offloads of the wide port, then those of the
/// narrow port.
pub fn gateway(config: &Config, offloads: [Offloads; 2], secrets: Secrets) -> Gateway {
    Gateway::new(&settings(config, offloads), secrets, || Pool::new(pool_limit(config)))
}

/// Returns the memory limit of each direction's buffer pool, in bytes.
pub fn pool_limit(config: &Config) -> usize {
    let intake = match config.queueing {
        Queueing::Fifo => 0,
        Queueing::Fair => INTAKE_MEMORY,
    };
    2 * config.limits.memory + POOL_EXTRA + intake
}

/// Builds the intakes of a worker: toward the narrow endpoint, then toward the wide endpoint. `None` if packets are
/// processed in order of arrival.
pub fn intakes(config: &Config, secrets: Secrets) -> Option<Box<Intakes>> {
    let intake = || FairIntake::new(IntakeLimits::default(), secrets.table_key);
    (config.queueing == Queueing::Fair).then(|| Box::new([intake(), intake()]))
}

/// Builds the settings that a running worker adopts on a reload. `offloads` contains the offloads of the wide port,
/// then those of the narrow port. The worker sends a message to `done` after it has adopted the settings.
pub fn replacement(config: &Config, offloads: [Offloads; 2], secrets: Secrets, done: Sender<()>) -> Replacement {
    Replacement {
        settings: settings(config, offloads),
        secrets,
        mtus: [config.wide.mtu, config.narrow.mtu],
        pool_limit: pool_limit(config),
        offloads_flows: offloads_flows(config),
        intakes: intakes(config, secrets),
        done,
    }
}

/// Returns the engine's settings for this configuration, given the offloads of the wide port and of the narrow
/// port.
pub fn settings(config: &Config, [wide, narrow]: [Offloads; 2]) -> GatewaySettings {
    let sides = [(Toward::Narrow, narrow), (Toward::Wide, wide)];
    GatewaySettings {
        sides: sides.map(|(toward, offloads)| side(config, toward, offloads)).into(),
        border: border(config),
        flow_count: config.limits.flows,
    }
}

/// Returns the engine's settings for packets toward this side.
fn side(config: &Config, toward: Toward, offloads: Offloads) -> SideSettings {
    let side = of(config, toward);
    let role = config.role.gateway_role();
    let usual = SideSettings::usual(role, toward, side.mtu);
    let position = match usual.position {
        // A gateway that is not beside a kernel, such as at a TAP device, serves another machine. This host's
        // kernel does not process the machine's packets further. At a wide interface, the machine is the source of
        // the packets.
        Position::Kernel if !config.is_beside_kernel() && role == GatewayRole::WideInterface => Position::Source,
        Position::Kernel if !config.is_beside_kernel() => Position::Transit,
        position => position,
    };
    let is_own_host = role == GatewayRole::WideInterface && toward == Toward::Wide;
    let settings = SideSettings {
        position,
        memory: config.limits.memory,
        policies: side.policies(),
        fragment_timeout: side.timeout.or(usual.fragment_timeout),
        merge_timeout: side.timeout.unwrap_or(usual.merge_timeout),
        coalesce: side.coalesce,
        hold: side.hold,
        exempt: side.exempt.clone(),
        segment_policies: side.segment_policies(),
        route_mtu_max: (side.route_mtu == Toggle::On).then_some(config.wide.mtu),
        segment: side.segment,
        fragment: side.fragment,
        split: side.split,
        checksums: if offloads.checksum { Checksums::Defer } else { Checksums::Complete },
        fragments_df: side.df == DontFragment::Fragment,
        id_lifetime: config.limits.datagram_lifetime,
        // In other roles than border, the kernel sends ICMP errors itself. Errors about packets toward one side are
        // sent by the other side, with an address of that other side.
        icmp_source: (config.role == Role::Border).then(|| config.answers_at(toward.direction())),
        left_out: config.bypass.iter().filter_map(|stage| side_stage(*stage)).collect(),
        ..usual
    };
    settings.with_segment_size_for(is_own_host)
}

/// Returns the engine's name of a stage; `None` for a stage that concerns both sides.
pub fn side_stage(stage: Stage) -> Option<SideStage> {
    match stage {
        Stage::Reassemble => Some(SideStage::Reassemble),
        Stage::Merge => Some(SideStage::Merge),
        Stage::Coalesce => Some(SideStage::Coalesce),
        Stage::Segment => Some(SideStage::Segment),
        Stage::Fragment => Some(SideStage::Fragment),
        Stage::Mss | Stage::FlowOffload => None,
    }
}

/// Whether ports are opened with flow offload and with VLAN tag writing. Both need more descriptors per port. The
/// kernel limits the number of descriptors in one message between processes. So both require at most 24 workers.
pub fn can_offload(config: &Config) -> bool {
    config.role == Role::Border && config.workers <= OFFLOAD_WORKERS_MAX
}

/// Whether the configuration allows flow offload. The ports must also support it.
pub fn offloads_flows(config: &Config) -> bool {
    can_offload(config) && !config.bypass.contains(&Stage::FlowOffload)
}

fn border(config: &Config) -> Option<Border> {
    let is_border = config.role == Role::Border && !config.bypass.contains(&Stage::Mss);
    is_border.then_some(Border {
        wide_mtu: config.wide.mtu,
        narrow_mtu: config.narrow.mtu,
        raise: match config.mss.raise {
            config::Raise::Never => Raise::Never,
            config::Raise::BothWays => Raise::BothWays,
            config::Raise::Always => Raise::Always,
        },
        safe_len: config.mss.safe,
        acks: config.acks,
        ack_store: config.limits.ack_store,
    })
}

/// Returns the configuration of the side toward which packets are sent.
fn of(config: &Config, toward: Toward) -> &SideConfig {
    match toward {
        Toward::Wide => &config.wide,
        Toward::Narrow => &config.narrow,
    }
}

/// Size of a buffer pool in addition to the memory limit, in bytes. This additional memory is for received packets,
/// packets to be sent and the receive buffers of ports.
const POOL_EXTRA: usize = 32 << 20;
/// Largest worker count with which flow offload is possible.
const OFFLOAD_WORKERS_MAX: usize = 24;
