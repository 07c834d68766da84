//! Guesses what a misspelt name was meant to be.

/// How alike (Jaro-Winkler, 0 to 1) two names have to be for one to be a guess at the other.
const ALIKE: f64 = 0.85;

/// The name of `known` that `name` is most like, if it is like any.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (strsim::jaro_winkler(candidate, name), candidate))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_what_is_alike_is_guessed() {
        let known = || ["memory", "max_item_size", "port"].into_iter();
        assert_eq!(nearest("memroy", known()), Some("memory"));
        assert_eq!(nearest("max_item_sizes", known()), Some("max_item_size"));
        assert_eq!(nearest("zzz", known()), None);
    }
}
