//! A configuration in, the engine's gateway that it asks for out.

use crate::commands::Replacement;
use config::{Config, DontFragment, Role, SideConfig, Stage};
use engine::{
    Border, Checksums, Gateway, GatewayRole, GatewaySettings, Position, Raise, Secret, Secrets, SideSettings,
    SideStage, Toward,
};
use packet::Pool;
use port::Offloads;
use std::sync::mpsc::Sender;

/// What all choices of one process are drawn from: nobody outside can foresee them.
///
/// # Errors
/// The kernel gives nothing that is random.
pub fn draw_secrets() -> std::io::Result<Secrets> {
    let draw = || {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| std::io::Error::other(format!("cannot draw random numbers: {error}")))?;
        Ok::<_, std::io::Error>(Secret::new(u128::from_ne_bytes(bytes)))
    };
    Ok(Secrets { seed: draw()?, table_key: draw()? })
}

/// The gateway that is configured, between a wide port and a narrow one that take these offloads.
pub fn gateway(config: &Config, offloads: [Offloads; 2], secrets: Secrets) -> Gateway {
    Gateway::new(&settings(config, offloads), secrets, || Pool::new(pool_limit(config)))
}

/// What the pool of each direction may take, in bytes.
pub fn pool_limit(config: &Config) -> usize {
    2 * config.limits.memory + POOL_EXTRA
}

/// All that changes in a worker that goes on by this configuration, whose ports take these offloads.
pub fn replacement(config: &Config, offloads: [Offloads; 2], secrets: Secrets, done: Sender<()>) -> Replacement {
    Replacement {
        settings: settings(config, offloads),
        secrets,
        mtus: [config.wide.mtu, config.narrow.mtu],
        pool_limit: pool_limit(config),
        offloads_flows: offloads_flows(config),
        done,
    }
}

/// What is configured, for a wide port and a narrow one that take these offloads.
pub fn settings(config: &Config, [wide, narrow]: [Offloads; 2]) -> GatewaySettings {
    let sides = [(Toward::Narrow, narrow), (Toward::Wide, wide)];
    GatewaySettings {
        sides: sides.map(|(toward, offloads)| side(config, toward, offloads)).into(),
        border: border(config),
        flow_count: config.limits.flows,
    }
}

/// What is done to packets that leave by this side, as it is configured.
fn side(config: &Config, toward: Toward, offloads: Offloads) -> SideSettings {
    let side = of(config, toward);
    let stand = config.role.stand();
    let usual = SideSettings::usual(stand, toward, side.mtu);
    let position = match usual.position {
        // A machine behind a TAP is the host, and there is no kernel that goes on with its packets.
        Position::Kernel if !config.is_beside_kernel() && stand == GatewayRole::WideInterface => Position::Source,
        Position::Kernel if !config.is_beside_kernel() => Position::Transit,
        position => position,
    };
    let is_own_host = stand == GatewayRole::WideInterface && toward == Toward::Wide;
    let settings = SideSettings {
        position,
        memory: config.limits.memory,
        joins: side.joins(),
        fragment_patience: side.patience.or(usual.fragment_patience),
        join_patience: side.patience.unwrap_or(usual.join_patience),
        coalesce: side.coalesce,
        hold: side.hold,
        exempt: side.exempt.clone(),
        segment: side.segment,
        fragment: side.fragment,
        fill: side.fill,
        checksums: if offloads.checksum { Checksums::Defer } else { Checksums::Complete },
        cuts_df: side.df == DontFragment::Fragment,
        id_lifetime: config.limits.datagram_lifetime,
        // The kernel tells senders itself, but at a border. About what goes to a side, errors leave by the other
        // one.
        answer_from: (config.role == Role::Border).then(|| config.answers_at(toward.direction())),
        left_out: config.bypass.iter().filter_map(|stage| side_stage(*stage)).collect(),
        ..usual
    };
    settings.with_segment_size_for(is_own_host)
}

/// The engine's name of a stage; none where it is about both sides.
pub fn side_stage(stage: Stage) -> Option<SideStage> {
    match stage {
        Stage::Reassemble => Some(SideStage::Reassemble),
        Stage::Join => Some(SideStage::Join),
        Stage::Coalesce => Some(SideStage::Coalesce),
        Stage::Segment => Some(SideStage::Segment),
        Stage::Fragment => Some(SideStage::Fragment),
        Stage::Mss | Stage::Lease => None,
    }
}

/// Are ports to be able to lend flows to the kernel, and to write tags? Each has more descriptors then, and no more
/// go from one process to another at once than those of so many workers.
pub fn can_offload(config: &Config) -> bool {
    config.role == Role::Border && config.workers <= LENDERS_MAX
}

/// May flows be lent to the kernel, where ports are able to?
pub fn offloads_flows(config: &Config) -> bool {
    can_offload(config) && !config.bypass.contains(&Stage::Lease)
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
    })
}

/// What leaves by this side.
fn of(config: &Config, toward: Toward) -> &SideConfig {
    match toward {
        Toward::Wide => &config.wide,
        Toward::Narrow => &config.narrow,
    }
}

/// Pool beyond the limit of what is held, in bytes: packets that came, packets that leave, and what ports keep to
/// receive into.
const POOL_EXTRA: usize = 32 << 20;
/// Workers that may lend flows.
const LENDERS_MAX: usize = 24;
