// Our file in a copy of tailscale's package, because what it calls is not exported.

package tun

import (
	"errors"

	"peers/harness"
)

type coalesce struct {
	*harness.Ring
	burst   int
	tcp     *tcpGROTable
	udp     *udpGROTable
	toWrite groToWrite
}

type segment struct {
	*harness.Ring
	segmentLen int
	slab       []byte
	places     []ReadPacket
}

// Open makes ready for these arguments and packets.
func Open(args harness.Args, packets [][]byte) (harness.System, error) {
	longest := harness.LenMax(packets)
	switch {
	case args.Is("coalesce", "checksummed"):
		if args["hold"] != "burst" {
			return nil, errors.New("wireguard-go holds nothing from one burst to the next")
		}
		if args.Number("len_max", 65535) < 65535 {
			return nil, errors.New("this wireguard-go joins up to 65,535 bytes and knows no other limit")
		}
		ring := harness.NewRing(args, packets, virtioNetHdrLen, longest)
		return &coalesce{ring, max(args.Number("burst", 64), 1), newTCPGROTable(), newUDPGROTable(), newGROToWrite()}, nil
	case args.Is("segment", "checksummed"):
		length := args.Number("segment", 1448)
		count := longest/length + 1
		ring := harness.NewRing(args, packets, virtioNetHdrLen, longest)
		slab := make([]byte, longest+(count+1)*(headersLenMax+ReadPacketSpacing))
		return &segment{ring, length, slab, make([]ReadPacket, count)}, nil
	}
	return nil, args.Unknown()
}

// headersLenMax is room for the longest headers of a segment, in bytes: IPv6's 40 or IPv4's 60, and TCP's 60.
const headersLenMax = 120

func (c *coalesce) Delivers() string {
	return "chains of pieces, TCP checksums verified, a joined packet's own left to the kernel"
}

func (c *coalesce) Section(copy int, sink *harness.Sink) {
	for packets := c.Copy(copy); len(packets) > 0; {
		burst := packets[:min(c.burst, len(packets))]
		packets = packets[len(burst):]
		if err := handleGRO(burst, virtioNetHdrLen, c.tcp, c.udp, groDisablementFlags(0), &c.toWrite); err != nil {
			panic(err)
		}
		for _, pieces := range c.toWrite.iovs {
			sink.Take(pieces[iovHeadPacketIdx:]...)
		}
		c.tcp.reset()
		c.udp.reset()
		c.toWrite.reset()
	}
}

func (s *segment) Delivers() string {
	return "contiguous packets, both checksums written"
}

func (s *segment) Section(copy int, sink *harness.Sink) {
	for _, buffer := range s.Copy(copy) {
		packet := buffer[virtioNetHdrLen:]
		count, err := GSOSplit(packet, optionsFor(packet, s.segmentLen), s.slab, s.places, ReadPacketSpacing)
		if err != nil {
			panic(err)
		}
		for _, place := range s.places[:count] {
			sink.Take(s.slab[place.Offset:][:place.Size])
		}
	}
}

// optionsFor is what the kernel would say of a long TCP packet.
func optionsFor(packet []byte, segmentLen int) GSOOptions {
	start, kind := uint16(40), GSOTCPv6
	if packet[0]>>4 == 4 {
		start, kind = uint16(packet[0]&15)*4, GSOTCPv4
	}
	return GSOOptions{
		GSOType:    kind,
		HdrLen:     start + uint16(packet[start+12]>>4)*4,
		CsumStart:  start,
		CsumOffset: 16,
		GSOSize:    uint16(segmentLen),
		NeedsCsum:  true,
	}
}
