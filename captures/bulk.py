#!/usr/bin/env python3
"""A number in, a large capture of fragments out: datagrams of 9,000 bytes of UDP over a link of 1,500.

    captures/bulk.py 100000 /dev/shm/narrow.pcap     about 0.9 GB

It is made, not recorded: for measuring, where what is in it does not matter and how much of it does.
"""

import struct
import sys

ETHERNET = bytes.fromhex("020000000001020000000002" "0800")
ADDRESSES = bytes([192, 0, 2, 1, 192, 0, 2, 2])
UDP = struct.pack("!HHHH", 40000, 9, 9008, 0)
PIECE_LEN = 1480
PIECE_COUNT = 7
LAST_LEN = 9000 + 8 - 6 * PIECE_LEN
MICROSECONDS_BETWEEN_FRAMES = 12


def checksum(header):
    total = sum(struct.unpack("!%dH" % (len(header) // 2), header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(datagram, index):
    more = 0x2000 if index + 1 < PIECE_COUNT else 0
    length = PIECE_LEN if more else LAST_LEN
    place = more | index * PIECE_LEN // 8
    header = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, datagram & 0xFFFF, place, 64, 17, 0) + ADDRESSES)
    struct.pack_into("!H", header, 10, checksum(header))
    payload = UDP + bytes(length - len(UDP)) if index == 0 else bytes(length)
    return ETHERNET + header + payload


def main():
    if len(sys.argv) != 3 or not sys.argv[1].isdigit():
        sys.exit(__doc__)
    time = 0
    with open(sys.argv[2], "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for datagram in range(int(sys.argv[1])):
            for index in range(PIECE_COUNT):
                bytes_ = frame(datagram, index)
                out.write(struct.pack("<IIII", time // 1000000, time % 1000000, len(bytes_), len(bytes_)) + bytes_)
                time += MICROSECONDS_BETWEEN_FRAMES


main()
