//! Little-endian integers at an offset.

/// Reads a little-endian `u16` at `offset`.
///
/// # Panics
/// If fewer than 2 bytes follow the offset.
#[inline]
pub fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(bytes[offset..offset + size_of::<u16>()].try_into().expect("the length is the type's"))
}

/// Reads a little-endian `u32` at `offset`.
///
/// # Panics
/// If fewer than 4 bytes follow the offset.
#[inline]
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + size_of::<u32>()].try_into().expect("the length is the type's"))
}

/// Reads a little-endian `u64` at `offset`.
///
/// # Panics
/// If fewer than 8 bytes follow the offset.
#[inline]
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + size_of::<u64>()].try_into().expect("the length is the type's"))
}
