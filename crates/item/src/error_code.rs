//! The errors that Moneta's processes tell each other and tell apart: one table of their codes and sentences.

/// An error of a node that its peers understand, and do not only pass on.
///
/// A peer that has asked for codes gets `SERVER_ERROR [CODE] SENTENCE`; all others, and so every client, get the sentence alone.
/// Builds up to 9d43525 ask for nothing and compare whole sentences, so a sentence of this table never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// A version is further ahead of the node's clock than it takes. Nothing was done.
    ClockAhead,
    /// The node may hold what is old, since it still reads other copies' feeds. Nothing was done.
    CatchingUp,
    /// The store keeps no versions. Nothing was done.
    NoVersions,
    /// Over a limit of a second. Nothing was done, and the server is well.
    OverLimit,
}

impl ErrorCode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ClockAhead, Self::CatchingUp, Self::NoVersions, Self::OverLimit];

    /// The code: lower-case letters and hyphens.
    pub const fn code(self) -> &'static str {
        match self {
            Self::ClockAhead => "ahead",
            Self::CatchingUp => "catching-up",
            Self::NoVersions => "no-versions",
            Self::OverLimit => "over-limit",
        }
    }

    /// What is said to people. Of [`ErrorCode::OverLimit`] only how it begins: which limit follows.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::ClockAhead => "the version is ahead of this node's clock",
            Self::CatchingUp => "this node catches up with other copies",
            Self::NoVersions => "this store keeps no versions",
            Self::OverLimit => "over the limit",
        }
    }

    /// The error that a server's words tell, and the words without a code. `words` is what follows `SERVER_ERROR `. Words without
    /// a code are those of an older build, or of another server; a code that this build does not know is taken off.
    pub fn read(words: &str) -> (Option<Self>, &str) {
        let coded = words.strip_prefix('[').and_then(|rest| rest.split_once("] "));
        if let Some((code, sentence)) = coded.filter(|(code, _)| is_code(code)) {
            return (Self::ALL.into_iter().find(|known| known.code() == code), sentence);
        }
        let tells = |known: &Self| match known {
            Self::OverLimit => words.starts_with(known.sentence()),
            _ => words == known.sentence(),
        };
        (Self::ALL.into_iter().find(tells), words)
    }
}

fn is_code(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_with_any_sentence_and_sentences_without_a_code() {
        for known in ErrorCode::ALL {
            assert_eq!(ErrorCode::read(known.sentence()), (Some(known), known.sentence()));
            let coded = format!("[{}] in other words", known.code());
            assert_eq!(ErrorCode::read(&coded), (Some(known), "in other words"));
        }
        let limit = "over the limit of bytes a second of this app";
        assert_eq!(ErrorCode::read(limit), (Some(ErrorCode::OverLimit), limit));
    }

    #[test]
    fn other_words_tell_no_error_of_the_table() {
        assert_eq!(ErrorCode::read("[of-tomorrow] why"), (None, "why"));
        for words in ["", "[", "[]", "[] x", "[ahead]", "[Ahead] x", "[::1]:11211 failed: x", "1 of 3 copies took it"] {
            assert_eq!(ErrorCode::read(words), (None, words));
        }
        // A proxy passes it on: it is not the proxy's own.
        let passed_on = "10.0.0.7:11211: the version is ahead of this node's clock";
        assert_eq!(ErrorCode::read(passed_on), (None, passed_on));
    }
}
