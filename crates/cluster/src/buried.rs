//! Whether copies that show nothing of a key remember that an item of another copy was deleted.

use moneta_store::{Item, Op, OwnedKey, Put};

use crate::call::Call;
use crate::spread::Spread;
use crate::writes::Answer;

/// What copies remember of an item that they do not show.
pub(crate) enum Remembered {
    /// One of them knows something newer: that it was deleted, unless another write came just now.
    Newer,
    /// None of them does; so many did not tell.
    Nothing { silent: usize },
}

impl Call {
    /// Asks copies that show nothing of a key what they remember of an item that another one has. All of that item is given: one
    /// of them may have been given it meanwhile.
    pub(crate) async fn remembered(&self, without: &[usize], key: &OwnedKey, item: &Item) -> Remembered {
        let mut spread = Spread::default();
        // A copy without versions remembers no deletes.
        for &node in without.iter().filter(|&&node| !self.node(node).versions.has_none()) {
            // As of so long ago that it creates nothing: a delete is what refuses it.
            let put = Put::Newer { as_of: 0, base: None };
            spread.add(node, self.begin(node, &key.key(), Op::Put(&item.as_ref(), put)));
        }
        let mut silent = 0;
        while let Some((node, ended)) = spread.next().await {
            match Answer::of(self.heard(node, ended)) {
                Answer::Superseded(by) => {
                    self.shared.stamps.note(key.key().hash, by, self.shared.clock.millis());
                    return Remembered::Newer;
                }
                Answer::Failed(_) => silent += 1,
                Answer::Taken { .. } | Answer::Refused(_) | Answer::NotCreated => {}
            }
        }
        Remembered::Nothing { silent }
    }
}
