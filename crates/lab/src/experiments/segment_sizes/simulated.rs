//! A system and a path -> the goodput of a simulated TCP flow, with every byte verified.

use super::{Goodput, Path, RATE, SizingSystem, queue_len};
use crate::experiments::Spread;
use engine::Event;
use sim::{Scene, Simulation};

/// Returns the goodput of a system, and adds broken laws to `faults`.
pub(super) fn goodput(system: SizingSystem, path: Path, seeds: u64, faults: &mut Vec<String>) -> Goodput {
    let (mut mbits, mut fragmented, mut changes, mut bytes) = (Vec::new(), 0, [0; 2], 0);
    for seed in 1..=seeds {
        let scene = match scene(system, path, seed).parse::<Scene>() {
            Ok(scene) => Scene { seed, ..scene },
            Err(wrong) => panic!("a scene of our own is right: {wrong}"),
        };
        let scene = with_seed(scene, seed);
        let outcome = Simulation::new(&scene).run();
        let Some(flow) = outcome.flows.first() else { continue };
        if let Some(broken) = &outcome.broken {
            faults.push(format!("{path}, {}, seed {seed}: {broken:?}", system.name()));
        }
        if flow.arrived_len < flow.sent || flow.sent == 0 {
            faults.push(format!("{path}, {}, seed {seed}: {} bytes arrived", system.name(), flow.arrived_len));
            continue;
        }
        mbits.push(flow.arrived_len as f64 * 8.0 / flow.stretch.as_secs_f64() / 1e6);
        bytes += flow.arrived_len;
        let count = |event| outcome.hits.events.get(event as usize).copied().unwrap_or(0);
        fragmented += count(Event::SuperFragmented);
        changes[0] += count(Event::SegmentsShorter);
        changes[1] += count(Event::SegmentsLonger);
    }
    Goodput {
        system: system.name(),
        mbits: Spread::of(mbits),
        fragmented_per_megabyte: (bytes > 0).then(|| fragmented as f64 * 1e6 / bytes as f64),
        changes: Some(changes),
    }
}

/// Gives each link other losses for each seed.
fn with_seed(mut scene: Scene, seed: u64) -> Scene {
    for link in &mut scene.topology.links {
        for shape in &mut link.shapes {
            shape.seed ^= seed << 32;
        }
    }
    scene
}

/// Returns the network of a system, with one flow. Its length differs with the seed. Otherwise, without random loss,
/// each transfer would end at the same phase of congestion avoidance, perhaps with a loss of its last packet.
fn scene(system: SizingSystem, path: Path, seed: u64) -> String {
    let Path { trip, loss, algorithm, wide_mtu } = path;
    let shape = format!("delay={}us,rate={RATE},queue={}B,loss={loss}", trip.as_micros() / 2, queue_len(trip));
    let host = |name: &str| format!("[[node]]\nname = \"{name}\"\nkind = \"host\"\n");
    let gateway = |name: &str, kind: &str, wide: &str, more: &str| {
        format!("[[node]]\nname = \"{name}\"\nkind = \"{kind}\"\nwide = \"{wide}\"\n{more}")
    };
    let link = |ends: [&str; 2], mtu: u16, shape: &str| {
        let [one, other] = ends;
        format!("[[link]]\nends = [\"{one}\", \"{other}\"]\nmtu = {mtu}\nshape = \"{shape}\"\n")
    };
    let mut text = host("sender") + &host("receiver");
    match system {
        SizingSystem::Ordinary => text += &link(["sender", "receiver"], LINK_MTU, &shape),
        SizingSystem::EndToEnd => text += &link(["sender", "receiver"], wide_mtu, &shape),
        SizingSystem::Border => {
            text += &gateway("border", "border", "sender", "");
            text += &link(["sender", "border"], wide_mtu, FAST);
            text += &link(["border", "receiver"], LINK_MTU, &shape);
        }
        SizingSystem::Policy(policy) => {
            let policy = format!("segment-policy = \"{}\"\n", policy.name());
            text += &gateway("near", "wide-interface", "sender", &policy);
            text += &gateway("far", "wide-interface", "receiver", &policy);
            text += &link(["sender", "near"], wide_mtu, FAST);
            text += &link(["near", "far"], LINK_MTU, &shape);
            text += &link(["far", "receiver"], wide_mtu, FAST);
        }
    }
    let bytes = transfer_len(loss) * (100 + 3 * (seed % 10)) / 100;
    let algorithm = algorithm.name();
    text + &format!(
        "[[flow]]\nfrom = \"sender\"\nto = \"receiver\"\nkind = \"tcp\"\nbytes = {bytes}\ncongestion = \"{algorithm}\"\n"
    )
}

/// Bytes of a transfer, in which several losses happen, and slow start matters little.
fn transfer_len(loss: f64) -> u64 {
    match loss {
        _ if loss > 5e-3 => 4_000_000,
        _ if loss > 5e-4 => 20_000_000,
        _ => 60_000_000,
    }
}

const LINK_MTU: u16 = 1_500;
/// Shape of the links between hosts and their gateways.
const FAST: &str = "delay=10us,rate=10G";
