//! AES-128-CMAC of short messages (RFC 4493), by the instructions that processors have for AES, and without them.
//!
//! ```text
//!  key:    | block 1 | block 2 | ... | rest 1 0 0 ... |      a whole last block has no 1 0 0 ...
//!               │         │                  │
//!               v         v                  v
//!   0 ───────> xor ─AES> xor ─AES> ... ──>  xor <── subkey 1 if the last block is whole, else subkey 2
//!                                            │
//!                                           AES ──> its first 8 bytes are the hash
//! ```
//! A key of 30 bytes takes two blocks: little more instructions than XXH3. The library's implementation
//! takes several times that, for buffers that keys in one piece do not need; tests compare with it.

use aes::cipher::{BlockEncrypt as _, KeyInit};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as processor;
#[cfg(target_arch = "x86_64")]
use x86_64 as processor;

/// Bytes of a block of AES.
const BLOCK: usize = 16;
/// Round keys of AES-128.
const ROUND_KEYS: usize = 11;

/// What a secret becomes.
#[repr(C, align(64))]
struct Expanded {
    /// The round keys of AES.
    rounds: [[u8; BLOCK]; ROUND_KEYS],
    /// What a last block of so many bytes is added to: its 1, the subkey, and the first round key.
    ends: [[u8; BLOCK]; BLOCK + 1],
}

/// For each length of a last block: which bytes of the last 16 of a key are its bytes. 0x80 stands for a zero.
#[repr(C, align(64))]
struct Shifts([[u8; BLOCK]; BLOCK + 1]);

static SHIFTS: Shifts = {
    let mut shifts = [[0x80; BLOCK]; BLOCK + 1];
    let mut length = 0;
    while length <= BLOCK {
        let mut byte = 0;
        while byte < length {
            shifts[length][byte] = (BLOCK - length + byte) as u8;
            byte += 1;
        }
        length += 1;
    }
    Shifts(shifts)
};

/// CMAC by the processor's instructions. There is none where the processor has not got them.
pub(super) struct Hardware(Expanded);

impl Hardware {
    /// `None` if the processor has no instructions for AES.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(super) fn new(secret: [u8; BLOCK]) -> Option<Self> {
        processor::has_aes().then(|| Self(expand(secret)))
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(super) fn new(_secret: [u8; BLOCK]) -> Option<Self> {
        None
    }

    /// The first 8 bytes of the key's CMAC.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        // SAFETY: `new` has seen that the processor has the instructions.
        unsafe { processor::hash(&self.0, key) }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(super) fn hash(&self, _key: &[u8]) -> u64 {
        unreachable!("there is none on such a processor")
    }
}

/// CMAC by a library's AES.
pub(super) struct Portable {
    cipher: aes::Aes128,
    subkeys: [[u8; BLOCK]; 2],
}

impl Portable {
    pub(super) fn new(secret: [u8; BLOCK]) -> Self {
        let cipher = aes::Aes128::new(&secret.into());
        let mut zero = [0; BLOCK].into();
        cipher.encrypt_block(&mut zero);
        Self { cipher, subkeys: subkeys(zero.into()) }
    }

    /// The first 8 bytes of the key's CMAC.
    #[cold]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        let mut state = 0u128;
        let mut encrypt = |block: u128| {
            let mut bytes = (state ^ block).to_le_bytes().into();
            self.cipher.encrypt_block(&mut bytes);
            state = u128::from_le_bytes(bytes.into());
            state as u64
        };
        let mut rest = key;
        while rest.len() > BLOCK {
            let (block, after) = rest.split_first_chunk().expect("there is more than a block");
            encrypt(u128::from_le_bytes(*block));
            rest = after;
        }
        let mut last = [0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        encrypt(u128::from_le_bytes(last) ^ u128::from_le_bytes(end(&self.subkeys, rest.len())))
    }
}

/// The subkeys, given the encryption of zero.
fn subkeys(zero: [u8; BLOCK]) -> [[u8; BLOCK]; 2] {
    // Times x in the field of 2^128 elements that the RFC names.
    let doubled = |number: u128| number << 1 ^ if number >> 127 == 1 { 0x87 } else { 0 };
    let first = doubled(u128::from_be_bytes(zero));
    [first.to_be_bytes(), doubled(first).to_be_bytes()]
}

/// What a last block of `length` bytes is added to, but for round keys.
fn end(subkeys: &[[u8; BLOCK]; 2], length: usize) -> [u8; BLOCK] {
    let mut end = subkeys[usize::from(length < BLOCK)];
    if length < BLOCK {
        end[length] ^= 0x80;
    }
    end
}

/// A key of less than a block, with zeros after it.
#[inline(always)]
fn short(key: &[u8]) -> [u64; 2] {
    let length = key.len();
    let number64 = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("8 bytes"));
    let number32 = |at: usize| u64::from(u32::from_le_bytes(key[at..at + 4].try_into().expect("4 bytes")));
    // Reads that overlap instead of a copy of as many bytes as there are, which would be a call.
    match length {
        // In two steps, as a shift by all 64 bits is none.
        8.. => [number64(0), number64(length - 8) >> 8 >> (8 * ((BLOCK - 1).wrapping_sub(length) % 8))],
        4..8 => [number32(0) | number32(length - 4) << (8 * (length - 4)), 0],
        1..4 => {
            let byte = |at: usize| u64::from(key[at]) << (8 * at);
            [byte(0) | byte(length / 2) | byte(length - 1), 0]
        }
        0 => [0, 0],
    }
}

/// The key schedule of AES-128 (FIPS 197, section 5.2).
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn expand(secret: [u8; BLOCK]) -> Expanded {
    /// Round constants.
    const ROUNDS: [u32; ROUND_KEYS - 1] = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1b, 0x36];
    let words = |key: [u8; BLOCK]| key.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect::<Vec<u32>>();
    let mut rounds = [secret; ROUND_KEYS];
    for (round, constant) in ROUNDS.into_iter().enumerate() {
        let before = words(rounds[round]);
        // SAFETY: only called where the processor has the instructions.
        let mut word = unsafe { processor::substitute(before[3]) }.rotate_right(8) ^ constant;
        for (column, before) in before.into_iter().enumerate() {
            word ^= before;
            rounds[round + 1][4 * column..4 * column + 4].copy_from_slice(&word.to_le_bytes());
        }
    }
    let mut expanded = Expanded { rounds, ends: [[0; BLOCK]; BLOCK + 1] };
    // SAFETY: as above.
    let subkeys = subkeys(unsafe { processor::encrypt_zero(&expanded) });
    for (length, added) in expanded.ends.iter_mut().enumerate() {
        let sum = u128::from_le_bytes(end(&subkeys, length)) ^ u128::from_le_bytes(rounds[0]);
        *added = sum.to_le_bytes();
    }
    expanded
}

#[cfg(test)]
mod tests {
    use ::cmac::{Cmac, Mac as _};

    use super::*;

    /// The examples of RFC 4493: one key, the beginnings of one message, and the first 8 bytes of their CMACs.
    const SECRET: [u8; BLOCK] = 0x2b7e1516_28aed2a6_abf71588_09cf4f3c_u128.to_be_bytes();
    const MESSAGE: [u128; 4] = [
        0x6bc1bee2_2e409f96_e93d7e11_7393172a,
        0xae2d8a57_1e03ac9c_9eb76fac_45af8e51,
        0x30c81c46_a35ce411_e5fbc119_1a0a52ef,
        0xf69f2445_df4f9b17_ad2b417b_e66c3710,
    ];
    const EXAMPLES: [(usize, u64); 4] =
        [(0, 0xbb1d6929_e9593728), (16, 0x070a16b4_6b4d4144), (40, 0xdfa66747_de9ae630), (64, 0x51f0bebf_7e3b9d92)];

    #[test]
    fn the_examples_of_the_rfc_hold() {
        let message: Vec<u8> = MESSAGE.iter().flat_map(|block| block.to_be_bytes()).collect();
        for (length, expected) in EXAMPLES {
            let expected = expected.swap_bytes();
            assert_eq!(Portable::new(SECRET).hash(&message[..length]), expected, "{length} bytes");
            if let Some(hardware) = Hardware::new(SECRET) {
                assert_eq!(hardware.hash(&message[..length]), expected, "{length} bytes by instructions");
            }
        }
    }

    #[test]
    fn keys_of_every_length_are_hashed_as_the_library_does() {
        let mut random = fastrand::Rng::with_seed(1);
        for length in (0..=260).chain(0..=260) {
            let secret: [u8; BLOCK] = std::array::from_fn(|_| random.u8(..));
            let key: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            let whole = <Cmac<aes::Aes128> as KeyInit>::new(&secret.into()).chain_update(&key).finalize().into_bytes();
            let expected = u64::from_le_bytes(whole[..8].try_into().unwrap());
            assert_eq!(Portable::new(secret).hash(&key), expected, "{length} bytes");
            if let Some(hardware) = Hardware::new(secret) {
                assert_eq!(hardware.hash(&key), expected, "{length} bytes by instructions");
            }
        }
    }

    #[test]
    fn the_instructions_are_used_where_they_are() {
        // Under Miri there are none.
        #[cfg(not(miri))]
        assert_eq!(Hardware::new(SECRET).is_some(), processor::has_aes());
    }
}
