//! Lowered sizes and their evidence -> violations of the law of sizes.

use super::{Direction, Directions};
use crate::laws::Law;
use crate::net::Net;
use engine::{Event, Gateway as Engine, Toward};

impl Directions {
    /// Checks that no packet size is lowered without evidence. A host repeats data only after a loss. A path is
    /// lowered only if some link is narrower than the gateway's own. ICMP errors return from the packets' side.
    pub(super) fn check_sizes(&mut self, net: &mut Net) {
        net.looked(Law::Sizes);
        let Directions { engine, all, mtus_max, wires_behind, .. } = self;
        let is_spoilt = net.is_spoilt();
        for direction in all.iter_mut() {
            let [shorter, repeats] = direction.news_of_sizes(engine);
            if shorter > repeats && !is_spoilt {
                net.breaks(Law::Sizes, || {
                    format!("{shorter} flows got shorter segments, but only {repeats} packets repeated data")
                });
            }
        }
        let of = |at: usize, event| engine.ledger(at).event(event).packets;
        let count = |event| all.iter().map(|direction| of(direction.at, event)).sum::<u64>();
        let [by_loss, by_icmp] = [count(Event::PathLoweredLoss), count(Event::PathLoweredIcmp)];
        if by_loss + by_icmp == 0 || is_spoilt {
            return;
        }
        let repeats = all.iter().map(|direction| direction.watch.repeat_count).sum::<u64>();
        if by_loss > repeats {
            net.breaks(Law::Sizes, || {
                format!("paths were lowered {by_loss} times by losses, but only {repeats} packets repeated data")
            });
        }
        for direction in all {
            let (by_icmp, errors) = (of(direction.at, Event::PathLoweredIcmp), direction.watch.too_big_count);
            if by_icmp > errors {
                let what =
                    format!("sizes were lowered {by_icmp} times by ICMP errors, but only {errors} errors came");
                net.breaks(Law::Sizes, || what);
            }
            let about = 1 - direction.at.min(1);
            let by_loss = if about == Toward::Narrow.direction() && !net.loses_by_len { by_loss } else { 0 };
            let mtu_max = mtus_max.get(about).copied().unwrap_or(0);
            let behind = wires_behind.get(about).into_iter().flatten();
            let least = behind.map(|wire| net.wires[*wire].least_mtu).min().unwrap_or(0);
            if least >= mtu_max && by_icmp + by_loss > 0 {
                net.breaks(Law::Sizes, || {
                    format!(
                        "a path was lowered {by_loss} times by losses and {by_icmp} times by ICMP errors, but no link \
                         behind has less than {least} bytes, and the gateway's own has {mtu_max}"
                    )
                });
            }
        }
    }
}

impl Direction {
    /// Returns how many flows got shorter segments, and how many packets repeated data, since the last call.
    fn news_of_sizes(&mut self, engine: &Engine) -> [u64; 2] {
        let counts = [engine.ledger(self.at).event(Event::SegmentsShorter).packets, self.watch.repeat_count];
        let before = core::mem::replace(&mut self.watch.size_counts, counts);
        [counts[0] - before[0], counts[1] - before[1]]
    }
}
