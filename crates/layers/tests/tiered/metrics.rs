//! Numbers of the tiers are shown under their names, and under no other's.

use std::collections::BTreeMap;

use moneta_layers::TierStats;

/// Every number another one, so that none can pass for its neighbour.
fn tiers() -> TierStats {
    TierStats {
        upper: "ram",
        lower: "ssd",
        upper_items: 198,
        upper_evictions: 199,
        lower_items: 200,
        upper_hits: 201,
        lower_hits: 202,
        misses: 203,
        promotions: 204,
        promotions_overtaken: 205,
        promotions_declined: 206,
        writes_withheld: 207,
        lower_failures: 208,
        upper_failures: 210,
        key_waits: 209,
    }
}

#[test]
fn each_number_is_a_metric_under_its_name() {
    let expected = [
        ("tier_reads_total{tier=\"ram\"}", 201.0),
        ("tier_reads_total{tier=\"ssd\"}", 202.0),
        ("tier_reads_total{tier=\"none\"}", 203.0),
        ("tier_items{tier=\"ram\"}", 198.0),
        ("tier_items{tier=\"ssd\"}", 200.0),
        ("tier_promotions_total{result=\"done\"}", 204.0),
        ("tier_promotions_total{result=\"overtaken\"}", 205.0),
        ("tier_promotions_total{result=\"declined\"}", 206.0),
        ("tier_writes_withheld_total", 207.0),
        ("tier_write_failures_total", 208.0),
        ("tier_key_waits_total", 209.0),
        ("tier_upper_failures_total", 210.0),
    ];
    let samples = tiers().samples();
    let shown: BTreeMap<String, f64> = samples
        .iter()
        .filter(|sample| sample.metric.is_in_metrics())
        .map(|sample| (sample.to_string().rsplit_once(' ').unwrap().0.to_owned(), sample.value.number()))
        .collect();
    for (name, value) in expected {
        assert_eq!(shown.get(name), Some(&value), "{name}");
    }
    assert_eq!(shown.len(), expected.len(), "{shown:?}");
}

/// What `stats` tells.
fn told(tiers: &TierStats) -> BTreeMap<String, f64> {
    tiers.samples().iter().filter_map(|sample| Some((sample.key()?, sample.value.number()))).collect()
}

#[test]
fn stats_tell_the_numbers_in_memcacheds_words_where_it_has_them() {
    let expected = [
        ("ram_items", 198.0),
        ("ram_evictions", 199.0),
        ("get_extstore", 202.0),
        ("recache_from_extstore", 204.0),
        ("tier_ram_hits", 201.0),
        ("tier_ssd_hits", 202.0),
        ("tier_misses", 203.0),
        ("tier_promotions_overtaken", 205.0),
        ("tier_promotions_declined", 206.0),
        ("tier_writes_withheld", 207.0),
        ("tier_write_failures", 208.0),
        ("tier_key_waits", 209.0),
        ("tier_upper_failures_total", 210.0),
    ];
    let told = told(&tiers());
    for (key, value) in expected {
        assert_eq!(told.get(key), Some(&value), "{key}");
    }
    assert_eq!(told.len(), expected.len(), "{told:?}");
}

#[test]
fn keys_name_tiers_by_what_they_are() {
    let told = told(&TierStats { upper: "remote_l1", lower: "rocks", ..tiers() });
    for (key, value) in [("tier_remote_l1_hits", 201.0), ("tier_rocks_hits", 202.0), ("remote_l1_items", 198.0)] {
        assert_eq!(told.get(key), Some(&value), "{key}");
    }
}
