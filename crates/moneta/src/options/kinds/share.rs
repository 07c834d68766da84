//! A share of the keys that a relay carries.

use moneta_options::kinds::Kind;
use moneta_relay::Share;

/// `NUMBER/OF`, or `all`.
pub struct KeyShare;

impl Kind for KeyShare {
    type Value = Share;

    fn read(&self, text: &str) -> Option<Share> {
        if text == "all" { Some(Share::ALL) } else { text.parse().ok() }
    }

    fn write(&self, share: &Share) -> String {
        if share.is_all() { "all".to_owned() } else { share.to_string() }
    }

    fn range(&self) -> String {
        format!("all, or a number and of how many: 1/3; of {} at most", moneta_relay::share::SHARES_MAX)
    }

    fn placeholder(&self) -> String {
        "NUMBER/OF".into()
    }
}
