#!/usr/bin/env python3
"""Sections in, what the harnesses make of them compared byte for byte: check.py TARGET.

TARGET is the folder that `build` filled. Every row of systems.tsv whose program is there is asked to `verify` the
sections that fit its condition; each differing result is a line, and the end is 1 if there is any.
"""

import operator
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

SEED = 22
TCP, UDP, FRAGMENT = 6, 17, 44


def main(target):
    folder = pathlib.Path(__file__).resolve().parent
    rows = [line.split("\t") for line in (folder / "systems.tsv").read_text().splitlines()]
    wrong = asked = 0
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases():
            section = pathlib.Path(scratch, "section")
            section.write_bytes(pack(case["packets"]))
            for system, function, work, condition, command in rows:
                facts = {"version": 4} | case.get("facts", {}) | case["keys"]
                if function != case["function"] or not holds(condition, facts):
                    continue
                if case.get("work", work) != work:
                    continue
                program = target / command.split()[0]
                if not program.exists():
                    continue
                name = f"{system}, {function} {work}, {case['name']}"
                asked += 1
                why = ask([program, *command.split()[1:]], function, work, section, case)
                if why:
                    wrong += 1
                    print(f"{name}: {why}")
    print(f"{asked} results compared, {wrong} wrong")
    return 1 if wrong or not asked else 0


def ask(command, function, work, section, case):
    """What is wrong with the second of two sections, or None; the ring of two is filled again before it."""
    out = section.with_name("out")
    keys = [f"{key}={value}" for key, value in case["keys"].items()]
    arguments = [f"function={function}", f"work={work}", f"file={section}", f"out={out}", "ring=2", "pages=small"]
    run = subprocess.run([*command, *arguments, *keys], input="run 0\nverify\nquit\n", capture_output=True, text=True)
    lines = run.stdout.splitlines()
    if lines and lines[0].startswith("cannot"):
        return None if case.get("cannot") else lines[0]
    if len(lines) != 3 or not lines[0].startswith("ready\t") or run.returncode != 0:
        return f"says {lines[:3]} {run.stderr.strip()[:200]}, ends with {run.returncode}"
    if function == "parse":
        return None if lines[2] == f"done\t{len(case['packets'])}" else lines[2]
    return case["compare"](unpack(out.read_bytes()), work)


def holds(condition, facts):
    relations = {"<=": operator.le, ">=": operator.ge, ">": operator.gt, "=": operator.eq}
    for word in condition.split() if condition != "-" else []:
        fact, relation, value = re.fullmatch(r"(\w+)(<=|>=|>|=)(\w+)", word).groups()
        if not relations[relation](facts[fact], int(value) if value.isdigit() else value):
            return False
    return True


# Sections, each with what must come of it.


def cases():
    yield from reassemble_cases()
    yield from fragment_cases()
    yield from coalesce_cases()
    yield from segment_cases()
    yield from checksum_cases()
    yield from parse_cases()


def reassemble_cases():
    dice = random.Random(SEED)
    for version in (4, 6):
        for pieces, datagrams in ((2, 1), (2, 64), (6, 1), (6, 64), (6, 1024), (44, 1), (44, 5)):
            for order in ("forward", "reverse", "random"):
                if datagrams == 1024 and order != "random":
                    continue
                packets, payloads = fragments(dice, version, pieces, datagrams, at_least=128, order=order)
                yield {
                    "function": "reassemble",
                    "name": f"IPv{version}, {pieces} × {datagrams}, {order}",
                    "keys": {"datagrams": datagrams, "pieces": pieces},
                    "facts": {"version": version},
                    "packets": packets,
                    "compare": lambda out, work, payloads=payloads: same(sorted(out), sorted(payloads)),
                }
    packets, payloads = fragments(dice, 4, 2, 4, at_least=64, order="forward")
    payloads.remove(packets[3][20:] + packets[7][20:])
    packets[7] = packets[7][:-1] + bytes([packets[7][-1] ^ 1])
    yield {
        "function": "reassemble",
        "work": "checksummed",
        "name": "IPv4, a transport checksum that is wrong",
        "keys": {"datagrams": 4, "pieces": 2},
        "packets": packets,
        "compare": lambda out, work: same(sorted(out), sorted(payloads)),
    }


def fragment_cases():
    dice = random.Random(SEED)
    for version in (4, 6):
        for length in (1501, 9000, 65000):
            packets, pieces = [], []
            for number in range(1, 6):
                head = 20 if version == 4 else 40
                payload = udp(dice, version, number, length - head)
                packets.append(ipv4(UDP, payload, identification=number) if version == 4 else ipv6(UDP, payload))
                size = (1500 - 20 if version == 4 else 1500 - 48) // 8 * 8
                for at in range(0, len(payload), size):
                    more = at + size < len(payload)
                    pieces.append(fragment(version, number, payload[at : at + size], at, more))
            yield {
                "function": "fragment",
                "name": f"IPv{version}, {length} to 1500",
                "keys": {"mtu": 1500},
                "facts": {"version": version},
                "packets": packets,
                "compare": lambda out, work, pieces=pieces: same([unnamed(p) for p in out], [unnamed(p) for p in pieces])
                or names_differ(out),
            }


def unnamed(packet):
    """An IPv6 fragment without its identification, which is whatever the sender chose."""
    return packet[:44] + packet[48:] if packet[0] >> 4 == 6 else packet


def names_differ(pieces):
    """Fragments of one packet have one identification, and others another."""
    names = [packet[44:48] if packet[0] >> 4 == 6 else packet[4:6] for packet in pieces]
    firsts = [name for name, packet in zip(names, pieces) if place_of(packet) == 0]
    if len(set(firsts)) != len(firsts):
        return "two packets have one identification"
    number = -1
    for name, packet in zip(names, pieces):
        number += place_of(packet) == 0
        if name != firsts[number]:
            return "a packet has two identifications"
    return None


def place_of(packet):
    at = 42 if packet[0] >> 4 == 6 else 6
    (place,) = struct.unpack_from("!H", packet, at)
    return place & 0xFFF8 if at == 42 else (place & 0x1FFF) * 8


def coalesce_cases():
    dice = random.Random(SEED)
    for hold in ("burst", "section"):
        for flows, rounds in ((1, 200), (8, 24), (64, 5)):
            for swaps in (0, 5):
                packets, streams = segments_of_flows(dice, flows, rounds, swaps)
                in_order = not swaps and (flows < 64 or hold == "section")
                yield {
                    "function": "coalesce",
                    "name": f"{flows} flows, {hold}, {swaps} swapped",
                    "keys": {"flows": flows, "burst": 64, "len_max": 65535, "hold": hold},
                    "packets": packets,
                    "compare": lambda out, work, streams=streams, fewer=len(packets) // 2 if in_order else len(packets): (
                        trains_are_wrong(out, streams, fewer)
                    ),
                }
    packets, streams = segments_of_flows(dice, 2, 30, 0)
    packets[7] = packets[7][:-1] + bytes([packets[7][-1] ^ 1])
    key = (struct.unpack_from("!H", packets[7], 20)[0], struct.unpack_from("!I", packets[7], 24)[0])
    yield {
        "function": "coalesce",
        "work": "checksummed",
        "name": "a TCP checksum that is wrong",
        "keys": {"flows": 2, "burst": 64, "len_max": 65535, "hold": "burst"},
        "packets": packets,
        "compare": lambda out, work: trains_are_wrong(out, streams, 10, lost=key),
    }


def segments_of_flows(dice, flows, rounds, swaps):
    """Segments of TCP with timestamps, flows in turn, and each flow's stream by its port."""
    size, packets, streams = 1448, [], {}
    for flow in range(flows):
        streams[1024 + flow] = (dice.randrange(1 << 32), dice.randbytes(rounds * size))
    order = [(flow, turn) for turn in range(rounds) for flow in range(flows)]
    for _ in range(swaps):
        at = dice.randrange(len(order) - flows)
        order[at], order[at + flows] = order[at + flows], order[at]
    for flow, turn in order:
        first, stream = streams[1024 + flow]
        at = turn * size
        packets.append(tcp4(1024 + flow, first + at, 0x10, stream[at : at + size], identification=turn))
    return packets, streams


def trains_are_wrong(trains, streams, at_most, lost=None):
    """Every byte of each stream once, in its place, under an IPv4 header that is right; no more trains than that."""
    held = {port: {} for port in streams}
    for index, train in enumerate(trains):
        if struct.unpack_from("!H", train, 2)[0] != len(train) or internet_checksum(train[:20]):
            return f"the IPv4 header of result {index} is wrong"
        port, sequence = struct.unpack_from("!H", train, 20)[0], struct.unpack_from("!I", train, 24)[0]
        held[port][(sequence - streams[port][0]) & 0xFFFFFFFF] = train[20 + (train[32] >> 4) * 4 :]
    for port, (first, stream) in streams.items():
        at = 0
        while at < len(stream):
            if lost == (port, (first + at) & 0xFFFFFFFF):
                at += 1448
                continue
            part = held[port].pop(at, None)
            if part is None or part != stream[at : at + len(part)]:
                return f"the stream of port {port} is wrong at byte {at}"
            at += len(part)
        if held[port]:
            return f"the stream of port {port} came more than once"
    return None if len(trains) <= at_most else f"{len(trains)} results, {at_most} or fewer wanted"


def segment_cases():
    dice = random.Random(SEED)
    for segment in (1448, 8948):
        packets, segments = [], []
        for number in range(6):
            data = dice.randbytes((45 if segment == 1448 else 7) * segment - number)
            sequence = (number << 24) + 0xFFFF00
            packets.append(tcp4(1024, sequence, 0x18, data, identification=number * 64))
            for index, at in enumerate(range(0, len(data), segment)):
                last = at + segment >= len(data)
                part = data[at : at + segment]
                flags = 0x18 if last else 0x10
                segments.append(tcp4(1024, sequence + at, flags, part, identification=number * 64 + index))
        yield {
            "function": "segment",
            "name": f"to {segment}",
            "keys": {"segment": segment},
            "packets": packets,
            "compare": lambda out, work, segments=segments: same(
                *[[p if work == "checksummed" else p[:36] + p[38:] for p in packets] for packets in (out, segments)]
            ),
        }


def checksum_cases():
    dice = random.Random(SEED)
    strings = [dice.randbytes(length) for length in (1, 2, 20, 63, 64, 65, 576, 1460, 9000, 64000, 65535)]
    strings += [bytes(40), b"\xff" * 40]
    yield {
        "function": "checksum",
        "name": "1 to 65535 bytes",
        "keys": {},
        "packets": strings,
        "compare": lambda out, work: same(out, [struct.pack("!H", internet_checksum(string)) for string in strings]),
    }


def parse_cases():
    dice = random.Random(SEED)
    packets = []
    for number in range(64):
        packets.append(tcp4(1024, number, 0x10, dice.randbytes(1400)))
        packets.append(ipv4(UDP, udp(dice, 4, number, 1400)))
        packets.append(ipv6(UDP, udp(dice, 6, number, 1400)))
    yield {"function": "parse", "name": "both versions", "keys": {}, "packets": packets}


def tcp4(port, sequence, flags, data, identification=0):
    options = bytes([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2])
    header = struct.pack("!HHIIBBHHH", port, 443, sequence & 0xFFFFFFFF, 7, 8 << 4, flags, 500, 0, 0) + options
    checksum = internet_checksum(pseudo(4, TCP, len(header) + len(data)) + header + data)
    upper = header[:16] + struct.pack("!H", checksum) + header[18:] + data
    return ipv4(TCP, upper, identification=identification)


def fragments(dice, version, pieces, datagrams, at_least, order):
    """Rounds of so many interleaved UDP datagrams, and their payloads behind the IP headers."""
    size = 1480 if version == 4 else 1448
    packets, payloads, number = [], [], 0
    while len(packets) < at_least:
        round_ = []
        for _ in range(datagrams):
            number += 1
            payload = udp(dice, version, number, pieces * size - dice.randrange(size // 8 - 1) * 8 - dice.randrange(8))
            payloads.append(payload)
            parts = [payload[at : at + size] for at in range(0, len(payload), size)]
            built = [
                fragment(version, number, part, index * size, index + 1 < len(parts)) for index, part in enumerate(parts)
            ]
            if order == "reverse":
                built.reverse()
            elif order == "random":
                dice.shuffle(built)
            round_.append(built)
        packets += [built[index] for index in range(pieces) for built in round_]
    return packets, payloads


def fragment(version, number, part, place, more):
    if version == 4:
        return ipv4(UDP, part, identification=number, place=place // 8 | more << 13)
    extension = struct.pack("!BBHI", UDP, 0, place | more, number)
    return ipv6(FRAGMENT, extension + part)


def udp(dice, version, number, length):
    data = dice.randbytes(length - 8)
    header = struct.pack("!HHHH", 1024 + number % 60000, 4789, length, 0)
    checksum = internet_checksum(pseudo(version, UDP, length) + header + data) or 0xFFFF
    return header[:6] + struct.pack("!H", checksum) + data


# Headers.

SOURCE4, TARGET4 = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
SOURCE6, TARGET6 = bytes([0xFD] + [0] * 14 + [1]), bytes([0xFD] + [0] * 14 + [2])


def ipv4(protocol, payload, identification=0, place=0, ttl=64):
    length = 20 + len(payload)
    header = struct.pack("!BBHHHBBH", 0x45, 0, length, identification & 0xFFFF, place, ttl, protocol, 0)
    header += SOURCE4 + TARGET4
    return header[:10] + struct.pack("!H", internet_checksum(header)) + header[12:] + payload


def ipv6(protocol, payload):
    return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + SOURCE6 + TARGET6 + payload


def pseudo(version, protocol, length):
    if version == 4:
        return SOURCE4 + TARGET4 + struct.pack("!HH", protocol, length)
    return SOURCE6 + TARGET6 + struct.pack("!II", length, protocol)


def internet_checksum(data):
    """RFC 1071: the complement of the ones' complement sum."""
    total = int.from_bytes(data + bytes(len(data) % 2), "big") % 0xFFFF
    return 0xFFFF ^ (total if total or not any(data) else 0xFFFF)


# Files of packets, and their comparison.


def pack(packets):
    return b"".join([b"WLBENCH1", struct.pack("<I", len(packets))] + [struct.pack("<I", len(p)) + p for p in packets])


def unpack(file):
    assert file[:8] == b"WLBENCH1", "no file of packets"
    (count,) = struct.unpack_from("<I", file, 8)
    packets, at = [], 12
    for _ in range(count):
        (length,) = struct.unpack_from("<I", file, at)
        packets.append(file[at + 4 : at + 4 + length])
        at += 4 + length
    assert at == len(file), "bytes behind the last packet"
    return packets


def same(got, wanted):
    if len(got) != len(wanted):
        return f"{len(got)} results, {len(wanted)} wanted"
    for index, (one, other) in enumerate(zip(got, wanted)):
        if one != other:
            at = next((at for at, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))
            return f"result {index} differs at byte {at}; {len(one)} bytes, {len(other)} wanted"
    return None


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("check.py TARGET")
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
