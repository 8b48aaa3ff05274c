//! A job -> the text below the options in the job's `--help`: details, two examples, the exit status.
//!
//! The first line of each help text is the doc comment of the job.

pub(super) const DEMO_HELP: &str = "\
Takes about a minute. Two hosts send real TCP through each of the three in turns. The hosts are private namespaces of this \
process, so nothing outside is touched. Needs root, or a kernel with user namespaces.

Examples:
  wideload demo              # links with checksum offload, GRO on every interface
  wideload demo --json       # every figure of every round

Exit status: 0 all bytes arrived and the wide host received wide packets; 1 otherwise.";
pub(super) const CHECK_HELP: &str = "\
Prints all errors and warnings with file, line, column and key. It also warns if the interfaces of this machine do not suit \
the configuration. It changes nothing and needs no rights.

Examples:
  wideload check /etc/wideload/border.toml
  wideload check packaging/router.toml --json

Exit status: 0 no error; 1 this machine cannot run it; 2 errors, or the file cannot be read.";
pub(super) const DOCTOR_HELP: &str = "\
Tests kernel features, rights and offloads by use: it opens sockets, devices and programs and closes them again. Each failed \
test names its remedy.

Examples:
  wideload doctor
  sudo wideload doctor --json

Exit status: 0 a gateway can run; 1 something that it needs is missing.";
pub(super) const UNDO_HELP: &str = "\
A gateway undoes its changes itself when it ends. This is for one that was killed together with its supervisor.

Examples:
  sudo wideload undo
  sudo systemctl stop wideload@border && sudo wideload undo

Exit status: 0 nothing is left; 1 something could not be removed.";
pub(super) const TOP_HELP: &str = "\
Rates are per second. The keys q, Esc and Ctrl-C end it.

Examples:
  wideload top border
  wideload top /run/wideload/border.sock --json

Exit status: 0 ended by the user, or printed; 1 no gateway answers.";
pub(super) const RESTART_HELP: &str = "\
The running gateway starts the installed program, hands over its ports and held packets, and ends. If the new program or the \
configuration is faulty, the old gateway continues.

Examples:
  sudo wideload restart /etc/wideload/border.toml
  sudo wideload restart border.toml --control /run/wideload/border.sock

Exit status: 0 the new program runs; 1 the old one continues, or no gateway answers; 2 the configuration is wrong.";
pub(super) const RUN_HELP: &str = "\
Stays in the foreground and logs to standard error. Signals: TERM and INT send all held packets, undo all changes and end; HUP \
reloads the file; USR2 restarts, in the installed version, without losing a packet.

Examples:
  sudo wideload run /etc/wideload/border.toml
  wideload run packaging/wide-interface.toml --check

Exit status: 0 ended by a signal or `stop`; 1 could not start; 2 the configuration is wrong.";
pub(super) const ATTACKS_HELP: &str = "\
Verdicts. Held: all laws and bounds held. Broken: one did not; the command that repeats the case is below the table. Waiting: the attacked \
mechanism does not exist yet. Live: it concerns ports or processes; the tests that show it are named.

Examples:
  wideload lab attacks
  wideload lab attacks A07 A12 --seed 3

Exit status: 0 none is broken; 1 otherwise.";
pub(super) const LAB_HELP: &str = "\
`swarm`, `attacks` and `network` are simulations and need no rights. `link` uses interfaces of this machine. All others run in private \
namespaces of this process; root lets them measure the kernel's CPU time. Progress goes to standard error, the table to standard output.

Examples:
  wideload lab border --rounds 5
  wideload lab swarm --packets 1e6 --json

Exit status: 0 measured, and every byte arrived; 1 otherwise.";
pub(super) const LINK_HELP: &str = "\
Frames received on one interface are sent on the other. Meanwhile the kernel receives nothing from either, and their offloads are off. \
Both are restored at the end.

A shape is a list separated by commas: delay=, jitter=, rate=, queue=, loss=, burst=BEGINS:ENDS, ber=, reorder=SHARE:PLACES, \
byteloss=, red=MIN:MAX:SHARE, duplicate=, overhead=, seed=.

Examples:
  sudo wideload lab link eth1 eth2 delay=20ms,rate=100M
  sudo wideload lab link eth1 eth2 loss=0.1% --back delay=5ms --for 60

Exit status: 0 the link had the requested shape; 1 it had not, with the reason.";
pub(super) const LIFECYCLE_HELP: &str = "\
Each event happens to its own gateway, which runs in a private network with TCP connections in both directions. Afterwards the \
gateway continues or the kernel takes over. A killed supervisor is followed by `wideload undo`, and in another round by a second gateway. \
A row tells the effect on connections, and whether the host is unchanged: interfaces, features, programs, addresses, routes, rules, \
settings, sockets, files. Needs root, and takes about three minutes.

Examples:
  sudo wideload lab lifecycle
  sudo wideload lab lifecycle --role border --event stop,kill-both --json

Exit status: 0 all connections continued as the guide says, all exit statuses were right, and the host was unchanged; 1 otherwise.";
pub(super) const TCP_HELP: &str = "\
Round trips of 10 and 100 ms, MTUs of 1500 and 9000, a link of 100 Mbit/s. The kernels of two private hosts send through the link \
emulator. The simulator uses its own path, with 301 seeds where packets are lost. A transfer during which the emulator was late is repeated, for \
ten seconds per row or three times the rounds, whichever is more. A row with too few punctual rounds does not count and says so.

Examples:
  wideload lab tcp
  wideload lab tcp 3e5 --loss 0.1% --congestion cubic

Exit status: 0 medians differ by at most 15 %, with loss 30 %; 1 otherwise.";
pub(super) const SWARM_HELP: &str = "\
Each seed selects a topology, traffic, policies and faults. At least 64 seeds run, which together cover every role, fault, law \
and reason. A packet counts once, at the first gateway on its path. At least half of the packets belong to TCP connections of simulated hosts. \
A broken law is shown with the smallest case that breaks it, and the command that repeats that case.

Examples:
  wideload lab swarm --packets 1e9
  wideload lab swarm --case 7,without=loss,count=12

Exit status: 0 no law broke, and everything was covered; 1 otherwise. With --case, only whether a law broke.";
pub(super) const NETWORK_HELP: &str = "\
The file is TOML. Each table may be repeated:
  [[node]]    name, kind: host, border, wide-interface, receive-offload, router, refusing-router, silent-router,
              hop-reassembling-router or merging-router; a gateway also has wide = \"NODE\", the node on its wide side,
              and optionally reassemble, merge, coalesce: true or false, hold = \"adaptive\" or a time; of a host dont-fragment
  [[link]]    ends = [\"NODE\", \"NODE\"], mtu, shape = \"delay=5ms,rate=100M\" as `wideload lab link` takes it, back: the
              shape of the other direction
  [[chain]]   nodes = [...], mtu, shape: links from each node to the next
  [[tree]]    root, names, fanout, depth, router, mtu, shape: a tree of routers below a node, with hosts as leaves
  [[mesh]]    names, count, extra, seed, router, mtu, shape: a random mesh of routers
              Nodes of both are named names0, names1, ...; router is their kind.
  [[flow]]    from, to, kind: tcp (bytes, congestion: cubic or reno, probing: true or false) or udp (messages, len,
              gap); ipv6 = true, start. Default: 1000000 bytes; 1000 messages of 1000 bytes, one per ms
  [[change]]  at, link = [\"NODE\", \"NODE\"], and carrier = false or true, or mtu

Needs no rights. The same file and seed give the same trace.

Examples:
  wideload lab network campus.toml
  wideload lab network campus.toml --seed 5 --json

Exit status: 0 every connection completed; 1 one did not, a law broke, or the file cannot be read; 2 the file is wrong.";
pub(super) const FLOODS_HELP: &str = "\
First fragments without successors arrive from random sources, from a thousand sources, and as a slow drip of 150 a second, each with IPv4 \
and IPv6. The first two are written to a TUN device as fast as possible, and simulated at two million a second. The drip runs in real time, \
after 20 seconds' worth of it at once. Each system may use 4 MiB. The fragments of a good datagram are at most half a millisecond \
apart; a datagram for which the machine was too busy is not counted.

Examples:
  sudo wideload lab floods
  sudo wideload lab floods --seconds 30 --json

Exit status: 0 the engine reassembled 99.9 % of good datagrams, 99.99 % beside a thousand sources, all in the drip; 1 otherwise.";
pub(super) const TRANSPARENCY_HELP: &str = "\
Each kind of traffic crosses the same links several times: through the kernel alone (its bridge beside a border, its forwarding beside \
a router), through the gateway, and through a gateway with all stages off. The same frames must arrive, in the same order within each flow. Kinds \
named socket-... compare ordinary sockets: payload, errors and ancillary data must be the same. Listed: the difference is intended, \
with the reason below the table. DIFFERENT: a fault. A difference counts only if it occurs twice.

Examples:
  sudo wideload lab transparency --short
  sudo wideload lab transparency --kind tcp-syn-mss --role border --port packet

Exit status: 0 only intended differences; 1 otherwise.";
pub(super) const DIFFERENTIAL_HELP: &str = "\
Random packets are written to TUN devices of private hosts, and given to the engine. Known differences are listed below the table, with \
the number of times each occurred. Any other difference is a failure. It is shown reduced, with the command that repeats it.

Examples:
  sudo wideload lab differential --datagrams 1e5 --gso-packets 1e5 --bursts 1e5
  sudo wideload lab differential --case reassembly:17

Exit status: 0 all differences are known; 1 otherwise.";
pub(super) const HOLD_HELP: &str = "\
A bridge and a border with `hold = \"adaptive\"` and `hold = \"burst\"` take turns. TCP segments arrive one by one at 20, 100 and \
500 Mbit/s. The table shows the mean packet length at the wide host, the round trip of a 64-byte message, and the delay of a burst's last \
segment, with and without PSH.

Examples:
  wideload lab hold
  wideload lab hold --rounds 5 --json

Exit status: 0 every byte arrived; 1 otherwise.";
pub(super) const FAIRNESS_HELP: &str = "\
Many TCP connections saturate a border with one worker and without flow offload, while further connections are opened. \
`queueing = \"fifo\"` and `queueing = \"fair\"` take turns. The table shows the time from SYN to reply, and Jain's fairness index of the \
goodputs. A second table shows the SYN's delay in a simulated NIC, by the order of its DMA requests.

Examples:
  wideload lab fairness
  wideload lab fairness --rounds 1 --flows 16 --svg fairness.svg

Exit status: 0 `fair` has an index of at least 0.95 and a lower 99th percentile than `fifo`; 1 otherwise.";
pub(super) const RECEIVE_OFFLOAD_HELP: &str = "\
The first two tables are about a simulated NIC with one DMA engine and 13 receiving threads: its goodput with and without \
receive offload, and the figures of the paper that describes it. With --live, narrow hosts send to a wide one through \
a border with one worker and without flow offload, with and without coalescing. This needs root.

Examples:
  wideload lab receive-offload --svg offload.svg
  wideload lab receive-offload --live 3 --flows 1,64

Exit status: 0 the paper's figures are reproduced, and no law was broken; 1 otherwise.";
pub(super) const PING_PONG_HELP: &str = "\
A message of 64 bytes crosses to another host and back, over TCP and UDP, before the next one is sent. A bridge and a border take turns, \
then a stock interface and a wide one. Wideload coalesces with all flows exempt from holding, with `hold = \"adaptive\"` or `hold = \"10ms\"`. The table \
shows the median and the 99th percentile of the round trips.

Examples:
  wideload lab ping-pong
  wideload lab ping-pong --rounds 9 --json

Exit status: 0 no message was lost, and each median with holding is at most 1.1 times that without, plus the range of its rounds; 1 otherwise.";
pub(super) const PATH_CHANGE_HELP: &str = "\
A host behind a router receives a TCP transfer from the other side. After a second, the router's link becomes narrower: the router tells the \
sender, or a firewall drops these ICMP errors. On the wide side, the MTU falls to 4,000. A border with and without flow offload and a bridge with net.ipv4.tcp_mtu_probing = 0 and 1 \
take turns. The table shows the longest time without a delivered byte in the next eight seconds.

Examples:
  wideload lab path-change
  wideload lab path-change --mtu 1400 --border-only

Exit status: 0 every byte was right, and no transfer through a border stalled for more than two seconds; 1 otherwise.";
pub(super) const ACKS_HELP: &str = "\
Simulated TCP flows cross a border in both directions. The border leaves acknowledgements unchanged, expands them, compresses them or acknowledges early. One \
sender counts acknowledgements, one counts acknowledged bytes (RFC 3465), and one is like Linux. The table shows the time of each transfer. \
The simulator verifies every byte.

Examples:
  wideload lab acks
  wideload lab acks --delay 100 --mtu 65535 --json

Exit status: 0 no law was broken, every byte arrived, and no policy made a transfer more than 5 % longer, except compression for a sender \
that counts acknowledgements; 1 otherwise.";
pub(super) const SEGMENT_SIZES_HELP: &str = "\
One TCP flow crosses a link of 100 Mbit/s: over 1,500 bytes, through a border, over a link that is wide from end to end, and between two \
wide interfaces with each segment-policy. The simulator verifies every byte. With --live, kernels send over the link emulator. With --cost, \
the CPU time of policies without loss is measured. Both need root.

Examples:
  wideload lab segment-sizes --loss 0,0.001 --delay 10 --seeds 3 --svg sizes.svg
  wideload lab segment-sizes --live 3 --cost 3

Exit status: 0 no law was broken, and in the simulator the policy \"dynamic\" reaches 0.95 of the best policy and ordinary TCP's goodput (at a \
loss above 0.1 %, 0.9 of it); 1 otherwise.";
pub(super) const REWRITE_HELP: &str = "\
No packet is lost silently. Frames that carry no IP packet, do not parse, have a wrong header checksum or are truncated by the snapshot \
length pass unchanged. The report counts every packet's fate by name (docs/COUNTERS.md). TTLs stay unchanged. The first packet that the \
snapshot length truncated is named; the status stays 0.

Examples:
  wideload rewrite narrow.pcap wide.pcap --mtu 9000
  wideload rewrite wide.pcap narrow.pcap --mtu 1500 --as border --json

Exit status: 0 done; 1 could not read or write; 2 wrong arguments; 3 the input is damaged, and its readable part was \
written; 130 interrupted.";
pub(super) const CALIBRATE_HELP: &str = "\
The emulator is asked for known delays, rates and losses in private namespaces. The table compares them with the measured ones.

Examples:
  wideload lab calibrate
  wideload lab calibrate --json

Exit status: 0 the emulator is exact enough; 1 otherwise.";
pub(super) const BORDER_HELP: &str = "\
Each kind of link and host runs with the kernel's bridge, its forwarding and a border gateway in turns.

Examples:
  sudo wideload lab border
  sudo wideload lab border --scene plain --rounds 5 --json

Exit status: 0 measured, and every byte arrived; 1 otherwise.";
pub(super) const WIDE_INTERFACE_HELP: &str = "\
UDP messages of several lengths go to a host with a stock interface and to one with a wide interface.

Examples:
  sudo wideload lab wide-interface
  sudo wideload lab wide-interface --mtu 1500 --len 9000,65000

Exit status: 0 measured, and every byte arrived; 1 otherwise.";
pub(super) const DIPS_HELP: &str = "\
Goodput is measured at 2,000 message lengths, to show lengths that cost an extra fragment.

Examples:
  wideload lab dips
  wideload lab dips --json

Exit status: 0 measured, and every byte arrived; 1 otherwise.";
pub(super) const WORKERS_HELP: &str = "\
Packets per second of CPU time, with one worker and with two.

Examples:
  sudo wideload lab workers
  sudo wideload lab workers --rounds 10 --json

Exit status: 0 measured, and every byte arrived; 1 otherwise.";
pub(super) const SOAK_HELP: &str = "\
The same gateway is reloaded, restarted, killed and watched under load. The report has the losses, and whether all counters add up.

Examples:
  sudo wideload lab soak --minutes 1
  sudo wideload lab soak --reloads 10 --restarts 0 --kill-rounds 0 --json

Exit status: 0 no faults; 1 otherwise.";
