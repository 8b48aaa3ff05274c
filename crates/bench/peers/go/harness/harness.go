// Package harness takes arguments, a file of packets and commands, and gives answers: what every harness has in common.
//
// The protocol stands in ../../README.md. A harness is a System; Serve does the rest.
package harness

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// magic is how a file of packets begins.
	magic = "WLBENCH1"
	// bufferLenMin is the shortest buffer, in bytes: what takes a packet of 1,500 bytes and its surroundings.
	bufferLenMin = 2048
	// hugePageLen is the length of a huge page, in bytes.
	hugePageLen = 2 << 20
	// hugeLenMax is the longest memory of huge pages, in bytes. Where buffers are long and packets short, most of it
	// would be for nothing.
	hugeLenMax = 4 << 30
	// stackLen is more than any section needs, in bytes.
	stackLen = 256 << 10
	// sectionCountMin is the fewest sections in a run.
	sectionCountMin = 3
)

// System is what a harness does with the packets of a section.
type System interface {
	// Delivers says what comes out, in a few words.
	Delivers() string
	// Fill puts the packets of every copy of the section where a port would put them.
	Fill()
	// Section takes one copy's packets, gives every result to sink, and has its buffers back in the end.
	Section(copy int, sink *Sink)
}

// Sink is where results go.
type Sink struct {
	Count int
	Keeps bool
	kept  [][]byte
}

// Take takes the bytes of one result, which may lie in pieces.
func (s *Sink) Take(pieces ...[]byte) {
	s.Count++
	if s.Keeps {
		s.kept = append(s.kept, slices.Concat(pieces...))
	}
}

// Args are the keys of a command line.
type Args map[string]string

// Is says whether function and work are these.
func (a Args) Is(function, work string) bool {
	return a["function"] == function && a["work"] == work
}

// Number is the number behind a key, or what stands in for it.
func (a Args) Number(key string, absent int) int {
	if number, err := strconv.Atoi(a[key]); err == nil {
		return number
	}
	return absent
}

// Copies is how many copies of the section lie in memory.
func (a Args) Copies() int {
	return max(a.Number("ring", 1), 1)
}

// Unknown says that a work is not done here.
func (a Args) Unknown() error {
	return fmt.Errorf("no function=%s work=%s here", a["function"], a["work"])
}

// Ring is copies of a section, one behind the other.
type Ring struct {
	source   [][]byte
	headroom int
	whole    [][]byte
	buffers  [][]byte
}

// NewRing makes a ring; a buffer takes capacity bytes behind its headroom.
func NewRing(args Args, source [][]byte, headroom, capacity int) *Ring {
	// An odd number of lines from one packet to the next, so that headers do not meet in few sets of a cache.
	stride := (max(headroom+capacity, bufferLenMin)+63)/64*64 | 64
	count := len(source) * args.Copies()
	memory := memory(stride*count, args["pages"] == "huge")
	ring := &Ring{source: source, headroom: headroom, whole: make([][]byte, count), buffers: make([][]byte, count)}
	for i := range ring.whole {
		ring.whole[i] = memory[i*stride:][: headroom+capacity : headroom+capacity]
	}
	return ring
}

// Fill puts every packet in its buffer.
func (r *Ring) Fill() {
	for i, whole := range r.whole {
		packet := r.source[i%len(r.source)]
		r.buffers[i] = whole[:r.headroom+len(packet)]
		copy(r.buffers[i][r.headroom:], packet)
	}
}

// Copy is the buffers of one copy: headroom and packet.
func (r *Ring) Copy(i int) [][]byte {
	return r.buffers[i*len(r.source):][:len(r.source)]
}

// LenMax is the length of the longest packet.
func LenMax(packets [][]byte) int {
	longest := 0
	for _, packet := range packets {
		longest = max(longest, len(packet))
	}
	return longest
}

// Serve does what the command line and standard input say.
func Serve(module string, open func(Args, [][]byte) (System, error)) {
	stayHere()
	args := Args{}
	for _, arg := range os.Args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		args[key] = value
	}
	packets, err := read(args["file"])
	var system System
	if err == nil {
		system, err = open(args, packets)
	}
	if err != nil {
		fmt.Printf("cannot\t%v\n", err)
		return
	}
	next := args.Copies()
	turn := func() int {
		if next == args.Copies() {
			system.Fill()
			next = 0
		}
		next++
		return next - 1
	}
	fmt.Printf("ready\t%s\t%s\n", version(module), system.Delivers())

	if sections := args.Number("sections", -1); sections >= 0 {
		// Instructions are counted without those of the collector, which comes when it likes.
		debug.SetGCPercent(-1)
		growStack(sections)
		for range sections {
			timed_section(system, turn(), &Sink{})
		}
		return
	}
	perPacketOut := args["function"] == "fragment" || args["function"] == "segment"
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		switch command := strings.Fields(commands.Text()); command[0] {
		case "run":
			ms, err := strconv.Atoi(command[1])
			must(err)
			var spent time.Duration
			var costs []float64
			var sink Sink
			for spent < time.Duration(ms)*time.Millisecond || len(costs) < sectionCountMin {
				copy := turn()
				sink.Count = 0
				begin := time.Now()
				timed_section(system, copy, &sink)
				took := time.Since(begin)
				spent += took
				count := len(packets)
				if perPacketOut {
					count = sink.Count
				}
				costs = append(costs, float64(took)/float64(max(count, 1)))
			}
			slices.Sort(costs)
			fmt.Printf("%.3f\t%d\t%d\n", costs[len(costs)/2], sink.Count, len(costs))
		case "verify":
			sink := Sink{Keeps: true}
			system.Section(turn(), &sink)
			must(write(args["out"], sink.kept))
			fmt.Printf("done\t%d\n", len(sink.kept))
		case "quit":
			return
		default:
			panic("a command is run MS, verify or quit, not: " + commands.Text())
		}
	}
}

//go:noinline
func timed_section(system System, copy int, sink *Sink) {
	system.Section(copy, sink)
}

// growStack makes the stack long enough, because a count goes wrong where a stack moves.
//
//go:noinline
func growStack(any int) byte {
	var room [stackLen]byte
	room[any%stackLen] = 1
	return room[any/2%stackLen]
}

// version is a module's, as it was built in.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, built := range info.Deps {
			if built.Path == module {
				return module + " " + built.Version
			}
		}
	}
	return module
}

func read(path string) ([][]byte, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	broken := fmt.Errorf("%s: not a file of packets", path)
	if len(file) < len(magic)+4 || string(file[:len(magic)]) != magic {
		return nil, broken
	}
	count, rest := binary.LittleEndian.Uint32(file[len(magic):]), file[len(magic)+4:]
	packets := make([][]byte, count)
	for i := range packets {
		if len(rest) < 4 || len(rest) < 4+int(binary.LittleEndian.Uint32(rest)) {
			return nil, broken
		}
		end := 4 + int(binary.LittleEndian.Uint32(rest))
		packets[i], rest = rest[4:end:end], rest[end:]
	}
	return packets, nil
}

func write(path string, packets [][]byte) error {
	file := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(packets)))
	for _, packet := range packets {
		file = append(binary.LittleEndian.AppendUint32(file, uint32(len(packet))), packet...)
	}
	return os.WriteFile(path, file, 0o644)
}

// memory is zeroed memory for the life of the process, on a border of 2 MiB.
func memory(length int, huge bool) []byte {
	length += hugePageLen
	all, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(err)
	if huge && length <= hugeLenMax {
		// Without huge pages it goes on with small ones.
		_ = unix.Madvise(all, unix.MADV_HUGEPAGE)
	}
	return all[-uintptr(unsafe.Pointer(&all[0]))%hugePageLen:]
}

// stayHere keeps the process on the processor where it is, the collector too.
func stayHere() {
	var here uint32
	unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&here)), 0, 0)
	var set unix.CPUSet
	set.Set(int(here))
	threads, err := os.ReadDir("/proc/self/task")
	must(err)
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		must(err)
		// A thread that has ended needs no place.
		_ = unix.SchedSetaffinity(id, &set)
	}
	runtime.GOMAXPROCS(1)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
