/* The kernel's functions for programs, by number (linux/bpf.h, enum bpf_func_id), and definitions missing in its
 * header of Linux 6.1. */
#pragma once

#include <linux/bpf.h>

#define FUNCTION(result, name, ...) static result (*const bpf_##name)(__VA_ARGS__) = (void *)BPF_FUNC_##name

FUNCTION(void *, map_lookup_elem, void *map, const void *key);
FUNCTION(__u64, ktime_get_ns, void);
FUNCTION(long, skb_load_bytes, const void *skb, __u32 at, void *to, __u32 len);
FUNCTION(long, skb_store_bytes, struct __sk_buff *skb, __u32 at, const void *from, __u32 len, __u64 flags);
FUNCTION(long, skb_change_tail, struct __sk_buff *skb, __u32 len, __u64 flags);
FUNCTION(long, skb_adjust_room, struct __sk_buff *skb, __s32 change, __u32 mode, __u64 flags);
FUNCTION(long, skb_vlan_push, struct __sk_buff *skb, __be16 protocol, __u16 tci);
FUNCTION(long, skb_vlan_pop, struct __sk_buff *skb);
FUNCTION(long, check_mtu, void *skb, __u32 interface, __u32 *mtu, __s32 change, __u64 flags);
FUNCTION(long, clone_redirect, struct __sk_buff *skb, __u32 interface, __u64 flags);
FUNCTION(long, redirect, __u32 interface, __u64 flags);

/* Definition of a map in the section "maps", as loaders read it. */
struct bpf_map_def {
    __u32 type, key_size, value_size, max_entries, map_flags;
};

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline)) inline

/* TCX_NEXT and TCX_DROP (linux/bpf.h of Linux 6.6), and PACKET_OUTGOING (linux/if_packet.h). */
enum { NEXT = -1, DROP = 2, OUTGOING = 4 };
