//! AES by the instructions of 64-bit ARM (the cryptographic extension).

use std::arch::aarch64::{
    uint8x16_t, vaeseq_u8, vaesmcq_u8, vcombine_u64, vcreate_u64, vdupq_n_u8, vdupq_n_u32, veorq_u8, vgetq_lane_u32,
    vgetq_lane_u64, vld1q_u8, vqtbl1q_u8, vreinterpretq_u8_u32, vreinterpretq_u8_u64, vreinterpretq_u32_u8,
    vreinterpretq_u64_u8, vst1q_u8,
};

use super::{BLOCK, Expanded, SHIFTS, short};

/// Whether the processor has the instructions.
pub(super) fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

/// The first 8 bytes of the CMAC of `key`.
#[target_feature(enable = "aes")]
pub(super) fn hash(expanded: &Expanded, key: &[u8]) -> u64 {
    let last = if key.len() < BLOCK {
        let [low, high] = short(key);
        let block = vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)));
        veorq_u8(block, load(&expanded.ends[key.len()]))
    } else {
        let last = key.last_chunk::<BLOCK>().expect("there is a block");
        let (mut state, mut rest) = (vdupq_n_u8(0), key);
        while let Some((block, after)) = rest.split_first_chunk::<BLOCK>()
            && rest.len() > BLOCK
        {
            let block = veorq_u8(load(block), load(&expanded.rounds[0]));
            state = rounds(expanded, veorq_u8(state, block));
            rest = after;
        }
        let last = vqtbl1q_u8(load(last), load(&SHIFTS.0[rest.len()]));
        veorq_u8(veorq_u8(last, load(&expanded.ends[rest.len()])), state)
    };
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(rounds(expanded, last)))
}

/// AES of a block to which the first round key was added. An instruction adds a round key before it substitutes, not after it
/// has mixed columns, as x86-64 does; so the first one adds zeros.
#[target_feature(enable = "aes")]
#[inline]
fn rounds(expanded: &Expanded, block: uint8x16_t) -> uint8x16_t {
    let keys = &expanded.rounds;
    let mut state = vaesmcq_u8(vaeseq_u8(block, vdupq_n_u8(0)));
    for key in &keys[1..9] {
        state = vaesmcq_u8(vaeseq_u8(state, load(key)));
    }
    veorq_u8(vaeseq_u8(state, load(&keys[9])), load(&keys[10]))
}

#[target_feature(enable = "aes")]
#[inline]
fn load(block: &[u8; BLOCK]) -> uint8x16_t {
    // SAFETY: a block is 16 bytes.
    unsafe { vld1q_u8(block.as_ptr()) }
}

/// AES's substitution of each byte. Rows are shifted too, which changes nothing where all columns are alike.
#[target_feature(enable = "aes")]
pub(super) fn substitute(word: u32) -> u32 {
    let columns = vreinterpretq_u8_u32(vdupq_n_u32(word));
    vgetq_lane_u32::<0>(vreinterpretq_u32_u8(vaeseq_u8(columns, vdupq_n_u8(0))))
}

/// The encryption of a block of zeros.
#[target_feature(enable = "aes")]
pub(super) fn encrypt_zero(expanded: &Expanded) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    // SAFETY: a block is 16 bytes.
    unsafe { vst1q_u8(bytes.as_mut_ptr(), rounds(expanded, load(&expanded.rounds[0]))) };
    bytes
}
