//! What an item takes in RAM and on SSD, and a node beside its items. docs/ssd-tier.md and docs/operating.md have where it goes.

/// A gibibyte.
pub const GIB: f64 = (1_u64 << 30) as f64;
/// RAM of an item in RAM beside key and value: header, padding, index, what is remembered of it after it has left.
pub const RAM_ITEM: f64 = 24.0;
/// RAM of an item on SSD: its slot of the index, 8 bytes, in an index of which seven of eight slots are full; and some for growth.
pub const SSD_ITEM_RAM: f64 = 10.0;
/// RAM for each byte of SSD: 2 bytes for each block of 4 KiB.
pub const SSD_BYTE_RAM: f64 = 2.0 / 4096.0;
/// Bytes on SSD of an item beside key and value: header, footer entry, alignment.
pub const SSD_ITEM: f64 = 32.0;
/// Bytes of a region, as it is unless another size is set.
pub const REGION: f64 = (8 << 20) as f64;
/// Regions of a node that hold no items, or few: free ones, and those that are filled or emptied.
pub const SPARE_REGIONS: f64 = 16.0;
/// Buffers of regions in RAM.
pub const REGION_BUFFERS: f64 = 8.0;
/// RAM of a node beside its items and its SSD tier: the program, the admin side, workers, what is held for clients.
pub const NODE_RAM: f64 = 256.0 * (1 << 20) as f64;
/// Least RAM for items of a node: what is written has to pass through it.
pub const NODE_MEMORY: f64 = 64.0 * (1 << 20) as f64;
/// Largest SSD tier of a node, bytes.
pub const NODE_SSD: f64 = 4096.0 * GIB;
