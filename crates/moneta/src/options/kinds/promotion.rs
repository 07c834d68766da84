//! Which hits on SSD bring their item into RAM, as an operator writes it.

use moneta_store::Promotion;

use crate::options::value::percent;

/// Reads `always`, `second` or a share with its sign: a number alone could be meant as a count of hits.
pub fn read(text: &str) -> Option<Promotion> {
    match text {
        "always" => Some(Promotion::Always),
        "second" => Some(Promotion::SecondHit),
        _ => text.ends_with('%').then(|| percent(text).map(Promotion::Percent))?,
    }
}

/// Writes it in the same way.
pub fn written(promotion: Promotion) -> String {
    match promotion {
        Promotion::Always => "always".into(),
        Promotion::SecondHit => "second".into(),
        Promotion::Percent(share) => format!("{share}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_needs_its_sign() {
        assert_eq!(read("25%"), Some(Promotion::Percent(25)));
        assert_eq!(read("0%"), Some(Promotion::Percent(0)));
        for text in ["2", "25", "101%", "%", "sometimes", ""] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
