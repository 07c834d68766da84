//! Guards log-ins: by secret, password, certificate and bearer; and what they come to when users change.

use std::sync::Arc;

use moneta_net::CertificateNames;
use moneta_users::{Checked, LoggedIn, Right, Roster, Users, secret};

fn user(name: &str, rest: &str) -> String {
    format!("[[user]]\nname = \"{name}\"\nrights = [\"read\"]\n{rest}\n")
}

fn secrets(stored: &[&secret::StoredSecret]) -> String {
    let quoted: Vec<String> = stored.iter().map(|stored| format!("\"{stored}\"")).collect();
    format!("secrets = [{}]", quoted.join(", "))
}

fn users(text: &str) -> Arc<Users> {
    Users::of(Roster::parse(text).unwrap())
}

/// What a name and a secret come to, slow or not.
fn log_in(users: &Users, name: &str, secret: &str) -> Option<LoggedIn> {
    match users.by_secret(name.as_bytes(), secret.as_bytes()) {
        Checked::Right(logged_in) => Some(logged_in),
        Checked::Wrong => None,
        Checked::Slow(check) => pollster::block_on(users.check_apart(check).expect("the queue has room")),
    }
}

#[test]
fn a_user_logs_in_by_any_of_its_secrets() {
    let ((one, kept_one), (two, kept_two)) = (secret::generate().unwrap(), secret::generate().unwrap());
    let users = users(&(user("ann", &secrets(&[&kept_one, &kept_two])) + &user("bob", "")));
    for secret in [&one, &two] {
        assert_eq!(log_in(&users, "ann", secret).unwrap().user().name(), "ann");
    }
    for (name, secret) in [("ann", "x"), ("ann", ""), ("bob", &one), ("eve", &one), ("", "")] {
        assert!(log_in(&users, name, secret).is_none(), "{name}");
    }
}

#[test]
fn passwords_are_checked_apart_and_so_are_names_that_nobody_has() {
    let kept = secret::of_password("correct-horse").unwrap();
    let users = users(&user("ann", &secrets(&[&kept])));
    for name in ["ann", "eve"] {
        assert!(matches!(users.by_secret(name.as_bytes(), b"x"), Checked::Slow(_)), "{name}: both take as long");
    }
    assert_eq!(log_in(&users, "ann", "correct-horse").unwrap().user().name(), "ann");
    assert!(log_in(&users, "ann", "wrong-horse").is_none() && log_in(&users, "eve", "correct-horse").is_none());
    // A bearer is checked at once, or not at all.
    assert!(users.by_bearer(b"ann:correct-horse").is_none());
}

#[test]
fn a_bearer_is_a_user_with_a_secret() {
    let (secret, kept) = secret::generate().unwrap();
    let users = users(&user("ann", &secrets(&[&kept])));
    let token = format!("ann:{secret}");
    assert_eq!(users.by_bearer(token.as_bytes()).unwrap().user().name(), "ann");
    let basic = {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(&token)
    };
    for header in [format!("Bearer {token}"), format!("bearer  {token}"), format!("Basic {basic}")] {
        assert!(users.by_authorization(header.as_bytes()).is_some(), "{header}");
    }
    for header in [token.as_str(), "", "Bearer", "Basic !", "Digest x", "Bearer ann", &format!("Basic {token}")] {
        assert!(users.by_authorization(header.as_bytes()).is_none(), "{header}");
    }
}

#[test]
fn a_log_in_lasts_while_its_user_has_what_it_logged_in_by() {
    let ((one, kept_one), (two, kept_two)) = (secret::generate().unwrap(), secret::generate().unwrap());
    let users = users(&user("ann", &secrets(&[&kept_one])));
    let by_one = log_in(&users, "ann", &one).unwrap();
    assert_eq!(by_one.generation(), users.generation());
    // A second secret, and more rights.
    let text = user("ann", &secrets(&[&kept_one, &kept_two])).replace("\"read\"", "\"read\", \"write\"");
    users.replace(Roster::parse(&text).unwrap());
    assert_ne!(by_one.generation(), users.generation());
    let renewed = users.renew(&by_one).unwrap();
    assert!(renewed.user().rights().has(Right::Write) && !by_one.user().rights().has(Right::Write));
    let by_two = log_in(&users, "ann", &two).unwrap();
    // The first one is dropped.
    users.replace(Roster::parse(&user("ann", &secrets(&[&kept_two]))).unwrap());
    assert!(users.renew(&by_one).is_none() && users.renew(&by_two).is_some());
    users.replace(Roster::parse(&user("bob", &secrets(&[&kept_two]))).unwrap());
    assert!(users.renew(&by_two).is_none(), "another user has its secret");
}

#[test]
fn a_certificate_logs_in_as_long_as_its_names_are_the_user_s() {
    let users = users(&user("ann", "certificates = [\"spiffe://x/*\"]"));
    let names = Arc::new(CertificateNames { dns: Vec::new(), uris: vec!["spiffe://x/1".into()] });
    let logged_in = users.by_certificate(&names).unwrap();
    users.replace(Roster::parse(&user("ann", "certificates = [\"spiffe://x/1\"]")).unwrap());
    assert!(users.renew(&logged_in).is_some());
    users.replace(Roster::parse(&(user("ann", "") + &user("bob", "certificates = [\"spiffe://x/1\"]"))).unwrap());
    assert!(users.renew(&logged_in).is_none());
    assert_eq!(users.by_certificate(&names).unwrap().user().name(), "bob");
}

#[test]
fn a_flood_of_slow_checks_has_a_bound() {
    let kept = secret::of_password("correct-horse").unwrap();
    let users = users(&user("ann", &secrets(&[&kept])));
    let mut waiting = Vec::new();
    let refused = (0..1000).find(|_| {
        let Checked::Slow(check) = users.by_secret(b"ann", b"wrong") else { panic!("it is slow") };
        let answer = users.check_apart(check);
        let is_refused = answer.is_none();
        waiting.extend(answer);
        is_refused
    });
    assert!(refused.is_some(), "the queue has no bound");
    // Those who gave up make room.
    waiting.clear();
    assert!(log_in(&users, "ann", "correct-horse").is_some());
}

#[test]
fn a_hundred_thousand_users_are_found() {
    let text: String = (0..100_000)
        .map(|number| user(&format!("user-{number}"), &format!("certificates = [\"spiffe://x/{number}/*\"]")))
        .collect();
    let users = users(&text);
    assert_eq!(users.counts().users, 100_000);
    assert!(users.roster().by_name("user-99999").is_some());
    let names = Arc::new(CertificateNames { dns: Vec::new(), uris: vec!["spiffe://x/77777/y".into()] });
    assert_eq!(users.by_certificate(&names).unwrap().user().name(), "user-77777");
}
