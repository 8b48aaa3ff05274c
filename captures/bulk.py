#!/usr/bin/env python3
"""Generate a large capture of a given kind and size.

    captures/bulk.py fragments 100000 /dev/shm/narrow.pcap     about 0.9 GB: datagrams of 9,000 bytes of UDP
    captures/bulk.py tcp 1G /dev/shm/tcp.pcap                  1 GiB (or K, M, bytes), and up to 0.3 MB more: bulk TCP

Both are IPv4 over a link with MTU 1,500, one frame every 12 microseconds. TCP has four connections, which send bursts of
up to 16 segments in turn. Each write of 64 KiB ends in a PSH. After each burst come acknowledgements, one for two
segments. Nothing is lost, and all checksums are right (UDP has none).

The capture is generated, not recorded: measurements need its size, not its contents. It is the same each time.
"""

import random
import re
import struct
import sys

# Sender and receiver.
STATIONS = bytes.fromhex("020000000002"), bytes.fromhex("020000000001")
ADDRESSES = bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])
IPV4 = bytes.fromhex("0800")
MICROSECONDS_BETWEEN_FRAMES = 12

UDP = struct.pack("!HHHH", 40000, 9, 9008, 0)
PIECE_LEN = 1480
PIECE_COUNT = 7
LAST_LEN = 9000 + 8 - 6 * PIECE_LEN

PORTS = [(40000 + flow, 5001) for flow in range(4)]
SEGMENT_LEN = 1448
BURST_COUNT = 16
WRITE_LEN = 64 << 10
# Number of different writes; then they repeat.
WRITE_COUNT = 16
# Room for the one unacknowledged burst; no window scale.
WINDOW = 64240
FIN, SYN, PSH, ACK = 1, 2, 8, 16
# Link header and start of IPv4; length, identification, DF and hops and protocol, checksum; addresses and ports;
# sequence numbers, header length and flags, window, checksum, urgent pointer; an option with two timestamps.
HEADERS = struct.Struct("!16sHHIH12sIIHHHHIII")
DF_HOPS_TCP = 0x40004006
TCP_LEN = 32
TIMESTAMP = 0x0101080A
# Further options of a SYN: MSS 1460, selective acknowledgements.
SYN_OPTIONS = bytes.fromhex("020405b4" "0402" "0101")
RECORD = struct.Struct("<IIII")
FILE_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)


def checksum(total):
    """The checksum for this sum of 16-bit or longer words: 65,536 counts as 1."""
    return 0xFFFF - ((total - 1) % 0xFFFF + 1)


def words(bytes_):
    """A number with the same checksum as the 16-bit words of an even number of bytes."""
    return int.from_bytes(bytes_, "big") % 0xFFFF


class Wire:
    """Frames -> a capture."""

    def __init__(self, out):
        self.out = out
        self.time = 0
        self.len = len(FILE_HEADER)
        self.parts = [FILE_HEADER]

    def put(self, headers, payload):
        length = len(headers) + len(payload)
        record = RECORD.pack(self.time // 1000000, self.time % 1000000, length, length)
        self.parts += record, headers, payload
        self.time += MICROSECONDS_BETWEEN_FRAMES
        self.len += len(record) + length

    def flush(self):
        self.out.write(b"".join(self.parts))
        self.parts.clear()


class End:
    """One end of a TCP connection, sending to the other."""

    def __init__(self, here, ports, seed):
        there = 1 - here
        self.start = STATIONS[there] + STATIONS[here] + IPV4 + b"\x45\x00"
        self.ends = ADDRESSES[here] + ADDRESSES[there] + struct.pack("!HH", ports[here], ports[there])
        self.ip_words = words(b"\x45\x00" + self.ends[:8]) + DF_HOPS_TCP
        self.tcp_words = words(self.ends) + 6 + WINDOW + TIMESTAMP
        noise = random.Random(seed)
        self.id, self.seq, self.clock = noise.getrandbits(16), noise.getrandbits(32), noise.getrandbits(32)
        # To acknowledge: sequence number and timestamp of the other end.
        self.ack = self.heard = 0

    def stamp(self, wire):
        """Its timestamp, in milliseconds."""
        return self.clock + wire.time // 1000 & 0xFFFFFFFF

    def headers(self, flags, stamp, len_behind=0, words_behind=0, options_len=0):
        tcp_len = TCP_LEN + len_behind
        len_flags = TCP_LEN + options_len << 10 | flags
        tcp_words = self.tcp_words + tcp_len + len_flags + self.seq + self.ack + stamp + self.heard + words_behind
        headers = HEADERS.pack(
            self.start, 20 + tcp_len, self.id, DF_HOPS_TCP, checksum(self.ip_words + 20 + tcp_len + self.id),
            self.ends, self.seq, self.ack, len_flags, WINDOW, checksum(tcp_words), 0,
            TIMESTAMP, stamp, self.heard,
        )
        self.id = self.id + 1 & 0xFFFF
        self.seq = self.seq + len_behind - options_len + (flags & (SYN | FIN) != 0) & 0xFFFFFFFF
        return headers


class Flow:
    """A TCP connection: a client that writes, a server that acknowledges."""

    def __init__(self, ports):
        self.client, self.server = (End(here, ports, (ports[0] << 1) + here) for here in (0, 1))

    def open(self, wire):
        self.say(wire, self.client, self.server, SYN, SYN_OPTIONS)
        self.say(wire, self.server, self.client, SYN | ACK, SYN_OPTIONS)
        self.say(wire, self.client, self.server, ACK)

    def close(self, wire):
        self.say(wire, self.client, self.server, FIN | ACK)
        self.say(wire, self.server, self.client, FIN | ACK)
        self.say(wire, self.client, self.server, ACK)

    def say(self, wire, speaker, hearer, flags, options=b""):
        stamp = speaker.stamp(wire)
        wire.put(speaker.headers(flags, stamp, len(options), words(options), len(options)), options)
        hearer.ack, hearer.heard = speaker.seq, stamp

    def burst(self, wire, segments):
        client, server = self.client, self.server
        # All have one timestamp, as with TSO.
        stamp = server.heard = client.stamp(wire)
        acks = []
        for flags, payload, payload_words in segments:
            wire.put(client.headers(flags, stamp, len(payload), payload_words), payload)
            acks.append(client.seq)
        for server.ack in acks[1::2]:
            client.heard = server.stamp(wire)
            wire.put(server.headers(ACK, client.heard), b"")


def tcp(size, out):
    wire = Wire(out)
    flows = [Flow(ports) for ports in PORTS]
    writes = [segments(random.Random(write).randbytes(WRITE_LEN)) for write in range(WRITE_COUNT)]
    for flow in flows:
        flow.open(wire)
    turn = 0
    while wire.len < size:
        for at in range(0, len(writes[0]), BURST_COUNT):
            for number, flow in enumerate(flows):
                flow.burst(wire, writes[(turn + 4 * number) % WRITE_COUNT][at : at + BURST_COUNT])
        wire.flush()
        turn += 1
    for flow in flows:
        flow.close(wire)
    wire.flush()


def segments(write):
    """The segments of a write: flags, payload and its part of the checksum."""
    payloads = [write[at : at + SEGMENT_LEN] for at in range(0, len(write), SEGMENT_LEN)]
    flags = [ACK] * (len(payloads) - 1) + [PSH | ACK]
    return [(flags, payload, words(payload)) for flags, payload in zip(flags, payloads)]


def fragments(count, out):
    wire = Wire(out)
    for datagram in range(count):
        for index in range(PIECE_COUNT):
            wire.put(*fragment(datagram, index))
        if datagram % 64 == 0:
            wire.flush()
    wire.flush()


def fragment(datagram, index):
    more = 0x2000 if index + 1 < PIECE_COUNT else 0
    length = PIECE_LEN if more else LAST_LEN
    place = more | index * PIECE_LEN // 8
    header = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, datagram & 0xFFFF, place, 64, 17, 0))
    header += ADDRESSES[0] + ADDRESSES[1]
    struct.pack_into("!H", header, 10, checksum(words(header)))
    payload = UDP + bytes(length - len(UDP)) if index == 0 else bytes(length)
    return STATIONS[1] + STATIONS[0] + IPV4 + header, payload


def main():
    match sys.argv[1:]:
        case ["fragments", count, path] if re.fullmatch("[0-9]+", count):
            make, size = fragments, int(count)
        case ["tcp", size, path] if re.fullmatch("[0-9]+[KMG]?", size):
            make, size = tcp, int(size.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(size[-1], 0)
        case _:
            sys.exit(__doc__)
    with open(path, "wb") as out:
        make(size, out)


main()
