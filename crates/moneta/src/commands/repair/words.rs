//! What a repair found, in words.

use moneta_repair::Report;

/// What was found, in words.
pub fn in_words(report: &Report, only_looks: bool) -> String {
    let done = if only_looks { "would be repaired" } else { "repaired" };
    let mut text = format!(
        "{} items compared in {} buckets, {} of which differ\n{done}: {} older, {} shorter lives, {} deleted on one side ({} in A, {} in B)\n\
         left as they are: {} evicted on one side, {} flushed on one side, {} that changed meanwhile",
        report.items,
        report.buckets,
        report.buckets_differing,
        report.older,
        report.life,
        report.deleted,
        report.to_a,
        report.to_b,
        report.evicted,
        report.flushed,
        report.changed,
    );
    if report.refused + report.failed > 0 {
        text += &format!("\nnot repaired: {} refused, {} as a node failed", report.refused, report.failed);
    }
    text += &format!(
        "\nbytes: {} of digests, {} of lists, {} copied",
        report.digest_bytes, report.list_bytes, report.copied_bytes
    );
    if !report.done {
        text += "\nit was stopped before all was compared";
    }
    text
}
