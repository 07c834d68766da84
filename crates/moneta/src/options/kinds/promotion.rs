//! Which hits on SSD bring their item into RAM, as an operator writes it.

use moneta_layers::Promotion;
use moneta_options::kinds::Kind;
use moneta_options::kinds::units::percent;

/// Which hits below bring their item up: `always`, `second` or a share with its sign, since a number alone could be meant as a
/// count of hits.
pub struct PromotionRule;

impl Kind for PromotionRule {
    type Value = Promotion;

    fn read(&self, text: &str) -> Option<Promotion> {
        match text {
            "always" => Some(Promotion::Always),
            "second" => Some(Promotion::SecondHit),
            _ => text.ends_with('%').then(|| percent(text).map(Promotion::Percent))?,
        }
    }

    fn write(&self, promotion: &Promotion) -> String {
        match promotion {
            Promotion::Always => "always".into(),
            Promotion::SecondHit => "second".into(),
            Promotion::Percent(share) => format!("{share}%"),
        }
    }

    fn range(&self) -> String {
        "always, second or a share from 0% to 100%".into()
    }

    fn placeholder(&self) -> String {
        "always|second|PERCENT".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_needs_its_sign() {
        assert_eq!(PromotionRule.read("25%"), Some(Promotion::Percent(25)));
        assert_eq!(PromotionRule.read("0%"), Some(Promotion::Percent(0)));
        for text in ["2", "25", "101%", "%", "sometimes", ""] {
            assert_eq!(PromotionRule.read(text), None, "{text}");
        }
    }
}
