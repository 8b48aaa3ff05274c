#!/usr/bin/env python3
"""Sections in, what the harnesses make of them compared byte for byte: check.py TARGET.

TARGET is the folder that `build` filled. Every row of systems.tsv whose program is there is asked to `verify` the
sections that fit its condition; each differing result is a line, and the end is 1 if there is any.
"""

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
                if function != case["function"] or not holds(condition, case["keys"]):
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


def holds(condition, keys):
    for word in condition.split() if condition != "-" else []:
        key, sign, value = re.fullmatch(r"(\w+)(<=|>=|=)(\w+)", word).groups()
        if key not in keys:
            continue
        mine = keys[key]
        if not (str(mine) == value if sign == "=" else mine <= int(value) if sign == "<=" else mine >= int(value)):
            return False
    return True


# Sections, each with what must come of it.


def cases():
    yield from reassemble_cases()


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
                    "packets": packets,
                    "compare": lambda out, work, payloads=payloads: same(sorted(out), sorted(payloads)),
                }
    packets, payloads = fragments(dice, 4, 2, 4, at_least=64, order="forward")
    damaged = bytearray(packets[3])
    damaged[-1] ^= 1
    lost = next(payload for payload in payloads if payload.endswith(packets[7][20:]))
    packets[7] = packets[7][:-1] + bytes([packets[7][-1] ^ 1])
    payloads.remove(lost)
    yield {
        "function": "reassemble",
        "work": "checksummed",
        "name": "IPv4, a transport checksum that is wrong",
        "keys": {"datagrams": 4, "pieces": 2},
        "packets": packets,
        "compare": lambda out, work: same(sorted(out), sorted(payloads)),
    }


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
