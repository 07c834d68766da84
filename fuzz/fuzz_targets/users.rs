//! Any text as a file of users. Nothing panics, who is in it is found by its name, and what is edited is taken and has the others as
//! they were.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moneta_users::edit::{self, NewUser};
use moneta_users::{Right, Rights, Roster};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let roster = match Roster::parse(text) {
        Ok(roster) => roster,
        Err(wrong) => {
            assert!(wrong.line >= 1 && !wrong.reason.contains('\n'), "a reason is a line: {wrong}");
            return;
        }
    };
    for user in roster.users() {
        assert_eq!(roster.by_name(user.name()), Some(user));
    }
    let new = NewUser { name: "new".into(), rights: Rights::of(Right::Read), ..NewUser::default() };
    let Ok(with) = edit::add(text, &new) else { return };
    let edited = Roster::parse(&with).expect("what is edited is taken");
    assert_eq!(edited.users().len(), roster.users().len() + 1);
    assert!(roster.users().iter().all(|user| edited.by_name(user.name()) == Some(user)), "the others are as they were");
    let without = edit::remove(&with, "new").expect("it is there");
    assert_eq!(Roster::parse(&without).expect("what is edited is taken").users(), roster.users());
});
