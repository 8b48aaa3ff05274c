#!/usr/bin/env python3
"""Runs a test of crates/lab in a QEMU guest with Debian's kernel, which has devices that other kernels lack.

    crates/lab/guest/run.py [--test NAME] [--limit SECONDS] [--accel NAME] [-- ARGUMENT ...]

The guest is an initramfs with the test and the programs that it calls; it has no disk and no network. What is missing
for it (QEMU, busybox, Debian's newest kernel of amd64, wg) comes by apt; the kernel and wg go to target/guest alone.
Arguments behind `--` go to the test. Exits with the test's status; with 2 where the guest could not be made, and with
3 where it did not end in time or ended without a word of the test.
"""

import argparse
import json
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[3]
STORE = Path(os.environ.get("CARGO_TARGET_DIR", HOUSE / "target")) / "guest"
# Debian's kernels, by the names of their packages; the programs at interfaces need Linux 6.6.
KERNEL = re.compile(r"linux-image-(\d+\.[\d.]+)(?:-\d+|\+deb\d+)-amd64")
KERNEL_MIN = (6, 6)
# Command, and the package that brings it.
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "ip": "iproute2",
    "nft": "nftables",
    "ethtool": "ethtool",
}
# What the tests need of the kernel beside what is built in. What these need themselves comes with them.
MODULES = (
    "crc32c_generic tun veth bridge nf_tables 8021q vrf bonding macvlan "
    "ipip sit ip_gre ip6_tunnel ip6_gre vxlan geneve fou fou6 wireguard"
).split()
# It would make a device that nobody asked for.
PARAMETERS = {"bonding": "max_bonds=0"}
# Last line of the guest's: the test's status stands behind it.
END = "guest: the test ended with status "
# The tests wait most of the time: without KVM the guest took 17 minutes on two busy processors.
LIMIT_SECONDS = 2400
MEMORY_MIB = 2048


def main():
    arguments = argparse.ArgumentParser(description="Runs a test of crates/lab in a guest with Debian's kernel.")
    arguments.add_argument("--test", default="in_a_guest", help="which of crates/lab/tests (default: in_a_guest)")
    arguments.add_argument("--limit", type=int, default=LIMIT_SECONDS, help="seconds that the guest may take")
    # Two threads would run code that the guest's kernel changes meanwhile (static keys), and it would panic at times.
    arguments.add_argument("--accel", default="tcg,thread=single", help="QEMU's (default: tcg, one thread; kvm, where it works, is faster)")
    arguments.add_argument("arguments", nargs="*", help="for the test")
    arguments = arguments.parse_args()
    STORE.mkdir(parents=True, exist_ok=True)
    install_tools()
    test = build(arguments.test)
    kernel = unpacked_kernel()
    wg = unpacked("wireguard-tools") / "usr/bin/wg"
    image = STORE / "initramfs"
    write_image(image, test, kernel, wg, arguments.arguments)
    sys.exit(boot(next(kernel.glob("boot/vmlinuz-*")), image, arguments.limit, arguments.accel))


def install_tools():
    missing = [package for tool, package in TOOLS.items() if not shutil.which(tool)]
    if missing:
        apt("update")
        apt("install", "-y", "--no-install-recommends", *missing)


def apt(*words, folder=None):
    if not shutil.which("apt-get"):
        give_up(f"no apt-get, which would {' '.join(words)}; do so by hand")
    if os.geteuid() and words[0] != "download":
        give_up(f"apt-get {' '.join(words)} needs root")
    done = subprocess.run(
        ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=3", *words],
        cwd=folder, stdin=subprocess.DEVNULL, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )
    if done.returncode:
        give_up(f"apt-get {' '.join(words)}: {done.stderr.strip()}")


def give_up(why):
    print(f"guest: {why}", file=sys.stderr)
    sys.exit(2)


def build(test):
    """The test's program."""
    command = ["cargo", "test", "-p", "wideload-lab", "--test", test, "--no-run", "--message-format=json"]
    built = subprocess.run(command, cwd=HOUSE, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    if built.returncode:
        errors = [it["message"]["rendered"] for it in messages if it.get("message", {}).get("rendered")]
        print("".join(errors), file=sys.stderr)
        give_up(f"{shlex.join(command)} ended with status {built.returncode}")
    found = [it["executable"] for it in messages if it.get("executable") and it["target"]["name"] == test]
    return Path(found[-1])


def unpacked_kernel():
    """The folder of Debian's newest kernel."""
    stored = sorted((STORE.glob("linux-image-*")), key=lambda folder: version(folder.name))
    stored = [folder for folder in stored if folder.is_dir()]
    if stored:
        return stored[-1]
    newest = newest_kernel()
    if not newest:
        apt("update")
        newest = newest_kernel()
    if not newest:
        give_up("apt knows no kernel package of Linux 6.6 or newer, such as linux-image-6.12.9+deb12-amd64")
    return unpacked(newest)


def newest_kernel():
    listed = subprocess.run(["apt-cache", "pkgnames", "linux-image-"], capture_output=True, text=True).stdout.split()
    fitting = [name for name in listed if KERNEL.fullmatch(name) and version(name) >= KERNEL_MIN]
    return max(fitting, key=version, default=None)


def version(name):
    found = KERNEL.fullmatch(name)
    return tuple(int(number) for number in found[1].split(".")) if found else ()


def unpacked(package):
    """A package's files, in a folder of its name."""
    folder = STORE / package
    if not folder.is_dir():
        print(f"guest: downloads {package}", flush=True)
        rest = STORE / f".{package}"
        shutil.rmtree(rest, ignore_errors=True)
        rest.mkdir()
        apt("download", package, folder=rest)
        archive = next(rest.glob("*.deb"))
        subprocess.run(["dpkg-deb", "-x", archive, rest / "files"], check=True)
        (rest / "files").rename(folder)
        shutil.rmtree(rest)
    return folder


def write_image(image, test, kernel, wg, arguments):
    with Archive(image) as archive:
        for folder in "dev proc sys run tmp modules".split():
            archive.folder(folder)
        archive.console()
        archive.program("bin/busybox", shutil.which("busybox"))
        for tool in ("ip", "nft", "ethtool"):
            archive.program(f"bin/{tool}", shutil.which(tool))
        archive.program("bin/wg", wg)
        archive.program("test", test)
        order = modules(kernel)
        for name, content in order.items():
            archive.file(f"modules/{name}.ko", content)
        archive.file("init", init(order, arguments).encode(), 0o755)


def modules(kernel):
    """The modules, by their names, in an order in which each has what it needs."""
    files = {path.name.split(".")[0].replace("-", "_"): path for path in kernel.rglob("*.ko*")}
    built_in = {
        Path(line).stem.replace("-", "_") for line in next(kernel.rglob("modules.builtin")).read_text().splitlines()
    }
    order = {}

    def add(name):
        if name in order or name in built_in:
            return
        if name not in files:
            give_up(f"{kernel.name} has no module {name}")
        content = files[name].read_bytes()
        if files[name].suffix == ".xz":
            content = lzma.decompress(content)
        needs = re.search(rb"\0depends=([^\0]*)\0", content)
        for need in (needs[1].decode() if needs else "").split(","):
            if need:
                add(need.replace("-", "_"))
        order[name] = content

    for name in MODULES:
        add(name)
    return order


def init(order, arguments):
    load = "\n".join(
        f"insmod /modules/{name}.ko {PARAMETERS.get(name, '')} || echo guest: cannot load {name}" for name in order
    )
    return f"""#!/bin/busybox sh
/bin/busybox mkdir -p /usr/bin /usr/sbin /sbin
/bin/busybox --install -s /usr/bin
export PATH=/bin:/usr/bin HOME=/tmp TMPDIR=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
# No device of each kind of tunnel in every namespace.
echo 1 > /proc/sys/net/core/fb_tunnels_only_for_init_net
{load}
ip link set lo up
cd /tmp
export WIDELOAD_REQUIRE_TOOLS=1 WIDELOAD_REQUIRE_DEVICES=1 RUST_BACKTRACE=1
/test --color never {shlex.join(arguments)} 2>&1
echo "{END}$?"
sync
poweroff -f
"""


class Archive:
    """A cpio archive as the kernel takes it (Documentation/driver-api/early-userspace/buffer-format.rst)."""

    def __init__(self, path):
        self.out = open(path, "wb")
        self.number = 0
        self.names = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.entry("TRAILER!!!", 0, b"")
        self.out.close()

    def entry(self, name, mode, content, device=(0, 0)):
        self.number += 1
        fields = [self.number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0]
        self.padded(b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0")
        self.padded(content)

    def padded(self, content):
        self.out.write(content + b"\0" * (-len(content) % 4))

    def folder(self, name):
        if name and name not in self.names:
            self.names.add(name)
            self.folder(os.path.dirname(name))
            self.entry(name, 0o040755, b"")

    def file(self, name, content, mode=0o644):
        if name not in self.names:
            self.folder(os.path.dirname(name))
            self.names.add(name)
            self.entry(name, 0o100000 | mode, content)

    def console(self):
        self.entry("dev/console", 0o020600, b"", (5, 1))

    def program(self, name, path):
        """With the libraries that it is linked with."""
        self.file(name, Path(path).read_bytes(), 0o755)
        told = subprocess.run(["ldd", path], capture_output=True, text=True)
        for library in re.findall(r"(/\S+) \(0x", told.stdout):
            self.file(library.lstrip("/"), Path(library).read_bytes(), 0o755)


def boot(kernel, image, limit, accel):
    """The test's status."""
    command = [
        "qemu-system-x86_64", "-accel", accel, "-cpu", "max", "-smp", "2",
        "-m", str(MEMORY_MIB), "-nodefaults", "-no-user-config", "-nic", "none",
        "-display", "none", "-serial", "stdio", "-no-reboot",
        "-kernel", kernel, "-initrd", image,
        "-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off random.trust_cpu=on rdinit=/init",
    ]  # fmt: skip
    began = time.monotonic()
    guest = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    watch = threading.Timer(limit, guest.kill)
    watch.start()
    status = None
    try:
        for line in guest.stdout:
            line = line.decode(errors="replace").rstrip("\r\n")
            if line.startswith(END):
                status = int(line.removeprefix(END))
            else:
                print(line, flush=True)
        guest.wait()
    finally:
        watch.cancel()
        guest.kill()
    seconds = time.monotonic() - began
    if status is None:
        is_late = seconds >= limit
        why = f"was ended after {limit} seconds; --limit gives it more" if is_late else "ended before the test did"
        print(f"guest: {why}", file=sys.stderr)
        return 3
    print(f"guest: {kernel.name.removeprefix('vmlinuz-')}, {seconds:.0f} seconds, status {status}")
    return status


if __name__ == "__main__":
    main()
