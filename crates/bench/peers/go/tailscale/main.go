// Packets in, wider or narrower packets out by tailscale's wireguard-go: what it does beside the kernel's own offloads.
package main

import (
	"peers/harness"
	"peers/tailscale/tun"
)

func main() {
	harness.Serve("github.com/tailscale/wireguard-go", tun.Open)
}
