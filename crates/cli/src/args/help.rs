//! A job -> the text below the options of its `--help`.
//!
//! Each ends with the exit status. The first lines stand with the arguments, as their comments.

pub(super) const DEMO_HELP: &str = "\
Takes about a minute. Sends real TCP between two hosts through each of the three, in turns. Nothing outside is touched: the \
hosts are namespaces of this process, and go with it. It needs root, or a kernel that allows user namespaces.

  wideload demo              # cards compute checksums, GRO is on at every interface
  wideload demo --json       # every figure of every round

Exit status: 0 all bytes arrived, and the wide host saw wide packets; 1 they did not, or something is missing.";
pub(super) const RUN_HELP: &str = "\
It stays in the foreground, and says on standard error what happens to it. Signals: TERM and INT let go of what is held, put \
back what was changed, and end; HUP reads the file anew; USR2 starts anew, in its new version where that was installed, \
without losing a packet.

Exit status: 0 ended as it was told; 1 could not start; 2 the configuration is wrong.";
pub(super) const ATTACKS_HELP: &str = "\
Held: all laws and bounds held. Broken: one did not; the command that repeats it stands below. Waiting: what is attacked does \
not exist yet. Live: it concerns ports and processes; the tests that show it are named.

Exit status: 0 nothing broke; 1 something did.";
pub(super) const LAB_HELP: &str = "\
`swarm`, `attacks` and `network` are simulations. All others but `link` stay in private namespaces of this process and go with it; to keep the kernel's accounts they need the rights \
of root. Progress is on standard error, the table on standard output.

Exit status: 0 measured, and every byte arrived; 1 it did not, or something is missing.";
pub(super) const LINK_HELP: &str = "\
Frames that come in by one interface leave by the other. Meanwhile the kernel gets nothing from either, and their offloads are \
off; both are put back at the end.

A shape is words with commas between: delay=, jitter=, rate=, queue=, loss=, burst=BEGINS:ENDS, ber=, reorder=SHARE:PLACES, \
byteloss=, red=MIN:MAX:SHARE, duplicate=, overhead=, seed=.

Exit status: 0 the wire was what was asked for; 1 it was not, and why is said.";
pub(super) const LIFECYCLE_HELP: &str = "\
Each event happens to a gateway of its own, run by `wideload run` in a private network, while TCP connections go both ways. Then \
the same gateway goes on, or the kernel takes over: a bridge in the place of a border. A killed supervisor is followed by `wideload \
undo`, and in a round of its own by another gateway. A row says what connections saw, and whether all that is set on the \
gateway's host is as it was: interfaces, their features and programs, addresses, routes, rules, settings, sockets, files.

  wideload lab lifecycle
  wideload lab lifecycle --role border --event stop,kill-both --json

It needs root, and takes about three minutes.

Exit status: 0 every connection went on as the guide says, every exit status was right, and the host was as before; 1 one was \
not, or something is missing.";
pub(super) const TCP_HELP: &str = "\
Round trips of 10 and 100 ms, MTUs of 1500 and 9000, a line of 100 Mb/s. The kernels of two private hosts send through the link \
emulator; the simulator's two ends, over its own path, are asked with 301 seeds where packets are lost. A transfer during which \
the emulator was late is timed again, for ten seconds a row or three times the rounds, whichever is more; a row of which at most half \
of the rounds were in time does not count, and says so.

Exit status: 0 medians differ by at most 15 %, with loss 30 %; 1 they do not, or something is missing.";
pub(super) const SWARM_HELP: &str = "\
Each seed draws its own topology, traffic, policies and faults. Nothing leaves this process, and no rights are needed. At least \
64 seeds run, which together meet every role, fault, law and reason; a packet counts once, where the first gateway on its way \
takes it in, and at least half of them belong to TCP connections of simulated hosts.

A broken law is shown with the smallest case that breaks it, and the command that repeats that case.

Exit status: 0 nothing broke, and everything was met; 1 something broke, was never met, or less than half was TCP. \
Of one case (--case) only whether it broke a law.";
pub(super) const NETWORK_HELP: &str = "\
The file is TOML. Tables, each as often as needed:
  [[node]]    name, kind: host, border, wide-interface, receive-offload, router, refusing-router, silent-router,
              hop-joining-router or joining-router; of a gateway wide = \"NODE\", the node at its wide end, and
              perhaps reassemble, join, coalesce: true or false, hold = \"adaptive\" or a time; of a host dont-fragment
  [[link]]    ends = [\"NODE\", \"NODE\"], mtu, shape = \"delay=5ms,rate=100M\" as `wideload lab link` takes it, back: the
              shape of the other direction
  [[chain]]   nodes = [...], mtu, shape: links from each to the next
  [[tree]]    root, names, fanout, depth, router, mtu, shape: routers below a node, and hosts at the end
  [[mesh]]    names, count, extra, seed, router, mtu, shape: routers joined at random
              The nodes of both are called as names says, with numbers from 0; router is their kind.
  [[flow]]    from, to, kind: tcp (bytes, congestion: cubic or reno, probing: true or false) or udp (messages, len,
              gap); ipv6 = true, start. Else 1000000 bytes, or 1000 messages of 1000 bytes, one each ms
  [[change]]  at, link = [\"NODE\", \"NODE\"], and carrier = false or true, or mtu

Nothing leaves this process, and no rights are needed. The same file and seed give the same trace.

Exit status: 0 every connection carried all it had to; 1 one did not, a law broke, or the file cannot be read; 2 the file is wrong.";
pub(super) const FLOODS_HELP: &str = "\
First pieces that never become whole come from everywhere, from a thousand sources, and as a slow drip of 150 a second, each by IPv4 \
and IPv6. The first two are written to a TUN device as fast as it takes them, and simulated at two million a second; the drip comes \
at its own pace, live behind 20 seconds' worth of it at once. Each system may hold 4 MiB. The pieces of a good datagram are at most \
half a millisecond apart; where the machine was too busy for that, it is set aside.

Exit status: 0 with the engine 99.9 % of good datagrams became whole, 99.99 % beside a thousand sources, all in the drip; 1 fewer, \
or something is missing.";
pub(super) const TRANSPARENCY_HELP: &str = "\
Each kind of traffic goes through the same cables several times: with the kernel alone in the middle (its bridge beside a \
border, its forwarding beside a router), with the gateway, and with a gateway whose stages are off. The same frames must \
arrive, in the same order within each flow. Kinds that begin with socket- are talks between ordinary sockets: payload, \
errors, and what the kernel says beside a message must be the same. Listed: the difference is wanted, and its reason stands \
below the table. DIFFERENT: it is a fault. A difference has to be seen twice.

  wideload lab transparency --short
  wideload lab transparency --kind tcp-syn-mss --role border --port packet

Exit status: 0 nothing differs but what is listed; 1 something does, or something is missing.";
pub(super) const DIFFERENTIAL_HELP: &str = "\
Packets are drawn from the seed, written to TUN devices of private hosts, and given to the engine too. What differs is told from a \
list that is shown with the table: how often each difference was met, and those that never were. Anything else is a failure; it is \
shown as small as it was made, with the command that repeats it.

Exit status: 0 all differences are known; 1 some are not, or something is missing.";
pub(super) const HOLD_HELP: &str = "\
A bridge and a border with `hold = \"adaptive\"` and `hold = \"burst\"` take turns. TCP segments arrive one by one at 20, 100 and \
500 Mbit/s. The table has the mean packet length at the wide host, the round trip of a 64-byte message, and the delay of the last \
segment of a burst: with PSH, and without it.

  wideload lab hold
  wideload lab hold --rounds 5 --json

Exit status: 0 every byte arrived; 1 it did not, or something is missing.";
pub(super) const REWRITE_HELP: &str = "\
Nothing is lost in silence: what is no IP packet, does not parse, has a bad header checksum or is cut by the snap \
length passes unchanged, and every fate that happened is in the table at the end. Hop counts stay as they are.

A packet that the snap length cut is named where it is the first; the status stays 0.

Exit status: 0 done; 1 could not read or write; 2 wrong arguments; 3 the input is damaged, and what could be read was \
written; 130 interrupted.";
