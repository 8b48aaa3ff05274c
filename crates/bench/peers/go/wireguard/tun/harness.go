// Our file in a copy of wireguard-go's package, because what it calls is not exported.

package tun

import (
	"errors"

	"golang.org/x/sys/unix"
	"peers/harness"
)

// headersLenMax is room for the longest headers of a segment, in bytes: IPv6's 40 or IPv4's 60, and TCP's 60.
const headersLenMax = 120

type coalesce struct {
	*harness.Ring
	burst   int
	tcp     *tcpGROTable
	udp     *udpGROTable
	toWrite []int
}

type segment struct {
	*harness.Ring
	segmentLen int
	outputs    [][]byte
	lens       []int
}

// Open makes ready for these arguments and packets.
func Open(args harness.Args, packets [][]byte) (harness.System, error) {
	switch {
	case args.Is("coalesce", "checksummed"):
		if args["hold"] != "burst" {
			return nil, errors.New("wireguard-go holds nothing from one burst to the next")
		}
		// A buffer joins what fits, less a second headroom.
		ring := harness.NewRing(args, packets, virtioNetHdrLen, args.Number("len_max", 65535)+virtioNetHdrLen)
		return &coalesce{ring, max(args.Number("burst", 64), 1), newTCPGROTable(), newUDPGROTable(), nil}, nil
	case args.Is("segment", "checksummed"):
		length, longest := args.Number("segment", 1448), harness.LenMax(packets)
		outputs := make([][]byte, longest/length+1)
		for i := range outputs {
			outputs[i] = make([]byte, headersLenMax+length)
		}
		ring := harness.NewRing(args, packets, virtioNetHdrLen, longest)
		return &segment{ring, length, outputs, make([]int, len(outputs))}, nil
	}
	return nil, args.Unknown()
}

func (c *coalesce) Delivers() string {
	return "contiguous packets, TCP checksums verified, a joined packet's own left to the kernel"
}

func (c *coalesce) Section(copy int, sink *harness.Sink) {
	for packets := c.Copy(copy); len(packets) > 0; {
		burst := packets[:min(c.burst, len(packets))]
		packets = packets[len(burst):]
		c.toWrite = c.toWrite[:0]
		if err := handleGRO(burst, virtioNetHdrLen, c.tcp, c.udp, false, &c.toWrite); err != nil {
			panic(err)
		}
		for _, i := range c.toWrite {
			sink.Take(burst[i][virtioNetHdrLen:])
		}
		c.tcp.reset()
		c.udp.reset()
	}
}

func (s *segment) Delivers() string {
	return "contiguous packets, both checksums written"
}

func (s *segment) Section(copy int, sink *harness.Sink) {
	for _, buffer := range s.Copy(copy) {
		packet := buffer[virtioNetHdrLen:]
		header, isV6 := headerFor(packet, s.segmentLen)
		count, err := gsoSplit(packet, header, s.outputs, s.lens, 0, isV6)
		if err != nil {
			panic(err)
		}
		for i := range count {
			sink.Take(s.outputs[i][:s.lens[i]])
		}
	}
}

// headerFor is what the kernel would say of a long TCP packet.
func headerFor(packet []byte, segmentLen int) (virtioNetHdr, bool) {
	isV6 := packet[0]>>4 == 6
	start, kind := uint16(40), uint8(unix.VIRTIO_NET_HDR_GSO_TCPV6)
	if !isV6 {
		start, kind = uint16(packet[0]&15)*4, unix.VIRTIO_NET_HDR_GSO_TCPV4
	}
	return virtioNetHdr{
		flags:      unix.VIRTIO_NET_HDR_F_NEEDS_CSUM,
		gsoType:    kind,
		hdrLen:     start + uint16(packet[start+12]>>4)*4,
		gsoSize:    uint16(segmentLen),
		csumStart:  start,
		csumOffset: 16,
	}, isV6
}
