//! Any bytes as requests to the admin port, in pieces: nothing panics, the answer is HTTP or nothing, it is bounded, and a page is not
//! shown to who names another host. The first byte says how long the pieces are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moneta_admin::Route;
use moneta_admin::testing::answer;

const SECRET: &str = "what only its host sees";
/// Longest answer: a head, and a page.
const ANSWER_MAX: usize = 4096;

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}

fuzz_target!(|input: &[u8]| {
    let Some((&piece, input)) = input.split_first() else { return };
    let page = Route::get("/page", async || SECRET, ());
    let answered = answer(input, usize::from(piece).max(1), [page]);
    assert!(answered.len() <= ANSWER_MAX, "{} bytes", answered.len());
    assert!(answered.is_empty() || answered.starts_with(b"HTTP/1."), "{}", answered.escape_ascii());
    assert!(!answered.starts_with(b"HTTP/1.1 500"), "{}", answered.escape_ascii());
    if contains(&answered, SECRET.as_bytes()) {
        let end = input.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(input.len());
        assert!(!contains(&input[..end], b"\nhost: evil.example\r"), "a page for another host");
    }
});
