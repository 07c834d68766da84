//! What the differential test leaves out because Debian's memcached 1.6.18 answers in another way, or by chance: here the
//! replies of memcached 1.6.45, and those Moneta chose, are pinned one by one.

use anyhow::{Context, Result, ensure};
use moneta_conformance::options::{Kind, Options};
use moneta_conformance::server::{Server, subject_kind};

/// Sends `request` and `mn` on a new connection; `expected` is everything before MN.
fn answers(server: &Server, request: &str, expected: &[&str]) -> Result<()> {
    let mut client = server.connect()?;
    let mut lines = client.ask_until(&format!("{request}mn\r\n"), "MN").with_context(|| format!("{request:?}"))?;
    lines.pop();
    ensure!(lines == expected, "{request:?} was answered by {lines:?}, not {expected:?}");
    Ok(())
}

/// A server, unless the tests run against memcached, which is too old for these.
fn start() -> Result<Option<Server>> {
    if subject_kind()? == Kind::Memcached {
        return Ok(None);
    }
    Server::start_subject(&Options::default()).map(Some)
}

#[test]
fn a_delete_takes_a_number_and_me_answers_whatever_the_key() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    answers(&server, "set k 0 0 1\r\nx\r\ndelete k 5\r\nget k\r\n", &["STORED", "DELETED", "END"])?;
    answers(&server, "set k 0 0 1\r\nx\r\ndelete k 5 noreply\r\nme k b\r\n", &["STORED", "EN"])?;
    answers(&server, "shutdown\r\n", &["ERROR: shutdown not enabled"])
}

#[test]
fn a_line_that_lacks_a_token_is_of_a_bad_format() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    for line in ["get", "gat 0", "incr k", "touch k", "delete", "mg", "", "   ", "x"] {
        answers(&server, &format!("{line}\r\n"), &["CLIENT_ERROR bad command line format"])?;
    }
    Ok(())
}

#[test]
fn an_expiry_of_more_than_31_bits_is_refused_where_nothing_is_stored() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    let error = "CLIENT_ERROR invalid exptime argument";
    answers(&server, "touch k 4294967295\r\ngat 2147483648 k\r\n", &[error, error])?;
    answers(&server, "ms k 1 T4294967295\r\nx\r\n", &["CLIENT_ERROR bad token in command line format"])
}

#[test]
fn a_leading_space_is_an_error() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    answers(&server, " get a\r\n", &["ERROR"])
}

#[test]
fn a_matching_cas_token_leaves_the_value_out() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    answers(&server, "ms k 1 E77\r\nx\r\nmg k c v C77\r\nmg k c v C78\r\n", &["HD", "HD c77", "VA 1 c77", "x"])
}

#[test]
fn an_explicit_cas_value_is_stored() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    answers(
        &server,
        "ms k 1 E500\r\n1\r\nmg k c\r\nma k E900 v\r\nmg k c\r\n",
        &["HD", "HD c500", "VA 1", "2", "HD c900"],
    )
}

#[test]
fn md_x_drops_the_value_and_keeps_the_item() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    answers(&server, "ms k 3 F5\r\nabc\r\nmd k x\r\nmg k s v\r\n", &["HD", "HD", "VA 0 s0", ""])
}

#[test]
fn append_with_a_ttl_makes_what_is_not_there() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    let mut client = server.connect()?;
    ensure!(client.ask("ms k 1 MA N100\r\nx\r\n")? == "HD");
    let head = client.ask("mg k v t\r\n")?;
    // Seconds may have passed in between.
    let left: u32 = head.strip_prefix("VA 1 t").with_context(|| format!("the item has no end: {head}"))?.parse()?;
    ensure!((1..=100).contains(&left), "{head}");
    ensure!(client.line()? == "x");
    Ok(())
}

#[test]
fn a_repeated_flag_is_named_by_every_meta_command() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    for request in ["mg k k k\r\n", "md k k k\r\n", "ma k k k\r\n", "ms k 1 k k\r\nx\r\n"] {
        answers(&server, request, &["CLIENT_ERROR duplicate flag"])?;
    }
    Ok(())
}

#[test]
fn numbers_from_half_the_range_on_are_numbers() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    let request = "set k 0 0 20\r\n18446744073709551614\r\nincr k 1\r\nincr k 1\r\ndecr k 1\r\n";
    answers(&server, request, &["STORED", "18446744073709551615", "0", "0"])
}

#[test]
fn arithmetic_behind_an_unread_reply_pads_as_it_always_does() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    let request = "set k 0 0 3\r\n100\r\nget k\r\ndecr k 1\r\nget k\r\n";
    answers(&server, request, &["STORED", "VALUE k 0 3", "100", "END", "99", "VALUE k 0 3", "99 ", "END"])
}

#[test]
fn a_too_long_key_in_a_get_leaves_earlier_replies_alone() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    let request = format!("set k 0 0 1\r\nx\r\ngat 0 {}\r\n", "k".repeat(251));
    answers(&server, &request, &["STORED", "CLIENT_ERROR bad command line format"])
}

#[test]
fn a_delayed_flush_does_not_bring_back_what_was_flushed() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    answers(&server, "set k 0 0 1\r\nx\r\nflush_all\r\nflush_all 1000\r\nget k\r\n", &["STORED", "OK", "OK", "END"])
}

#[test]
fn q_hides_the_creation_of_a_counter() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    answers(&server, "ma k N0 J5 q\r\nmg k v\r\n", &["VA 1", "5"])
}

#[test]
fn a_created_base64_key_stays_one() -> Result<()> {
    let Some(server) = start()? else { return Ok(()) };
    let request = "mg AAEgDQr/ b v N0\r\nmd AAEgDQr/ b k q\r\nmg AAEgDQr/ b k v\r\n";
    answers(&server, request, &["VA 0 W", "", "EN kAAEgDQr/ b"])
}
