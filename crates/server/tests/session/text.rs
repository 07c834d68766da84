//! Classic text and meta, as transcripts. The replies to what both know were read from memcached 1.6.18.

use moneta_server::auth::Authenticator;
use moneta_server::node::NodeSettings;
use moneta_server::session::After;

use crate::talk::{Talk, expect, worker};

#[test]
fn values_are_stored_and_read() {
    expect(&[
        ("set a 5 0 3\r\nabc\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("gets a missing a\r\n", "VALUE a 5 3 1\r\nabc\r\nVALUE a 5 3 1\r\nabc\r\nEND\r\n"),
        ("get  a \n", "VALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("set e 0 0 0\r\n\r\nget e\r\n", "STORED\r\nVALUE e 0 0\r\n\r\nEND\r\n"),
        ("get a\r\r\n", "END\r\n"),
        ("set a 0 -1 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n"),
        ("set a +1 +0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 1 1\r\nx\r\nEND\r\n"),
        ("set a 0 0 1 other\r\ny\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n"),
    ]);
}

#[test]
fn conditions_decide_what_is_stored() {
    expect(&[
        ("add a 0 0 1\r\n1\r\nadd a 0 0 1\r\n2\r\n", "STORED\r\nNOT_STORED\r\n"),
        ("replace a 0 0 1\r\n3\r\nreplace b 0 0 1\r\n3\r\n", "STORED\r\nNOT_STORED\r\n"),
        ("append a 0 0 1\r\n4\r\nprepend a 0 0 1\r\n2\r\n", "STORED\r\nSTORED\r\n"),
        ("append b 0 0 1\r\n4\r\nprepend b 0 0 1\r\n2\r\n", "NOT_STORED\r\nNOT_STORED\r\n"),
        ("gets a\r\n", "VALUE a 0 3 4\r\n234\r\nEND\r\n"),
        ("cas a 0 0 1 9\r\n5\r\ncas a 0 0 1 4\r\n5\r\ncas b 0 0 1 4\r\n5\r\n", "EXISTS\r\nSTORED\r\nNOT_FOUND\r\n"),
        ("cas a 0 0 1 x\r\n6\r\n", "CLIENT_ERROR bad command line format\r\n"),
        ("cas a 0 0 1\r\n6\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ]);
}

#[test]
fn numbers_wrap_up_and_stop_at_zero() {
    expect(&[
        ("set n 0 0 1\r\n5\r\nincr n 1\r\ndecr n 100\r\n", "STORED\r\n6\r\n0\r\n"),
        ("set n 0 0 20\r\n18446744073709551615\r\nincr n 2\r\n", "STORED\r\n1\r\n"),
        ("incr n x\r\nincr n -1\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n".repeat(2).as_str()),
        ("incr n 18446744073709551616\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
        ("incr missing 1\r\ndecr missing 1\r\n", "NOT_FOUND\r\nNOT_FOUND\r\n"),
        ("incr n\r\nincr\r\n", "CLIENT_ERROR bad command line format\r\n".repeat(2).as_str()),
        ("incr n 1 2 3\r\n", "ERROR\r\n"),
        (
            "set s 0 0 1\r\na\r\nincr s 1\r\n",
            "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
    ]);
}

#[test]
fn deletes_touches_and_their_usage() {
    let usage = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
    expect(&[
        ("set a 0 0 1\r\nx\r\ntouch a 10\r\ntouch b 10\r\n", "STORED\r\nTOUCHED\r\nNOT_FOUND\r\n"),
        (
            "touch a x\r\ntouch a\r\n",
            "CLIENT_ERROR invalid exptime argument\r\nCLIENT_ERROR bad command line format\r\n",
        ),
        ("gat 0 a b\r\ngats 0 a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\nVALUE a 0 1 1\r\nx\r\nEND\r\n"),
        ("gat x a\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
        ("delete a 0\r\ndelete a\r\n", "DELETED\r\nNOT_FOUND\r\n"),
        ("delete a 1\r\n", "NOT_FOUND\r\n"),
        ("delete a b\r\n", usage),
        ("delete a b c d e\r\n", "ERROR\r\n"),
        ("touch a -1 noreply\r\nget a\r\n", "END\r\n"),
    ]);
}

#[test]
fn noreply_is_the_last_token_and_hides_everything() {
    expect(&[
        ("set a 0 0 1 noreply\r\n1\r\nadd a 0 0 1 noreply\r\n2\r\nincr a 1 noreply\r\nmn\r\n", "MN\r\n"),
        ("set a 0 0 1 noreply x\r\nx\r\n", "STORED\r\n"),
        ("set a x 0 1 noreply\r\n1\r\nincr a x noreply\r\nmn\r\n", "MN\r\n"),
        ("set a 0 0 3 noreply\r\nabcde\r\nmn\r\n", "CLIENT_ERROR bad command line format\r\nMN\r\n"),
        ("delete a noreply\r\ndelete a 0 noreply\r\ntouch a 0 noreply\r\nflush_all noreply\r\nmn\r\n", "MN\r\n"),
        ("verbosity 0 noreply\r\ncache_memlimit 64 noreply\r\nmn\r\n", "MN\r\n"),
    ]);
}

#[test]
fn what_is_no_command_is_an_error() {
    expect(&[
        ("foo\r\nGET a\r\n get a\r\nab\r\n", "ERROR\r\n".repeat(4).as_str()),
        ("version\r\n", "VERSION 1.6.45\r\n"),
        ("verbosity 1 2 3\r\n", "ERROR\r\n"),
        ("verbosity x\r\nverbosity 1\r\n", "CLIENT_ERROR bad command line format\r\nOK\r\n"),
        ("flush_all x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
        ("flush_all 1 2 3\r\n", "ERROR\r\n"),
        (
            "set a 0 0 3\r\nabcde\r\nmn\r\n",
            "CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nMN\r\n",
        ),
    ]);
}

#[test]
fn meta_reads_return_what_is_asked_in_the_order_asked() {
    expect(&[
        ("set a 5 0 3\r\nabc\r\n", "STORED\r\n"),
        ("mg a s v t f c h l k Oabc q\r\n", "VA 3 s3 t-1 f5 c1 h0 l0 ka Oabc\r\nabc\r\n"),
        ("mg a h\r\nmg a\r\nmg a v\r\n", "HD h1\r\nHD\r\nVA 3\r\nabc\r\n"),
        ("mg a v C1 c\r\nmg a v C2 c\r\n", "HD c1\r\nVA 3 c1\r\nabc\r\n"),
        ("mg x k O1\r\nmg x q k O1\r\nmn\r\n", "EN kx O1\r\nMN\r\n"),
        ("mg YQ== b k v\r\n", "VA 3 kYQ== b\r\nabc\r\n"),
        ("mg eA== b k\r\n", "EN keA== b\r\n"),
        ("mg n N30 v t\r\nmg n t\r\n", "VA 0 t30 W\r\n\r\nHD t30 Z\r\n"),
        ("mg n t T300\r\nmg n T200 t\r\n", "HD t30 Z\r\nHD t200 Z\r\n"),
        ("md n I T30\r\nmg n t\r\nmg n\r\n", "HD\r\nHD t30 X W\r\nHD Z X\r\n"),
    ]);
}

#[test]
fn meta_writes_deletes_and_numbers() {
    expect(&[
        ("ms a 1 c k O9 s\r\nx\r\n", "HD c1 ka O9 s1\r\n"),
        ("ms a 1 q\r\ny\r\nms a 1 q ME\r\nz\r\n", "NS\r\n"),
        ("ms a 2 MA s\r\nzz\r\nms a 1 MP s\r\nx\r\nmg a v\r\n", "HD s3\r\nHD s4\r\nVA 4\r\nxyzz\r\n"),
        ("ms b 1 MR\r\nx\r\nms b 1 MA\r\nx\r\nms b 1 MA N0\r\nx\r\n", "NS\r\nNS\r\nHD\r\n"),
        ("ms a 1 C99\r\nx\r\nms c 1 C1\r\nx\r\nms a 1 E77 c\r\nx\r\n", "EX\r\nNF\r\nHD c77\r\n"),
        ("ms YWI= 1 b k\r\nx\r\nmg ab v\r\n", "HD kYWI= b\r\nVA 1\r\nx\r\n"),
        ("md a C1 k O1\r\nmd a C77 q\r\nmd a q k\r\n", "EX ka O1\r\nNF ka\r\n"),
        (
            "ma n\r\nma n N0 J13 v\r\nma n v c\r\nma n MD D3 v\r\n",
            "NF\r\nVA 2\r\n13\r\nVA 2 c8\r\n14\r\nVA 2\r\n11\r\n",
        ),
        ("ma n q\r\nma n M- D100 v t k O1\r\n", "VA 1 t-1 kn O1\r\n0\r\n"),
        ("mn\r\nme\r\nme x\r\n", "MN\r\nCLIENT_ERROR bad command line format\r\nEN\r\n"),
        ("me n\r\n", "ME n exp=-1 la=0 cas=11 fetch=no cls=1 size=3\r\n"),
    ]);
}

#[test]
fn meta_flags_are_checked() {
    let long = "O".repeat(33);
    expect(&[
        ("mg a s s\r\nmd a s s\r\n", "CLIENT_ERROR duplicate flag\r\n".repeat(2).as_str()),
        ("mg a Z\r\n", "CLIENT_ERROR invalid flag\r\n"),
        ("md a Z\r\nma a Dx\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n".repeat(2).as_str()),
        ("mg a Tx\r\nms a 1 Cx\r\nx\r\n", "CLIENT_ERROR bad token in command line format\r\n".repeat(2).as_str()),
        ("ms a 1 Fx\r\nx\r\n", "CLIENT_ERROR bad command line format\r\n"),
        (
            &format!("mg a {long}\r\nms a 1 {long}\r\nx\r\n"),
            "CLIENT_ERROR opaque token too long\r\n".repeat(2).as_str(),
        ),
        ("mg !!! b\r\n", "CLIENT_ERROR error decoding key\r\n"),
        ("ms a 1 MX\r\nx\r\n", "CLIENT_ERROR invalid mode for ms M token\r\n"),
        ("ms a 1 MEE\r\nx\r\n", "CLIENT_ERROR incorrect length for M token\r\n"),
        ("ma a MX\r\n", "CLIENT_ERROR invalid mode for ma M token\r\n"),
        ("mg\r\nmx a\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
        ("ms a 2 q\r\nabcd", "CLIENT_ERROR bad data chunk\r\n"),
        (&format!("mg a{}\r\n", " s".repeat(18)), "CLIENT_ERROR duplicate flag\r\n"),
        (&format!("mg a{}\r\n", " s".repeat(19)), "CLIENT_ERROR options flags are too long\r\n"),
        ("mg a b c f h k l q s t u v C1 E1 I N1 O1 P1 L1 R1 T1\r\n", "CLIENT_ERROR options flags are too long\r\n"),
    ]);
}

#[test]
fn a_flush_takes_what_was_there() {
    expect(&[
        ("set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\n", "STORED\r\nOK\r\nEND\r\n"),
        ("set a 0 0 1\r\nx\r\nflush_all 10\r\nget a\r\n", "STORED\r\nOK\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
        ("flush_all 0\r\nflush_all -1\r\n", "OK\r\nOK\r\n"),
    ]);
}

#[test]
fn each_meta_flag_that_sets_an_expiry_is_shown_by_the_t_behind_it() {
    expect(&[
        ("mg a N50 t T500\r\nmg a t\r\n", "HD t50 W\r\nHD t500 Z\r\n"),
        ("mg b T500 t N50\r\nmg b t\r\n", "HD t500 W\r\nHD t50 Z\r\n"),
        ("mg c t T500 N50\r\n", "HD t-1 W\r\n"),
        // N says nothing about an item that is there.
        ("set d 0 100 1\r\n1\r\nmg d N50 t T500\r\n", "STORED\r\nHD t100\r\n"),
        ("ma e N50 t T500\r\nma e t\r\n", "HD t50\r\nHD t500\r\n"),
        ("ma f T500 t N50\r\nma f t\r\n", "HD t500\r\nHD t50\r\n"),
        ("ma f N70 t T500\r\n", "HD t50\r\n"),
    ]);
}

#[test]
fn cas_zero_compares_where_memcached_compares() {
    for (command, answer) in [
        ("md a C0", "EX\r\n"),
        ("ma a C0 v", "VA 1\r\n2\r\n"),
        ("ms a 1 C0\r\n7", "EX\r\n"),
        ("ms a 1 C0 I\r\n7", "EX\r\n"),
        ("ms a 1 C0 I MR\r\n7", "EX\r\n"),
        ("ms a 1 C0 ME\r\n7", "NS\r\n"),
        ("ms a 1 C0 MA\r\n7", "HD\r\n"),
        ("ms a 1 C0 MP\r\n7", "HD\r\n"),
        ("cas a 0 0 1 0\r\n7", "EXISTS\r\n"),
    ] {
        expect(&[("set a 0 0 1\r\n1\r\n", "STORED\r\n"), (&format!("{command}\r\n"), answer)]);
    }
}

#[test]
fn expiration_times_of_more_than_31_bits_are_negative_or_refused() {
    for wide in ["2147483648", "4294967295", "9999999999"] {
        expect(&[
            (&format!("set k 0 {wide} 1\r\nv\r\nget k\r\n"), "STORED\r\nEND\r\n"),
            (&format!("add k 0 {wide} 1\r\nv\r\nget k\r\n"), "STORED\r\nEND\r\n"),
            ("set k 0 0 1\r\nv\r\n", "STORED\r\n"),
            (&format!("touch k {wide}\r\ngat {wide} k\r\n"), &"CLIENT_ERROR invalid exptime argument\r\n".repeat(2)),
            (&format!("ms k 1 T{wide}\r\nw\r\n"), "CLIENT_ERROR bad token in command line format\r\n"),
            (&format!("mg k T{wide}\r\n"), "CLIENT_ERROR bad token in command line format\r\n"),
            (&format!("flush_all {wide}\r\n"), "CLIENT_ERROR invalid exptime argument\r\n"),
            ("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n"),
        ]);
    }
    expect(&[("set k 0 2147483647 1\r\nv\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n")]);
}

#[test]
fn a_known_command_that_lacks_a_token_and_a_line_of_blanks_or_one_letter_are_of_a_bad_format() {
    let lines = "get\r\nget \r\ngets\r\ngat\r\ngat 0\r\ngats 0 \r\nincr\r\nincr k\r\n\
        decr k\r\ntouch\r\ntouch k\r\ndelete\r\nmg\r\nmd\r\nma \r\nme\r\nverbosity\r\n\r\n\n   \r\nx\r\n?\n";
    for line in lines.split_inclusive('\n') {
        expect(&[(line, "CLIENT_ERROR bad command line format\r\n"), ("mn\r\n", "MN\r\n")]);
    }
}

/// A page in a browser can make it post to any port of the machine: its body must not be taken for commands.
#[test]
fn what_looks_like_http_closes_the_connection_without_a_word() {
    for line in ["GET / HTTP/1.0", "PUT /x HTTP/1.1", "DELETE HTTP/1.1", "POST / HTTP/2 "] {
        let worker = worker(NodeSettings::default(), Authenticator::off());
        let mut talk = Talk::new();
        assert_eq!(talk.say(&worker, format!("{line}\r\nset k 0 0 1\r\nx\r\n").as_bytes()), b"", "{line}");
        assert_eq!(talk.after, After::CloseNow, "{line}");
    }
    expect(&[("set HTTP/1.1 0 0 1\r\nx\r\nget HTTP/1.1\r\n", "STORED\r\nVALUE HTTP/1.1 0 1\r\nx\r\nEND\r\n")]);
}

#[test]
fn a_refused_meta_write_answers_c_with_no_version() {
    expect(&[
        ("set k 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("ms k 2 c C99999\r\nyy\r\nms k 2 k c O1 C99999\r\nyy\r\n", "EX c0\r\nEX kk c0 O1\r\n"),
        ("ms k 2 c ME\r\nyy\r\nms n 2 c MR\r\nyy\r\nms n 2 c C5\r\nyy\r\n", "NS c0\r\nNS c0\r\nNF c0\r\n"),
        ("set n 0 0 1\r\n1\r\nma n c C99\r\nmd n c C99\r\n", "STORED\r\nEX\r\nEX\r\n"),
    ]);
}
