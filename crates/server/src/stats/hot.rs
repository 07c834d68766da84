//! `stats hotkeys`: the keys that clients ask for most.

use moneta_protocol::command::Style;
use moneta_protocol::encode;
use moneta_store::escape::percent_encode;

use super::lister::Lister;
use crate::hot_keys::WINDOW;
use crate::latency::SAMPLE;
use crate::node::Node;

/// Writes them: those of the last window that is over, the hottest first, of which only those that `shows`.
pub(crate) fn hot_keys(node: &Node, style: &Style<'_>, shows: &dyn Fn(&[u8]) -> bool, out: &mut Vec<u8>) {
    let mut lister = Lister { style, out };
    let is_on = node.live.finds_hot_keys();
    lister.put_flag("hotkeys_enabled", is_on);
    if is_on {
        let told = node.registry.hottest(node.clock.now());
        lister.put("window_begun", told.begun);
        lister.put("window_seconds", WINDOW);
        lister.put("sampled_one_in", SAMPLE);
        lister.put("samples", told.samples);
        for (of, hottest) in [("requests", &told.by_requests), ("bytes", &told.by_bytes)] {
            lister.put(of, hottest.total);
            for (rank, heavy) in (1..).zip(hottest.keys.iter().filter(|heavy| shows(&heavy.key))) {
                let mut key = Vec::new();
                percent_encode(&heavy.key, &mut key);
                lister.put(&format!("{of}:{rank}:key"), String::from_utf8_lossy(&key));
                lister.put(&format!("{of}:{rank}:count"), heavy.weight);
                lister.put(&format!("{of}:{rank}:too_high_by_at_most"), heavy.error);
            }
        }
    }
    encode::stat_end(style, out);
}
