//! A region of the SSD tier, damaged, read without its footer: every record that is sound is found, and what is not one is
//! counted. The bytes say what the region holds, values that look like records among it, and what is damaged; they are also
//! its ends and its footer.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| moneta_device::testing::check_region(data));
