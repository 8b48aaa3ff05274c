#!/usr/bin/env python3
"""Harnesses in, right or wrong out: check.py TARGET SYSTEMS.TSV [PROGRAM]

Gives every row of a systems.tsv small files of packets that fit its condition, and compares what the harness in
TARGET writes, byte for byte, before and after a short run. Always the same packets. It measures nothing.
"""

import itertools
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

# Source and destination, by version.
ADDRESSES = {4: (b"\x0a\0\0\1", b"\x0a\0\0\2"), 6: (b"\xfd" + bytes(14) + b"\1", b"\xfd" + bytes(14) + b"\2")}
TCP, UDP = 6, 17


# Packets.


def checksum(data):
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def transport_sum(version, protocol, data, addresses=None):
    source, destination = addresses or ADDRESSES[version]
    return checksum(source + destination + struct.pack("!IHBB", len(data), 0, 0, protocol) + data)


def ip(version, protocol, payload, ident=0, offset=0, more=False, df=False):
    source, destination = ADDRESSES[version]
    if version == 6:
        if more or offset:
            payload = struct.pack("!BBHI", protocol, 0, offset | more, ident) + payload
            protocol = 44
        return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + source + destination + payload
    flags = offset // 8 | more << 13 | df << 14
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), ident & 0xFFFF, flags, 64, protocol, 0)
    head += source + destination
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def udp(version, source_port, payload):
    head = struct.pack("!HHHH", source_port, 4242, 8 + len(payload), 0)
    total = transport_sum(version, UDP, head + payload) or 0xFFFF
    return head[:6] + struct.pack("!H", total) + payload


def tcp(version, source_port, sequence, payload, flags=0x10):
    head = struct.pack("!HHIIBBHHH", source_port, 443, sequence & 0xFFFFFFFF, 7, 0x80, flags, 4096, 0, 0)
    head += bytes([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2])
    total = transport_sum(version, TCP, head + payload)
    return head[:16] + struct.pack("!H", total) + head[18:] + payload


def noise(length, *seed):
    return random.Random(repr(seed)).randbytes(length)


class Parsed:
    """An IP packet taken apart; raises ValueError if its lengths are wrong."""

    def __init__(self, packet):
        self.version = packet[0] >> 4
        if self.version == 4:
            head = (packet[0] & 15) * 4
            if struct.unpack_from("!H", packet, 2)[0] != len(packet):
                raise ValueError(f"total length {struct.unpack_from('!H', packet, 2)[0]}, but {len(packet)} bytes")
            self.ident, flags = struct.unpack_from("!HH", packet, 4)
            self.offset, self.more, self.protocol = (flags & 0x1FFF) * 8, flags >> 13 & 1, packet[9]
            self.addresses = packet[12:16], packet[16:20]
            self.sum_right = checksum(packet[:head]) == 0
        else:
            head = 40
            if struct.unpack_from("!H", packet, 4)[0] + 40 != len(packet):
                raise ValueError(f"payload length {struct.unpack_from('!H', packet, 4)[0]}, but {len(packet)} bytes")
            self.offset, self.more, self.protocol, self.ident = 0, 0, packet[6], None
            self.addresses = packet[8:24], packet[24:40]
            self.sum_right = True
            if self.protocol == 44:
                self.protocol, _, place, self.ident = struct.unpack_from("!BBHI", packet, 40)
                self.offset, self.more, head = place & ~7, place & 1, 48
        self.payload = packet[head:]

    def tcp(self):
        """Ports, sequence number, flags and payload."""
        source, destination, sequence = struct.unpack_from("!HHI", self.payload)
        return (source, destination), sequence, self.payload[13], self.payload[(self.payload[12] >> 4) * 4 :]


# Cases: keys, packets, and what must come out of them.


def reassemble_cases():
    shapes = [(2, 1), (6, 1), (44, 1), (2, 8), (6, 64), (44, 8), (2, 1024)]
    orders = ("forward", "reverse", "random", "repeats")
    for (pieces, datagrams), version, order in itertools.product(shapes, (4, 6), orders):
        if datagrams == 1024 and (version, order) not in ((4, "forward"), (6, "forward"), (4, "random")):
            continue
        packets, whole = [], []
        piece_len = 1480 if version == 4 else 1448
        for ident in range(0, max(datagrams, -(-128 // pieces) // datagrams * datagrams, 1), datagrams):
            group = []
            for at in range(datagrams):
                datagram = udp(version, 1000 + at % 60000, noise(pieces * piece_len - 100 - 8, ident + at, pieces))
                whole.append(datagram)
                group.append([
                    ip(version, UDP, datagram[i : i + piece_len], ident + at + 1, i, i + piece_len < len(datagram))
                    for i in range(0, len(datagram), piece_len)
                ])
            turns = [packet for turn in zip(*group) for packet in turn]
            if order == "reverse":
                turns = [packet for turn in zip(*(each[::-1] for each in group)) for packet in turn]
            if order == "random":
                random.Random(ident).shuffle(turns)
            packets += turns
        if order == "repeats":
            packets = [p for i, packet in enumerate(packets) for p in [packet] * (2 if i % 100 == 50 else 1)]
        keys = {"datagrams": datagrams, "pieces": pieces}
        yield f"IPv{version} {pieces} x {datagrams} {order}", keys, packets, (whole, order)


def reassemble_right(out, expected, keys):
    whole, order = expected
    # After a repeat a system may wait, or lose the datagram, but nothing wrong may come out.
    if order == "repeats":
        missing = [datagram for datagram in out if datagram not in set(whole)]
        return f"{len(missing)} of {len(out)} datagrams were never sent" if missing else None
    return None if sorted(out) == sorted(whole) else differs(sorted(out), sorted(whole))


def fragment_cases():
    for version, length, mtu in itertools.product((4, 6), (9000, 65000), (1500,)):
        payload_len = length - (28 if version == 4 else 48)
        packets = [
            ip(version, UDP, udp(version, 1000 + i, noise(payload_len, length, i)), ident=i + 1) for i in range(8)
        ]
        yield f"IPv{version} {length} to {mtu}", {"mtu": mtu}, packets, packets


def fragment_right(out, expected, keys):
    whole, held, end = [], b"", 0
    for packet in out:
        fragment = Parsed(packet)
        if len(packet) > keys["mtu"] or not fragment.sum_right:
            return f"a fragment of {len(packet)} bytes, header checksum {'right' if fragment.sum_right else 'wrong'}"
        if fragment.offset != len(held):
            return f"a fragment at {fragment.offset}, where {len(held)} was next"
        held += fragment.payload
        if not fragment.more:
            whole.append((fragment.addresses, fragment.protocol, held))
            held = b""
    sent = [(p.addresses, p.protocol, p.payload) for p in map(Parsed, expected)]
    return None if whole == sent and not held else f"{len(whole)} datagrams out of {len(sent)}, or other bytes"


def coalesce_cases():
    ends = ((64, "burst"), (128, "burst"), (64, "section"))
    for flows, version, order, len_max, (burst, hold) in itertools.product(
        (1, 8, 64, 200), (4, 6), ("forward", "swapped"), (9000, 65535), ends
    ):
        count = max(256, flows * 4)
        packets = [
            ip(version, TCP, tcp(version, 1000 + i % flows, i // flows * 1400 - 1400, noise(1400, i, flows)), df=True)
            for i in range(count)
        ]
        if order == "swapped":
            for i in range(50, count - flows, 100):
                packets[i], packets[i + flows] = packets[i + flows], packets[i]
        keys = {"flows": flows, "burst": burst, "len_max": len_max, "hold": hold}
        name = f"IPv{version} {flows} flows {order} len_max={len_max} burst={burst} hold={hold}"
        yield name, keys, packets, packets


def streams(packets):
    flows = {}
    for packet in map(Parsed, packets):
        ports, sequence, _, payload = packet.tcp()
        flows.setdefault((packet.addresses, ports), []).append((sequence + 1400 & 0xFFFFFFFF, payload))
    return {flow: b"".join(payload for _, payload in sorted(pieces)) for flow, pieces in flows.items()}


def coalesce_right(out, expected, keys):
    longest = max(map(len, out), default=0)
    if longest > keys["len_max"]:
        return f"a packet of {longest} bytes"
    return None if streams(out) == streams(expected) else "the streams are not what was sent"


def segment_cases():
    for version, segment in itertools.product((4, 6), (1448, 8948)):
        head = (20 if version == 4 else 40) + 32
        packets = [
            ip(version, TCP, tcp(version, 1000 + i, 0xFFFFF000, noise(65535 - head - i, i), 0x18), ident=i, df=True)
            for i in range(4)
        ]
        yield f"IPv{version} to {segment}", {"segment": segment}, packets, packets


def segment_right(out, expected, keys):
    segments = list(map(Parsed, out))
    for packet in map(Parsed, expected):
        ports, sequence, flags, payload = packet.tcp()
        for at in range(0, len(payload), keys["segment"]):
            if not segments:
                return "segments are missing"
            segment = segments.pop(0)
            last = at + keys["segment"] >= len(payload)
            right = (ports, sequence + at & 0xFFFFFFFF, flags if last else flags & ~0x09)
            if segment.tcp() != (*right, payload[at : at + keys["segment"]]):
                return f"the segment at {at} has another place, flags or payload"
            total = transport_sum(segment.version, TCP, segment.payload, segment.addresses)
            if keys["work"] == "checksummed" and (total or not segment.sum_right):
                return f"the segment at {at} has a wrong checksum"
    return f"{len(segments)} segments too many" if segments else None


def checksum_cases():
    for length in (20, 21, 64, 65, 1460, 65535):
        packets = [noise(length, length, i) for i in range(16)]
        yield f"{length} bytes", {}, packets, [struct.pack("!H", checksum(packet)) for packet in packets]


def parse_cases():
    packets = []
    for i in range(64):
        version = 4 if i % 2 else 6
        payload = noise(100 + i, i)
        if i % 4 < 2:
            packets.append((ip(version, UDP, udp(version, i, payload)), payload))
        else:
            packets.append((ip(version, TCP, tcp(version, i, i, payload)), payload))
    yield "UDP and TCP", {}, [packet for packet, _ in packets], [payload for _, payload in packets]


def same(out, expected, keys):
    return None if out == expected else differs(out, expected)


def differs(out, expected):
    wrong = [i for i, (a, b) in enumerate(zip(out, expected)) if a != b]
    return f"{len(out)} results, {len(expected)} expected" + (f"; number {wrong[0]} differs" if wrong else "")


FUNCTIONS = {
    "reassemble": (reassemble_cases, reassemble_right),
    "fragment": (fragment_cases, fragment_right),
    "coalesce": (coalesce_cases, coalesce_right),
    "segment": (segment_cases, segment_right),
    "checksum": (checksum_cases, same),
    "parse": (parse_cases, same),
}


# Files and harnesses.


def write_packets(path, packets):
    with open(path, "wb") as file:
        file.write(b"WLBENCH1" + struct.pack("<I", len(packets)))
        for packet in packets:
            file.write(struct.pack("<I", len(packet)) + packet)


def read_packets(path):
    with open(path, "rb") as file:
        data = file.read()
    if data[:8] != b"WLBENCH1":
        raise ValueError("what was written does not begin with WLBENCH1")
    (count,), at, packets = struct.unpack_from("<I", data, 8), 12, []
    for _ in range(count):
        (length,) = struct.unpack_from("<I", data, at)
        packets.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    if at != len(data) or any(len(packet) == 0 for packet in packets):
        raise ValueError("what was written is cut off or has empty results")
    return packets


def fits(condition, keys):
    for key, relation, value in re.findall(r"(\w+)(<=|>=|=)(\w+)", condition):
        held = keys.get(key)
        if held is None or relation == "=" and str(held) != value:
            return False
        if relation == "<=" and int(held) > int(value) or relation == ">=" and int(held) < int(value):
            return False
    return True


def try_case(program, keys, folder, expected, right, ring):
    """Nothing if all is right, else what is wrong; a text that begins with `cannot` is neither."""
    out = os.path.join(folder, "out")
    line = program + [f"{key}={value}" for key, value in keys.items()]
    line += [f"file={folder}/in", f"out={out}", f"ring={ring}", f"pages={'huge' if ring > 1 else 'small'}"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as harness:
        said = harness.stdout.readline().rstrip("\n").split("\t")
        if said[0] == "cannot":
            return "cannot: " + said[1]
        if said[0] != "ready" or len(said) != 3:
            return f"it begins with {said}"
        for command in ("verify", "run 2", "verify", "verify"):
            if os.path.exists(out) and command == "verify":
                os.remove(out)
            print(command, file=harness.stdin, flush=True)
            said = harness.stdout.readline().rstrip("\n").split("\t")
            if command == "verify":
                results = read_packets(out)
                if said != ["done", str(len(results))]:
                    return f"verify says {said}, and {len(results)} results are written"
                wrong = right(results, expected, keys)
                if wrong:
                    return wrong
            elif len(said) != 3 or int(said[2]) < 3 or float(said[0]) <= 0 or int(said[1]) != len(results):
                return f"run says {said}, and {len(results)} results were written before"
        print("quit", file=harness.stdin, flush=True)
        if harness.wait(10) != 0:
            return f"it ends with {harness.returncode}"
    counted = subprocess.run(line + ["sections=2"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return f"with sections=2 it ends with {counted.returncode}" if counted.returncode else None


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    target, table, only = sys.argv[1], sys.argv[2], sys.argv[3:]
    with open(table) as file:
        rows = [line.rstrip("\n").split("\t") for line in file if line.strip()]
    bad, cases = False, {}
    for system, function, work, condition, command in rows:
        words = command.split()
        if only and words[0] not in only:
            continue
        if not os.path.exists(os.path.join(target, words[0])):
            print(f"{system}\t{function}\t{work}\tleft out: {words[0]} is not in {target}")
            continue
        make, right = FUNCTIONS[function]
        if function not in cases:
            cases[function] = list(make())
        good, cannot, wrong = 0, {}, []
        for i, (name, keys, packets, expected) in enumerate(cases[function]):
            keys = {"function": function, "work": work, **keys}
            if not fits(condition, keys):
                continue
            with tempfile.TemporaryDirectory() as folder:
                write_packets(os.path.join(folder, "in"), packets)
                try:
                    program = [os.path.join(target, words[0]), *words[1:]]
                    why = try_case(program, keys, folder, expected, right, 1 + i % 3)
                except (ValueError, OSError, IndexError, struct.error) as error:
                    why = f"{type(error).__name__}: {error}"
            if why is None:
                good += 1
            elif why.startswith("cannot"):
                cannot[why] = cannot.get(why, 0) + 1
            else:
                wrong.append(f"    {name}: {why}")
        bad = bad or bool(wrong) or not good
        notes = "".join(f"; {count} {why}" for why, count in cannot.items())
        print(f"{system}\t{function}\t{work}\t{condition}\t{good} right, {len(wrong)} wrong{notes}", *wrong, sep="\n")
    sys.exit(bad)


if __name__ == "__main__":
    main()
