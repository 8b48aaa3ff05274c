#!/usr/bin/env python3
"""Record small capture files of kernel traffic.

Every file next to this script was recorded from the Linux kernel's own stack: it fragmented the datagrams, chose the
identifiers and computed the checksums. The traffic runs over a veth pair between two network namespaces that belong
to this process alone. They have no name and no way out, so they cannot meet anything else, and the kernel removes
them when the process ends, however it ends.

What the kernel does not do by itself (disorder, loss, repeats, tags) is done to the kernel's packets: they are put
on a second link by a packet socket and recorded there.

It does not make the files identical from run to run: times, IPv4 identifiers, TCP sequence numbers and the like
are the kernel's. Payloads, sizes, disorder and losses are the same in every run.

    python3 captures/record.py [--out DIR] [FILE ...]        as root; needs `ip` and `ethtool`
"""

import argparse
import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time


class Refused(Exception):
    """The environment does not allow the recording; the text names the remedy."""


# --- The files, each with the traffic that fills it --------------------------------------------------------------

# Around every edge of an Ethernet MTU: 1,472 fits IPv4, 1,452 fits IPv6; then two, three and four fragments.
SIZES_4 = [1, 8, 1400, 1472, 1473, 1480, 1481, 2952, 2953, 4432, 4433, 65507]
SIZES_6 = [1, 8, 1400, 1452, 1453, 1456, 1457, 2888, 2889, 4336, 4337, 65527]


def udp4_fragments():
    return cut_by_kernel(4, SIZES_4)


def udp6_fragments():
    return cut_by_kernel(6, SIZES_6)


def udp4_mtu576():
    return cut_by_kernel(4, [1, 548, 549, 552, 553, 1472, 4000, 9000], mtu=576)


def udp4_reordered():
    return disordered(4, SIZES_4)


def udp6_reordered():
    return disordered(6, SIZES_6)


def icmp_ping_9000():
    with Link() as link, link.tap(link.b) as tap:
        for version in (4, 6):
            ping(link, version, payload_of("icmp_ping_9000", 9000))
        return check_wire(tap.recorded(), 1500)


def jumbo_udp():
    with Link(mtu=9000) as link, link.tap(link.b) as tap:
        for fragmentation, sizes in ((IP_PMTUDISC_DO, [1473, 8972]), (IP_PMTUDISC_DONT, [4000, 8972, 12000])):
            with link.udp(4) as pair:
                pair.sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, fragmentation)
                pair.carry(sizes)
                if fragmentation == IP_PMTUDISC_DO:
                    pair.expect_too_long(8973)
        with link.udp(6) as pair:
            pair.carry([8952])
        return check_wire(tap.recorded(), 9000)


def tcp_offload():
    """Recorded at the sender, before offloads: GSO packets, incomplete checksums."""
    with Link(offload="on") as link, link.tap(link.a) as tap:
        for version in (4, 6):
            converse(link, version, request_len=18000, answer_len=3000)
        records = tap.recorded()
    assert any(len(r.data) > 1514 and r.checksum_pending for r in records), "the kernel segmented before the link"
    return records


def tcp_bulk():
    """Full-sized segments of a longer stream."""
    with Link() as link, link.tap(link.b) as tap:
        for version in (4, 6):
            converse(link, version, request_len=90000, answer_len=20000)
        return check_wire(tap.recorded(), 1500)


def vlan_fragments():
    """The same identifiers on two VLANs at once, then two tags, then IPv6.

    Only the VLAN tells the first two datagrams apart: a key without the VLAN mixes them.
    """
    first, second, third = (cut_by_kernel(4, [n], seed=n) for n in (3000, 3001, 3002))
    identification = first[0].data[18:20]
    second = [renamed(r.data, identification) for r in second]
    frames = []
    for one, other in zip(first, second, strict=True):
        frames += [tagged(one.data, (0x8100, 100)), tagged(other, (0x8100, 200))]
    frames += [tagged(r.data, (0x88A8, 300), (0x8100, 100)) for r in third]
    frames += [tagged(r.data, (0x8100, 5 << 13 | 100)) for r in cut_by_kernel(6, [3000])]
    with Link(mtu=1508) as link:
        return link.replay(frames)


def ip_options():
    """Options that every fragment repeats (copied) and options of the first alone."""
    record_route = bytes([7, 15, 4]) + bytes(12)
    stamps = bytes([68, 12, 5, 0]) + bytes(8)
    stream_id = bytes([136, 4, 0x12, 0x34])
    router_alert = bytes([148, 4, 0, 0])
    no_operation, end = b"\1", b"\0"
    with Link() as link, link.tap(link.b) as tap:
        for options in (
            record_route + end,
            no_operation * 3 + stream_id + end,
            record_route + no_operation + stream_id,
            router_alert + stamps,
            stream_id + router_alert + record_route + no_operation + stamps,
        ):
            with link.udp(4) as pair:
                pair.sender.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, options)
                pair.carry([3500])
        return check_wire(tap.recorded(), 1500)


def incomplete():
    """Per version: one whole, then first, middle, last fragment missing, then an overlap, each a datagram."""
    frames = []
    for version, move in ((4, moved4), (6, moved6)):
        for case in range(5):
            pieces = [r.data for r in cut_by_kernel(version, [3200 + case], seed=case)]
            assert len(pieces) == 3, "3,200 bytes are three fragments on a 1,500-byte link"
            if case in (1, 2, 3):
                del pieces[case - 1]
            if case == 4:
                # It starts 8 bytes early: it overlaps the first, and leaves the last 8 bytes of its place a hole.
                pieces.insert(1, move(pieces[1], -8))
            frames += pieces
    # The open ports keep b from answering the whole ones with an ICMP error, and show what its kernel makes of it.
    with Link() as link, link.udp(4) as over4, link.udp(6) as over6:
        records = link.replay(frames)
        for pair in (over4, over6):
            pair.expect({payload_of(0, 3200)})
        return records


def sll():
    with Link() as link, link.tap(link.b, socket.SOCK_DGRAM) as tap:
        for version in (4, 6):
            with link.udp(version) as pair:
                pair.carry([1000, 3000])
                pair.answer(2000)
        return check_wire(tap.recorded(), 1500, header_len=0)


def raw():
    """From a TUN, which has no link header at all."""
    with Namespace() as ns, Tun(ns) as tun, Tap(ns, tun.name) as tap:
        for version in (4, 6):
            with ns.socket(FAMILY[version], socket.SOCK_DGRAM) as sender:
                sender.bind((ADDRESS["a"][version], SOURCE_PORT))
                for size in (1000, 3000, 5000):
                    sender.sendto(payload_of("raw", size), (BEHIND_TUN[version], PORT))
        return check_wire(tap.recorded(), 1500, header_len=0)


def both_ends():
    """One link seen from both its ends: two interfaces of one file."""
    with Link() as link, link.tap(link.a) as near, link.tap(link.b) as far:
        for version in (4, 6):
            with link.udp(version) as pair:
                pair.carry([1000, 3000])
        return check_wire(near.recorded(), 1500), check_wire(far.recorded(), 1500)


def files():
    """Name of each file, and what writes it."""
    ethernet = lambda traffic: lambda out: write_pcap(out, ETHERNET, traffic())
    yield "udp4_fragments.pcap", ethernet(udp4_fragments)
    yield "udp6_fragments.pcap", ethernet(udp6_fragments)
    yield "udp4_mtu576.pcap", ethernet(udp4_mtu576)
    yield "udp4_reordered.pcap", ethernet(udp4_reordered)
    yield "udp6_reordered.pcap", ethernet(udp6_reordered)
    yield "icmp_ping_9000.pcap", ethernet(icmp_ping_9000)
    yield "jumbo_udp.pcap", ethernet(jumbo_udp)
    yield "tcp_offload.pcap", ethernet(tcp_offload)
    yield "tcp_bulk.pcap", ethernet(tcp_bulk)
    yield "vlan_fragments.pcap", ethernet(vlan_fragments)
    yield "ip_options.pcap", ethernet(ip_options)
    yield "incomplete.pcap", ethernet(incomplete)
    yield "sll.pcap", lambda out: write_pcap(out, LINUX_SLL, [r.cooked() for r in sll()], nanoseconds=False)
    yield "raw.pcap", lambda out: write_pcap(out, RAW_IP, raw(), nanoseconds=False, order=">")
    # One recording, written in both byte orders, so that the two files can be held against each other.
    ends = []
    once = lambda: ends or ends.extend(both_ends()) or ends
    yield "fragments.pcapng", lambda out: write_pcapng(out, *once(), order="<")
    yield "fragments_be.pcapng", lambda out: write_pcapng(out, *once(), order=">")


def main():
    parser = argparse.ArgumentParser(description="Record this directory's captures from the running kernel.")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent,
                        help="directory for the files (default: this script's)")
    parser.add_argument("file", nargs="*", help="names of the files to record (default: all)")
    asked = parser.parse_args()
    known = dict(files())
    # So that a half-written file goes with its namespaces.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    for name in asked.file:
        if name not in known:
            parser.error(f"{name}: no such recording; the recordings are {', '.join(known)}")
    name = "start"
    try:
        check_surroundings()
        for name in asked.file or known:
            path = asked.out / name
            partial = path.with_name(name + ".tmp")
            try:
                with partial.open("wb") as out:
                    count = known[name](out)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
            print(f"{name}: {count} packets, {path.stat().st_size:,} bytes")
    except Refused as refused:
        sys.exit(f"record.py: {refused}")
    except (OSError, AssertionError) as error:
        sys.exit(f"record.py: {name}: {error}")


def check_surroundings():
    if sys.platform != "linux":
        raise Refused("network namespaces need Linux")
    if os.geteuid() != 0:
        raise Refused("network namespaces and packet sockets need root; run sudo python3 captures/record.py")
    for command in ("ip", "ethtool"):
        if shutil.which(command) is None:
            raise Refused(f"{command}: not found; install iproute2 and ethtool")
    # On one processor a link keeps its order.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


# --- Traffic -----------------------------------------------------------------------------------------------------

PORT = 9  # discard: no tool takes the payload for a protocol
SOURCE_PORT = 40000
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
# Addresses for documentation (RFC 5737, RFC 3849).
ADDRESS = {"a": {4: "192.0.2.1", 6: "2001:db8::1"}, "b": {4: "192.0.2.2", 6: "2001:db8::2"}}
PREFIX_LEN = {4: 24, 6: 64}
BEHIND_TUN = {4: "192.0.2.9", 6: "2001:db8::9"}
MAC = {"a": "02:00:00:00:00:0a", "b": "02:00:00:00:00:0b"}


def payload_of(seed, size):
    return random.Random(f"{seed}:{size}").randbytes(size)


def cut_by_kernel(version, sizes, mtu=1500, seed=0):
    """One datagram of each size over a link of this MTU, recorded where it arrives."""
    with Link(mtu=mtu) as link, link.tap(link.b) as tap, link.udp(version) as pair:
        pair.carry(sizes, seed)
        return check_wire(tap.recorded(), mtu)


def disordered(version, sizes):
    """The same fragments, displaced by up to 48 places, and every ninth repeated."""
    frames = [r.data for r in cut_by_kernel(version, sizes)]
    dice = random.Random(f"disorder:{version}")
    turns = [(place + dice.uniform(0, 48), frame) for place, frame in enumerate(frames)]
    turns += [(place + dice.uniform(0, 48), frame) for place, frame in enumerate(frames) if place % 9 == 4]
    with Link() as link, link.udp(version) as pair:
        records = link.replay([frame for _, frame in sorted(turns, key=lambda turn: turn[0])])
        pair.expect({payload_of(0, size) for size in sizes})
        return records


def ping(link, version, payload):
    """An echo request; the other kernel's answer is awaited and compared."""
    kind, reply, protocol = {4: (8, 0, socket.IPPROTO_ICMP), 6: (128, 129, socket.IPPROTO_ICMPV6)}[version]
    request = struct.pack("!BBHHH", kind, 0, 0, 0x5749, 1) + payload
    if version == 4:  # over IPv6 the kernel sums
        request = request[:2] + struct.pack("!H", checksum(request)) + request[4:]
    with link.a.socket(FAMILY[version], socket.SOCK_RAW, protocol) as sock:
        sock.settimeout(PATIENCE)
        sock.sendto(request, (ADDRESS["b"][version], 0))
        while True:
            answer = sock.recv(65535)
            answer = answer[20:] if version == 4 else answer
            if answer[0] == reply:
                assert answer[8:] == payload, "the echo differs from the request"
                return


def converse(link, version, request_len, answer_len):
    """A short TCP connection from a to b: a request, a reply, an orderly end."""
    with link.b.socket(FAMILY[version], socket.SOCK_STREAM) as listener:
        listener.bind((ADDRESS["b"][version], PORT))
        listener.listen()
        client = link.a.socket(FAMILY[version], socket.SOCK_STREAM)
        client.settimeout(PATIENCE)
        client.bind((ADDRESS["a"][version], SOURCE_PORT))
        client.connect((ADDRESS["b"][version], PORT))
        server, _ = listener.accept()
        server.settimeout(PATIENCE)
        with client, server:
            for sender, receiver, size in ((client, server, request_len), (server, client, answer_len)):
                payload = payload_of("tcp", size)
                sender.sendall(payload)
                assert receive_exactly(receiver, size) == payload, "TCP changed the bytes"
            client.shutdown(socket.SHUT_WR)
            assert server.recv(1) == b"", "bytes after the end"


def receive_exactly(sock, size):
    received = b""
    while len(received) < size:
        piece = sock.recv(size - len(received))
        assert piece, "the connection ended early"
        received += piece
    return received


# --- Changes to recorded frames ----------------------------------------------------------------------------------


def tagged(frame, *tags):
    """The frame with these (type, control word) tags after its addresses, outermost first."""
    return frame[:12] + b"".join(struct.pack("!HH", *tag) for tag in tags) + frame[12:]


def renamed(frame, identification):
    """The IPv4 frame with another IP ID."""
    return summed4(frame[:18] + identification + frame[20:])


def moved4(frame, distance):
    word, = struct.unpack_from("!H", frame, 20)
    return summed4(frame[:20] + struct.pack("!H", word + distance // 8) + frame[22:])


def moved6(frame, distance):
    assert frame[20] == 44, "the Fragment header comes first"
    word, = struct.unpack_from("!H", frame, 56)
    return frame[:56] + struct.pack("!H", word + distance) + frame[58:]


def summed4(frame):
    """The frame with its IPv4 header checksum corrected; the header has no options."""
    header = frame[14:24] + b"\0\0" + frame[26:34]
    return frame[:24] + struct.pack("!H", checksum(header)) + frame[26:]


def checksum(data):
    """The Internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def check_wire(records, mtu, header_len=14):
    """Checks that packets on the wire fit its MTU and have complete checksums."""
    assert records, "nothing was recorded"
    for record in records:
        assert len(record.data) <= mtu + header_len, f"{len(record.data)} bytes on a link of {mtu}"
        assert not record.checksum_pending, "a checksum is incomplete (offloaded)"
    return records


# --- Namespaces, links, taps -------------------------------------------------------------------------------------

PATIENCE = 5.0  # seconds until something that should arrive counts as lost
QUIET = 0.15  # seconds of silence after which a recording ends
INTERFACE = "wide0"
OFFLOADS = ("rx", "tx", "sg", "tso", "gso", "gro")


class Namespace:
    """A network namespace that exists as long as its one descriptor."""

    def __init__(self):
        with self._returning():
            call("unshare", CLONE_NEWNET)
            self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            self.run("ip", "link", "set", "lo", "up")

    @contextlib.contextmanager
    def inside(self):
        with self._returning():
            call("setns", self.fd, CLONE_NEWNET)
            yield

    def socket(self, *kind):
        """A socket stays in the namespace that it was made in."""
        with self.inside():
            sock = socket.socket(*kind)
        for option in (SO_RCVBUFFORCE, SO_SNDBUFFORCE):
            sock.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
        return sock

    def run(self, *command):
        with self.inside():
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise Refused(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")

    def set(self, key, value):
        with self.inside(), contextlib.suppress(FileNotFoundError):
            pathlib.Path("/proc/sys/net", key).write_text(f"{value}\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    @staticmethod
    @contextlib.contextmanager
    def _returning():
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield
        finally:
            call("setns", home, CLONE_NEWNET)
            os.close(home)


class Link:
    """Two hosts, a and b, and the wire between them."""

    def __init__(self, mtu=1500, offload="off"):
        self.mtu = mtu
        self.a, self.b = Namespace(), Namespace()
        self.a.run("ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE,
                   "netns", f"/proc/{os.getpid()}/fd/{self.b.fd}")
        hosts = (("a", self.a), ("b", self.b))
        for name, ns in hosts:
            other = "b" if name == "a" else "a"
            # No unrequested traffic: no router solicitation, no duplicate address detection, no ARP.
            ns.set(f"ipv6/conf/{INTERFACE}/router_solicitations", 0)
            ns.set(f"ipv6/conf/{INTERFACE}/accept_ra", 0)
            # Some recordings are reordered; the default drops a datagram after 64 fragments of others.
            ns.set("ipv4/ipfrag_max_dist", 0)
            ns.run("ip", "link", "set", INTERFACE, "address", MAC[name], "addrgenmode", "none")
            # Under 1,280 bytes the kernel has no IPv6 on a link (RFC 8200 section 5).
            ns.run("ip", "link", "set", INTERFACE, "mtu", str(mtu))
            for version in (4, 6) if mtu >= 1280 else (4,):
                address = f"{ADDRESS[name][version]}/{PREFIX_LEN[version]}"
                ns.run("ip", f"-{version}", "address", "add", address, "dev", INTERFACE,
                       *(["nodad"] if version == 6 else []))
                ns.run("ip", f"-{version}", "neighbour", "add", ADDRESS[other][version], "lladdr", MAC[other],
                       "dev", INTERFACE, "nud", "permanent")
            ns.run("ethtool", "-K", INTERFACE, *(word for name in OFFLOADS for word in (name, offload)))
        for _, ns in hosts:
            ns.run("ip", "link", "set", INTERFACE, "up")
        for _, ns in hosts:
            wait_until(lambda: self._carrier(ns), f"{INTERFACE}: no carrier")

    def _carrier(self, ns):
        with ns.inside():
            shown = subprocess.run(("ip", "-o", "link", "show", INTERFACE), stdin=subprocess.DEVNULL,
                                   capture_output=True, text=True).stdout
        return "LOWER_UP" in shown

    def tap(self, ns, kind=socket.SOCK_RAW):
        return Tap(ns, INTERFACE, kind)

    def udp(self, version):
        return UdpPair(self, version)

    def replay(self, frames):
        """Send these frames unchanged from a. Returns the frames seen by b."""
        with self.tap(self.b) as tap, self.a.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
            sender.bind((INTERFACE, 0))
            for frame in frames:
                sender.send(frame)
            records = tap.recorded()
        assert [r.data for r in records] == frames, "the link changed the frames"
        return records

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Closing the last descriptor of a namespace removes it and its end of the pair.
        self.a.__exit__()
        self.b.__exit__()


class UdpPair:
    """A sender at a and a receiver at b."""

    def __init__(self, link, version):
        self.to = (ADDRESS["b"][version], PORT)
        self.back = (ADDRESS["a"][version], SOURCE_PORT)
        self.sender = link.a.socket(FAMILY[version], socket.SOCK_DGRAM)
        self.receiver = link.b.socket(FAMILY[version], socket.SOCK_DGRAM)
        self.sender.bind(self.back)
        self.receiver.bind(self.to)
        self.sender.settimeout(PATIENCE)
        self.receiver.settimeout(PATIENCE)

    def carry(self, sizes, seed=0):
        """Send one datagram of each size; b's kernel must deliver each complete and unchanged."""
        for size in sizes:
            payload = payload_of(seed, size)
            self.sender.sendto(payload, self.to)
            assert self.receiver.recv(65535) == payload, f"{size} bytes arrived changed"

    def answer(self, size):
        payload = payload_of("answer", size)
        self.receiver.sendto(payload, self.back)
        assert self.sender.recv(65535) == payload, f"{size} bytes arrived changed"

    def expect(self, payloads):
        """All of these, in any order, and nothing else."""
        self.receiver.settimeout(QUIET)
        received = set()
        with contextlib.suppress(TimeoutError):
            while True:
                received.add(self.receiver.recv(65535))
        assert received == payloads, f"{len(received)} of {len(payloads)} datagrams arrived complete"

    def expect_too_long(self, size):
        try:
            self.sender.sendto(bytes(size), self.to)
        except OSError as error:
            assert error.errno == errno.EMSGSIZE, error
        else:
            raise AssertionError(f"{size} bytes were sent although DF forbids fragmentation")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sender.close()
        self.receiver.close()


class Tun:
    """A TUN with both addresses' routes through it; what is sent there goes nowhere."""

    name = INTERFACE

    def __init__(self, ns):
        with ns.inside():
            self.fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            fcntl.ioctl(self.fd, TUNSETIFF, struct.pack("16sH22x", self.name.encode(), IFF_TUN | IFF_NO_PI))
        ns.set(f"ipv6/conf/{self.name}/router_solicitations", 0)
        ns.run("ip", "link", "set", self.name, "addrgenmode", "none", "mtu", "1500")
        ns.run("ip", "link", "set", self.name, "up")
        for version in (4, 6):
            address = f"{ADDRESS['a'][version]}/{PREFIX_LEN[version]}"
            ns.run("ip", f"-{version}", "address", "add", address, "dev", self.name,
                   *(["nodad"] if version == 6 else []))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)


@dataclasses.dataclass
class Record:
    """One packet as a tap saw it."""

    time: int  # nanoseconds since 1970
    data: bytes
    protocol: int
    arrival: int  # PACKET_HOST, PACKET_OUTGOING and the others of linux/if_packet.h
    hardware: int
    source: bytes
    checksum_pending: bool

    def cooked(self):
        """With the header of LINKTYPE_LINUX_SLL."""
        header = struct.pack("!HHH8sH", self.arrival, self.hardware, len(self.source), self.source, self.protocol)
        return dataclasses.replace(self, data=header + self.data)


class Tap:
    """A packet socket on one interface."""

    def __init__(self, ns, interface, kind=socket.SOCK_RAW):
        self.cooked = kind == socket.SOCK_DGRAM
        self.sock = ns.socket(socket.AF_PACKET, kind, 0)
        self.sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.sock.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.sock.bind((interface, ETH_P_ALL))
        # The kernel begins to stamp a moment after the first socket asks for it; multicast reports end meanwhile.
        time.sleep(0.1)
        self._read(0)

    def recorded(self):
        """All packets until the wire is silent."""
        records = [r for r in self._read(QUIET) if not self._is_chatter(r)]
        _, dropped = struct.unpack("II", self.sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        assert dropped == 0, f"the tap lost {dropped} packets"
        assert all(p.time <= q.time for p, q in zip(records, records[1:])), "time went backwards"
        return records

    def _read(self, patience):
        records = []
        while select.select([self.sock], [], [], patience)[0]:
            data, extras, flags, address = self.sock.recvmsg(1 << 18, 512)
            assert not flags & socket.MSG_TRUNC, "a packet longer than 256 KiB"
            records.append(self._record(data, extras, address))
        return records

    def _record(self, data, extras, address):
        _, protocol, arrival, hardware, source = address
        moment, pending = None, False
        for level, kind, content in extras:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, nanoseconds = struct.unpack("qq", content)
                moment = seconds * 1_000_000_000 + nanoseconds
            elif (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                status, _, _, _, _, control, tag_type = struct.unpack("IIIHHHH", content)
                pending = bool(status & TP_STATUS_CSUMNOTREADY)
                if status & TP_STATUS_VLAN_VALID and not self.cooked:
                    # The kernel takes the outermost tag off a frame and delivers it beside it.
                    data = tagged(data, (tag_type if status & TP_STATUS_VLAN_TPID_VALID else 0x8100, control))
        assert moment is not None, "the kernel gave no timestamp"
        return Record(moment, data, protocol, arrival, hardware, source, pending)

    def _is_chatter(self, record):
        """Whether it is a multicast group report, the only unrequested IPv6 traffic here."""
        packet = record.data if self.cooked or record.hardware != ARPHRD_ETHER else record.data[14:]
        return record.protocol == ETH_P_IPV6 and packet[6] == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()


def wait_until(true, otherwise):
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise Refused(otherwise)
        time.sleep(0.01)


def call(function, *arguments):
    """A call of the C library that Python 3.11 does not have."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise Refused(f"{function}: {os.strerror(number)}; network namespaces need root with CAP_SYS_ADMIN")


# --- Capture files -----------------------------------------------------------------------------------------------


def write_pcap(out, link_type, records, nanoseconds=True, order="<"):
    magic, unit = (0xA1B23C4D, 1) if nanoseconds else (0xA1B2C3D4, 1000)
    out.write(struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, SNAP_LEN, link_type))
    for record in records:
        seconds, rest = divmod(record.time, 1_000_000_000)
        out.write(struct.pack(order + "IIII", seconds, rest // unit, len(record.data), len(record.data)))
        out.write(record.data)
    return len(records)


def write_pcapng(out, near, far, order):
    """Two interfaces with times in nanoseconds, names, a comment, directions and statistics."""
    block = lambda kind, body, *options: out.write(pcapng_block(order, kind, body, options))
    pack = lambda form, *values: struct.pack(order + form, *values)
    text = lambda code, string: (code, string.encode())
    block(0x0A0D0D0A, pack("IHHq", 0x1A2B3C4D, 1, 0, -1), text(4, "record.py"))
    for name, end in (("a", "the sender's end"), ("b", "the receiver's end")):
        block(1, pack("HHI", ETHERNET, 0, SNAP_LEN), text(2, name), text(3, end), (9, bytes([9])))
    names = b""
    for host in ("a", "b"):
        for version, kind in ((4, 1), (6, 2)):
            value = socket.inet_pton(FAMILY[version], ADDRESS[host][version]) + f"{host}.example".encode() + b"\0"
            names += pack("HH", kind, len(value)) + value + padding(value)
    block(4, names + pack("HH", 0, 0))
    records = sorted([(r.time, 0, r) for r in near] + [(r.time, 1, r) for r in far], key=lambda entry: entry[:2])
    commented = False
    for moment, interface, record in records:
        options = [(2, pack("I", 2 if record.arrival == PACKET_OUTGOING else 1))]
        if len(record.data) == 1514 and not commented:
            options.insert(0, text(1, "The first full-sized packet of this file."))
            commented = True
        body = pack("IIIII", interface, moment >> 32, moment & 0xFFFFFFFF, len(record.data), len(record.data))
        block(6, body + record.data + padding(record.data), *options)
    end = records[-1][0]
    for interface, seen in enumerate((near, far)):
        options = [(code, pack("Q", count)) for code, count in ((4, len(seen)), (5, 0))]
        block(5, pack("III", interface, end >> 32, end & 0xFFFFFFFF), *options)
    return len(records)


def pcapng_block(order, kind, body, options):
    for code, value in options:
        body += struct.pack(order + "HH", code, len(value)) + value + padding(value)
    if options:
        body += bytes(4)
    total = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + total + body + total


def padding(value):
    return bytes(-len(value) % 4)


# Link types of capture files (the registry of tcpdump.org).
ETHERNET, RAW_IP, LINUX_SLL = 1, 101, 113
SNAP_LEN = 262144

# Numbers of the kernel that Python 3.11 does not name, from its headers: sched.h, asm-generic/socket.h, in.h,
# if_packet.h, if_ether.h, if_arp.h, if_tun.h.
CLONE_NEWNET = 0x40000000
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 32, 33, 35
IP_MTU_DISCOVER, IP_PMTUDISC_DONT, IP_PMTUDISC_DO = 10, 0, 2
SOL_PACKET, PACKET_STATISTICS, PACKET_AUXDATA, PACKET_OUTGOING = 263, 6, 8, 4
TP_STATUS_CSUMNOTREADY, TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID = 1 << 3, 1 << 4, 1 << 6
ETH_P_ALL, ETH_P_IPV6, ARPHRD_ETHER = 0x0003, 0x86DD, 1
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000

if __name__ == "__main__":
    main()
