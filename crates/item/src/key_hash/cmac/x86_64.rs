//! AES by the instructions of x86-64 (AES-NI).

use std::arch::x86_64::{
    __m128i, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_aeskeygenassist_si128, _mm_cvtsi128_si32, _mm_cvtsi128_si64,
    _mm_load_si128, _mm_loadu_si128, _mm_set_epi64x, _mm_set1_epi32, _mm_setzero_si128, _mm_shuffle_epi8,
    _mm_storeu_si128, _mm_xor_si128,
};

use super::{BLOCK, Expanded, SHIFTS, short};

/// Whether the processor has the instructions.
pub(super) fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("ssse3")
}

/// The first 8 bytes of the CMAC of `key`.
#[target_feature(enable = "aes,ssse3")]
pub(super) fn hash(expanded: &Expanded, key: &[u8]) -> u64 {
    let last = if key.len() < BLOCK {
        let [low, high] = short(key);
        _mm_xor_si128(_mm_set_epi64x(high as i64, low as i64), aligned(&expanded.ends[key.len()]))
    } else {
        let last = key.last_chunk::<BLOCK>().expect("there is a block");
        let (mut state, mut rest) = (_mm_setzero_si128(), key);
        while let Some((block, after)) = rest.split_first_chunk::<BLOCK>()
            && rest.len() > BLOCK
        {
            let block = _mm_xor_si128(_mm_xor_si128(state, unaligned(block)), aligned(&expanded.rounds[0]));
            state = rounds(each_time(expanded), block);
            rest = after;
        }
        let last = _mm_shuffle_epi8(unaligned(last), aligned(&SHIFTS.0[rest.len()]));
        _mm_xor_si128(_mm_xor_si128(last, aligned(&expanded.ends[rest.len()])), state)
    };
    _mm_cvtsi128_si64(rounds(expanded, last)) as u64
}

/// AES of a block to which the first round key was added.
#[target_feature(enable = "aes,ssse3")]
#[inline]
fn rounds(expanded: &Expanded, block: __m128i) -> __m128i {
    let keys = &expanded.rounds;
    let mut state = block;
    for key in &keys[1..10] {
        state = _mm_aesenc_si128(state, aligned(key));
    }
    _mm_aesenclast_si128(state, aligned(&keys[10]))
}

/// The same reference, which the compiler takes for another one each time: it would load all round keys before the loop over
/// blocks, and most keys have too few blocks for that to pay.
#[inline(always)]
#[expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is read there")]
fn each_time(expanded: &Expanded) -> &Expanded {
    #[cfg(not(miri))]
    {
        let mut pointer = std::ptr::from_ref(expanded);
        // SAFETY: no instruction; the pointer stays what it was.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) pointer, options(nomem, nostack, preserves_flags));
            &*pointer
        }
    }
    #[cfg(miri)]
    expanded
}

/// A block of one of the tables.
#[inline(always)]
fn aligned(block: &[u8; BLOCK]) -> __m128i {
    // SAFETY: `Expanded` and `Shifts` are aligned, and have blocks at multiples of 16 bytes.
    unsafe { _mm_load_si128(block.as_ptr().cast()) }
}

/// A block of a key.
#[inline(always)]
fn unaligned(block: &[u8; BLOCK]) -> __m128i {
    // SAFETY: a block is 16 bytes.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

/// AES's substitution of each byte.
#[target_feature(enable = "aes,ssse3")]
pub(super) fn substitute(word: u32) -> u32 {
    _mm_cvtsi128_si32(_mm_aeskeygenassist_si128::<0>(_mm_set1_epi32(word as i32))) as u32
}

/// The encryption of a block of zeros.
#[target_feature(enable = "aes,ssse3")]
pub(super) fn encrypt_zero(expanded: &Expanded) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    let block = rounds(expanded, aligned(&expanded.rounds[0]));
    // SAFETY: a block is 16 bytes.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), block) };
    bytes
}
