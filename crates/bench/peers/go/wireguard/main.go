// Packets in, wider or narrower packets out by wireguard-go: what it does beside the kernel's own offloads.
package main

import (
	"peers/harness"
	"peers/wireguard/tun"
)

func main() {
	harness.Serve("golang.zx2c4.com/wireguard", tun.Open)
}
