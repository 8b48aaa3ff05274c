//! Segments in, packets with real bytes and sums out; packets in, segments out.
