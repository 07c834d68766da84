//! The same random commands to memcached and to the server under test: the replies must be equal byte for byte, but for
//! the rules in `moneta_conformance::differential::rules`.
//!
//! `MONETA_SEED` repeats a run, `MONETA_DIFF_COMMANDS` sets its length (over all protocols).

use anyhow::Result;
use moneta_conformance::differential::campaign::{Plan, run};
use moneta_conformance::differential::stream::Protocol;
use moneta_conformance::differential::tiers::Tiers;
use moneta_conformance::options::{Kind, LogIn, Options, TlsFiles};
use moneta_conformance::proxied::Proxied;
use moneta_conformance::server::{Server, subject_kind};
use moneta_conformance::stacks::Stack;
use moneta_testkit::process::{self, printed};

/// Small enough that values around the limit stay cheap; memcached 1.6.18 crashes with a much smaller one.
const SMALL_ITEMS_KIBIBYTES: u32 = 512;
/// Commands a protocol to a node that has every item on SSD only: enough to meet every command on every kind of item.
const SSD_COMMANDS: usize = 20_000;
/// Commands a protocol over TLS and a log-in, which change none of them.
const TLS_COMMANDS: usize = 10_000;
/// Commands a protocol to each other stack.
const STACK_COMMANDS: usize = 4_000;
/// Commands a protocol to a proxy, of which many take two rounds to three nodes.
const PROXY_COMMANDS: usize = 3_000;
/// So few in a stream that a busy machine plays it before a second is over, as most comparisons want it.
const PROXY_STREAM_COMMANDS: usize = 50;
/// Values of a mebibyte are slow, so few of them are sent.
const LARGE_ITEM_COMMANDS: usize = 3_000;

/// memcached against itself differs by chance in fewer than one run of ten; more than this is not chance.
const UNREPEATED: usize = 3;

fn options(item_kibibytes: Option<u32>) -> Options {
    Options {
        memory_mebibytes: Some(1024),
        threads: Some(1),
        item_kibibytes,
        no_background_work: true,
        ..Options::default()
    }
}

fn answers_are_equal(protocol: Protocol) -> Result<()> {
    let options = options(Some(SMALL_ITEMS_KIBIBYTES));
    let (reference, subject) = (Server::start(Kind::Memcached, &options)?, Server::start_subject(&options)?);
    let plan = Plan::from_environment(protocol, SMALL_ITEMS_KIBIBYTES as usize * 1024)?;
    let outcome = run(plan, &reference, &subject)?;
    println!("{}", outcome.report());
    assert!(outcome.differences.is_empty(), "{}", outcome.report());
    assert!(outcome.unrepeated <= UNREPEATED, "{}", outcome.report());
    assert_eq!(outcome.unanswered, 0, "{}", outcome.report());
    assert!(outcome.commands >= plan.commands, "only {} commands were sent", outcome.commands);
    Ok(())
}

#[test]
fn text_commands_are_answered_as_memcached_answers_them() -> Result<()> {
    answers_are_equal(Protocol::Text)
}

#[test]
fn meta_commands_are_answered_as_memcached_answers_them() -> Result<()> {
    answers_are_equal(Protocol::Meta)
}

#[test]
fn binary_commands_are_answered_as_memcached_answers_them() -> Result<()> {
    answers_are_equal(Protocol::Binary)
}

#[test]
fn items_that_are_only_on_ssd_are_answered_as_memcached_answers_its_own() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = Options { only_on_ssd: Some(folder.path().into()), ..options(Some(SMALL_ITEMS_KIBIBYTES)) };
    let (reference, subject) = (Server::start(Kind::Memcached, &options)?, Server::start_subject(&options)?);
    all_protocols_are_answered_alike(&reference, &subject, |plan| Plan { commands: SSD_COMMANDS, ..plan })?;
    if subject.kind() == Kind::Moneta {
        assert_eq!(subject.connect()?.stat("ram_items")?, 0, "nothing came into RAM");
    }
    Ok(())
}

fn all_protocols_are_answered_alike(reference: &Server, subject: &Server, plan: impl Fn(Plan) -> Plan) -> Result<()> {
    Protocol::ALL.into_iter().try_for_each(|protocol| answered_alike(reference, subject, protocol, &plan))
}

fn answered_alike(reference: &Server, subject: &Server, protocol: Protocol, plan: impl Fn(Plan) -> Plan) -> Result<()> {
    let plan = plan(Plan::from_environment(protocol, SMALL_ITEMS_KIBIBYTES as usize * 1024)?);
    let outcome = run(plan, reference, subject)?;
    println!("{}", outcome.report());
    assert!(outcome.differences.is_empty(), "{}", outcome.report());
    assert!(outcome.unrepeated <= UNREPEATED, "{}", outcome.report());
    assert_eq!(outcome.unanswered, 0, "{}", outcome.report());
    Ok(())
}

/// Over TLS, as a user who logs in by text or SASL PLAIN; memcached's clients log in by text where they speak it (`-Y`). memcached is
/// asked in plain: over TLS, 1.6.18 does not look again at bytes that it has decrypted and not read, so that requests after a large
/// one wait until more come.
#[test]
fn over_tls_a_user_is_answered_as_memcached_answers_in_plain() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (users, passwords) = (folder.path().join("users.toml"), folder.path().join("passwords"));
    let rights = "read,write,flush,list,replicate,stats,operate";
    let secret = printed(process::moneta()?.args(["user", "add"]).arg(&users).args(["client", "--rights", rights]));
    let log_in = LogIn { name: "client".into(), secret: secret.trim().into() };
    std::fs::write(&passwords, format!("{}:{}\n", log_in.name, log_in.secret))?;
    let plain = options(Some(SMALL_ITEMS_KIBIBYTES));
    let asks_text = Options { auth_file: Some(passwords), log_in: Some(log_in.clone()), ..plain.clone() };
    // memcached in the subject's place has no users.
    let log_in = (subject_kind()? == Kind::Moneta).then_some(log_in);
    let subject = Server::start_subject(&Options {
        tls: Some(TlsFiles::write(folder.path())?),
        tiers: vec!["--users".into(), users.into()],
        log_in,
        ..plain.clone()
    })?;
    for protocol in Protocol::ALL {
        let is_binary = protocol == Protocol::Binary;
        let reference = Server::start(Kind::Memcached, if is_binary { &plain } else { &asks_text })?;
        answered_alike(&reference, &subject, protocol, |plan| Plan { commands: TLS_COMMANDS, ..plan })?;
    }
    if subject.kind() == Kind::Moneta {
        assert_eq!(subject.connect()?.ask("get k\r\n")?, "CLIENT_ERROR unauthenticated");
    }
    Ok(())
}

mod on {
    moneta_conformance::on_every_stack!(super::answers_are_equal_on);
}

fn answers_are_equal_on(stack: Stack) -> Result<()> {
    let options = options(Some(SMALL_ITEMS_KIBIBYTES));
    let (reference, node) = (Server::start(Kind::Memcached, &options)?, stack.start(&options)?);
    all_protocols_are_answered_alike(&reference, &node.server, |plan| Plan {
        commands: STACK_COMMANDS,
        tiers: Tiers::of(stack),
        ..plan
    })
}

#[test]
fn values_around_the_default_limit_are_answered_as_memcached_answers_them() -> Result<()> {
    let options = options(None);
    let (reference, subject) = (Server::start(Kind::Memcached, &options)?, Server::start_subject(&options)?);
    for protocol in Protocol::ALL {
        let plan = Plan { commands: LARGE_ITEM_COMMANDS, ..Plan::from_environment(protocol, 1024 * 1024)? };
        let outcome = run(plan, &reference, &subject)?;
        println!("{}", outcome.report());
        assert!(outcome.differences.is_empty(), "{}", outcome.report());
    }
    Ok(())
}

#[test]
fn a_proxy_over_three_nodes_answers_as_memcached_does() -> Result<()> {
    answers_are_equal_through_a_proxy(Kind::Moneta)
}

#[test]
fn a_proxy_over_three_memcacheds_answers_as_one_of_them_does() -> Result<()> {
    answers_are_equal_through_a_proxy(Kind::Memcached)
}

fn answers_are_equal_through_a_proxy(nodes: Kind) -> Result<()> {
    let options = options(Some(SMALL_ITEMS_KIBIBYTES));
    let (reference, proxied) = (Server::start(Kind::Memcached, &options)?, Proxied::start(nodes, &options)?);
    all_protocols_are_answered_alike(&reference, &proxied.server, |plan| Plan {
        commands: PROXY_COMMANDS,
        stream_commands: PROXY_STREAM_COMMANDS,
        tiers: Proxied::tiers(nodes),
        ..plan
    })
}
