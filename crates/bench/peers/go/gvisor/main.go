// Packets in, packets out by gVisor's netstack.
//
// Its fragmentation package is internal, so a copy is built; see ../build.
package main

import (
	"errors"
	"math"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/header/parse"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/stack/gro"
	"peers/gvisor/fragmentation"
	"peers/harness"
)

// reassemblyTimeout is how long a fragment waits (gVisor's own: 30 s for IPv4, 60 s for IPv6).
const reassemblyTimeout = 30 * time.Second

// blockLen is the unit of a fragment's offset, in bytes.
const blockLen = 8

func main() {
	harness.Serve("gvisor.dev/gvisor", open)
}

func open(args harness.Args, packets [][]byte) (harness.System, error) {
	ring := ring{packets, make([]*stack.PacketBuffer, len(packets)*args.Copies())}
	switch {
	case args.Is("reassemble", "header"), args.Is("reassemble", "contiguous"), args.Is("reassemble", "checksummed"):
		// With its own limit of 4 MiB it would lose what is interleaved widely.
		table := fragmentation.NewFragmentation(
			blockLen, math.MaxInt, math.MaxInt, reassemblyTimeout, tcpip.NewStdClock(), nil)
		if args["work"] == "header" {
			return &place{ring, make([]fragment, len(packets)), table}, nil
		}
		return &reassemble{ring, table, args["work"] == "checksummed"}, nil
	case args.Is("fragment", "header"):
		return &fragmenter{ring, uint32(args.Number("mtu", 1500))}, nil
	case args.Is("coalesce", "checksummed"):
		if args.Number("len_max", 65535) < 65535 {
			return nil, errors.New("gVisor joins up to 65,535 bytes and knows no other limit")
		}
		c := &coalesce{ring: ring, burst: max(args.Number("burst", 64), 1)}
		if args["hold"] == "section" {
			c.burst = len(packets)
		}
		c.table.Init(true)
		c.table.Dispatcher = c
		return c, nil
	case args.Is("parse", "header"):
		return &parser{ring}, nil
	}
	return nil, args.Unknown()
}

// ring is copies of a section as packet buffers, which are used up by taking them.
type ring struct {
	source  [][]byte
	packets []*stack.PacketBuffer
}

func (r *ring) Fill() {
	for i := range r.packets {
		bytes := r.source[i%len(r.source)]
		r.packets[i] = stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(bytes)})
		r.packets[i].NetworkProtocolNumber = header.IPv4ProtocolNumber
		if bytes[0]>>4 == 6 {
			r.packets[i].NetworkProtocolNumber = header.IPv6ProtocolNumber
		}
	}
}

func (r *ring) Copy(i int) []*stack.PacketBuffer {
	return r.packets[i*len(r.source):][:len(r.source)]
}

// fragment is what a parsed header says.
type fragment struct {
	id          fragmentation.FragmentID
	first, last uint16
	more        bool
	protocol    uint8
}

// parseFragment takes the header off a packet; what is no sound fragment is not ok.
func parseFragment(packet *stack.PacketBuffer, checksummed bool) (f fragment, ok bool) {
	size := packet.Data().Size()
	if packet.NetworkProtocolNumber == header.IPv6ProtocolNumber {
		_, id, offset, more, ok := parse.IPv6(packet)
		h := header.IPv6(packet.NetworkHeader().Slice())
		if !ok || len(h) < header.IPv6MinimumSize+header.IPv6FragmentHeaderSize {
			return fragment{}, false
		}
		protocol := header.IPv6Fragment(h[len(h)-header.IPv6FragmentHeaderSize:]).NextHeader()
		f.id = fragmentation.FragmentID{Source: h.SourceAddress(), Destination: h.DestinationAddress(), ID: id}
		f.first, f.more, f.protocol = offset*blockLen, more, protocol
	} else {
		if !parse.IPv4(packet) {
			return fragment{}, false
		}
		h := header.IPv4(packet.NetworkHeader().Slice())
		if !h.IsValid(size) || checksummed && !h.IsChecksumValid() {
			return fragment{}, false
		}
		f.id = fragmentation.FragmentID{Source: h.SourceAddress(), Destination: h.DestinationAddress(),
			ID: uint32(h.ID()), Protocol: h.Protocol()}
		f.first, f.more, f.protocol = h.FragmentOffset(), h.More(), h.Protocol()
	}
	length := packet.Data().Size()
	if length == 0 || int(f.first)+length > math.MaxUint16 {
		return fragment{}, false
	}
	f.last = f.first + uint16(length) - 1
	return f, true
}

// place reassembles what is parsed already.
type place struct {
	ring
	parsed []fragment
	table  *fragmentation.Fragmentation
}

func (p *place) Delivers() string {
	return "a chain of views, no checksum verified; 4 MiB limit lifted"
}

func (p *place) Fill() {
	p.ring.Fill()
	for i, packet := range p.packets {
		parsed, ok := parseFragment(packet, false)
		if !ok {
			panic("only fragments are asked here")
		}
		p.parsed[i%len(p.parsed)] = parsed
	}
}

func (p *place) Section(copy int, sink *harness.Sink) {
	for i, packet := range p.Copy(copy) {
		f := &p.parsed[i]
		whole, _, done, err := p.table.Process(f.id, f.first, f.last, f.more, f.protocol, packet)
		packet.DecRef()
		if err == nil && done {
			takeData(whole, sink)
			whole.DecRef()
		}
	}
}

// takeData gives what lies behind a packet's headers, and flattens it only to be kept.
func takeData(packet *stack.PacketBuffer, sink *harness.Sink) {
	if sink.Keeps {
		sink.Take(packet.Data().AsRange().ToSlice())
	} else {
		sink.Take()
	}
}

// reassemble takes packets as they come and gives contiguous payload.
type reassemble struct {
	ring
	table       *fragmentation.Fragmentation
	checksummed bool
}

func (r *reassemble) Delivers() string {
	if r.checksummed {
		return "contiguous payload, IPv4 and UDP checksums verified; 4 MiB limit lifted"
	}
	return "contiguous payload, no checksum verified; 4 MiB limit lifted"
}

func (r *reassemble) Section(copy int, sink *harness.Sink) {
	for _, packet := range r.Copy(copy) {
		f, ok := parseFragment(packet, r.checksummed)
		if !ok {
			packet.DecRef()
			continue
		}
		whole, protocol, done, err := r.table.Process(f.id, f.first, f.last, f.more, f.protocol, packet)
		packet.DecRef()
		if err != nil || !done {
			continue
		}
		payload := whole.Data().AsRange().ToView()
		if !r.checksummed || protocol != uint8(header.UDPProtocolNumber) || soundUDP(f.id, payload.AsSlice()) {
			sink.Take(payload.AsSlice())
		}
		payload.Release()
		whole.DecRef()
	}
}

func soundUDP(id fragmentation.FragmentID, datagram []byte) bool {
	udp := header.UDP(datagram)
	return len(datagram) >= header.UDPMinimumSize &&
		udp.IsChecksumValid(id.Source, id.Destination, checksum.Checksum(udp.Payload(), 0))
}

// fragmenter makes fragments of parsed packets, as ipv4 and ipv6 do on their way out.
type fragmenter struct {
	ring
	mtu uint32
}

func (f *fragmenter) Delivers() string {
	return "a header and views of the payload, IPv4 header checksums written"
}

func (f *fragmenter) Fill() {
	f.ring.Fill()
	for _, packet := range f.packets {
		if !takeHeaders(packet) {
			panic("only UDP and TCP are asked here")
		}
	}
}

// takeHeaders parses a packet; of a fragment, only what IP says.
func takeHeaders(packet *stack.PacketBuffer) bool {
	var protocol tcpip.TransportProtocolNumber
	if packet.NetworkProtocolNumber == header.IPv6ProtocolNumber {
		transport, _, offset, more, ok := parse.IPv6(packet)
		if !ok || offset != 0 || more {
			return ok
		}
		protocol = transport
	} else {
		if !parse.IPv4(packet) {
			return false
		}
		h := header.IPv4(packet.NetworkHeader().Slice())
		if h.FragmentOffset() != 0 || h.More() {
			return true
		}
		protocol = h.TransportProtocol()
	}
	switch protocol {
	case header.UDPProtocolNumber:
		return parse.UDP(packet)
	case header.TCPProtocolNumber:
		return parse.TCP(packet)
	}
	return false
}

func (f *fragmenter) Section(copy int, sink *harness.Sink) {
	for i, packet := range f.Copy(copy) {
		whole := packet.NetworkHeader().Slice()
		fragmentHeaderLen := 0
		if packet.NetworkProtocolNumber == header.IPv6ProtocolNumber {
			fragmentHeaderLen = header.IPv6FragmentHeaderSize
		}
		payloadLen := (f.mtu - uint32(len(whole)+fragmentHeaderLen)) &^ (blockLen - 1)
		reserve := packet.AvailableHeaderBytes() + len(whole) + fragmentHeaderLen
		pieces := fragmentation.MakePacketFragmenter(packet, payloadLen, reserve)
		for more := true; more; {
			var piece *stack.PacketBuffer
			if fragmentHeaderLen == 0 {
				piece, more = nextIPv4(&pieces, whole)
			} else {
				piece, more = nextIPv6(&pieces, whole, packet.TransportProtocolNumber, uint32(i+1))
			}
			if sink.Keeps {
				view := piece.ToView()
				sink.Take(view.AsSlice())
				view.Release()
			} else {
				sink.Take()
			}
			piece.DecRef()
		}
		pieces.Release()
		packet.DecRef()
	}
}

// nextIPv4 does what ipv4.buildNextFragment does.
func nextIPv4(pieces *fragmentation.PacketFragmenter, whole header.IPv4) (*stack.PacketBuffer, bool) {
	piece, offset, copied, more := pieces.BuildNextFragment()
	piece.NetworkProtocolNumber = header.IPv4ProtocolNumber
	h := header.IPv4(piece.NetworkHeader().Push(len(whole)))
	copy(h, whole)
	flags := whole.Flags()
	if more {
		flags |= header.IPv4FlagMoreFragments
	}
	h.SetFlagsFragmentOffset(flags, uint16(offset))
	h.SetTotalLength(uint16(h.HeaderLength()) + uint16(copied))
	h.SetChecksum(0)
	h.SetChecksum(^h.CalculateChecksum())
	return piece, more
}

// nextIPv6 does what ipv6.buildNextFragment does.
func nextIPv6(pieces *fragmentation.PacketFragmenter, whole header.IPv6, protocol tcpip.TransportProtocolNumber,
	id uint32) (*stack.PacketBuffer, bool) {
	piece, offset, copied, more := pieces.BuildNextFragment()
	piece.NetworkProtocolNumber = header.IPv6ProtocolNumber
	extension := header.IPv6ExtHdrSerializer{&header.IPv6SerializableFragmentExtHdr{
		FragmentOffset: uint16(offset / blockLen),
		M:              more,
		Identification: id,
	}}
	length := len(whole) + extension.Length()
	h := header.IPv6(piece.NetworkHeader().Push(length))
	copy(h, whole)
	next, _ := extension.Serialize(protocol, h[len(whole):])
	h.SetNextHeader(next)
	h.SetPayloadLength(uint16(copied + length - header.IPv6MinimumSize))
	return piece, more
}

// coalesce joins TCP segments, and flushes after each burst.
type coalesce struct {
	ring
	burst int
	table gro.GRO
	sink  *harness.Sink
}

func (c *coalesce) Delivers() string {
	return "a chain of views, IPv4 and TCP checksums verified, a joined packet's own not written"
}

func (c *coalesce) Section(copy int, sink *harness.Sink) {
	c.sink = sink
	for packets := c.Copy(copy); len(packets) > 0; {
		burst := packets[:min(c.burst, len(packets))]
		packets = packets[len(burst):]
		for _, packet := range burst {
			c.table.Enqueue(packet)
			packet.DecRef()
		}
		// A flush lets one packet of each bucket go, so it is repeated until none is left.
		for before := -1; before != sink.Count; {
			before = sink.Count
			c.table.Flush()
		}
	}
}

// DeliverNetworkPacket takes a joined packet.
func (c *coalesce) DeliverNetworkPacket(_ tcpip.NetworkProtocolNumber, packet *stack.PacketBuffer) {
	takeData(packet, c.sink)
}

// DeliverLinkPacket is never called.
func (c *coalesce) DeliverLinkPacket(tcpip.NetworkProtocolNumber, *stack.PacketBuffer) {}

// parser parses.
type parser struct{ ring }

func (p *parser) Delivers() string {
	return "headers as views, no checksum verified, packet buffer given back"
}

func (p *parser) Section(copy int, sink *harness.Sink) {
	for _, packet := range p.Copy(copy) {
		if takeHeaders(packet) {
			takeData(packet, sink)
		}
		packet.DecRef()
	}
}
