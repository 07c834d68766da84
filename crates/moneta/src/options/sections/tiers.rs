//! Which engine each tier of a node has: what can be stacked, and why the rest cannot.

use moneta_client::wire::Protocol;
use moneta_layers::Promotion;
use moneta_options::declaration::{Declaration, Opt, Section};
use moneta_options::report::Refusal;
use moneta_options::section;
use moneta_options::values::Values;
use moneta_remote::RemoteConfig;

use crate::options::kinds::promotion::PromotionRule;
use crate::options::kinds::tier::{Tier, TierChoice};
use crate::options::sections::flash::{self, FlashSettings};
use crate::options::sections::lmdb::{self, LmdbSettings};
use crate::options::sections::remote;
use crate::options::sections::rocks::{self, RocksSettings};

section! {
    "Tiers";

    /// The upper tier, which has the hot items: RAM of this process, a separate server, or none.
    L1: Tier = Opt::new("l1", Tier(&["memory", "none"]), || TierChoice::Memory)
        .when("remote: to keep a memcached that is there (split.md); none where the node is the L2 of another.");

    /// The lower tier, which has every item; auto is the engine that was given a place (--flash, --rocks, --lmdb), or none.
    L2: Tier = Opt::new("l2", Tier(&["auto", "flash", "rocks", "lmdb", "none"]), || TierChoice::Auto)
        .when("remote: where the L2 is a separate process.");

    /// Which hits in L2 bring their item into L1: always, the second of an item, or that share of them.
    PROMOTE: PromotionRule = Opt::new("promote", PromotionRule, || Promotion::Always)
        .when("second or a share when many items are read once.");
}

/// The tiers of a node.
#[derive(Clone, Debug)]
pub struct StackSettings {
    /// What has the hot items.
    pub upper: Upper,
    /// What has every item.
    pub lower: Lower,
    /// What lies between them.
    pub between: Between,
}

/// The engine of the upper tier.
#[derive(Clone, Debug)]
pub enum Upper {
    /// There is no upper tier.
    None,
    /// RAM of this process.
    Memory,
    /// A server in another process, and the largest piece in which it is given a value, bytes.
    Remote(Box<RemoteConfig>, u32),
}

impl StackSettings {
    /// What requests wait for that are not answered at once, in a word.
    pub fn waits_for(&self) -> &'static str {
        match (&self.lower, &self.upper) {
            (Lower::Cluster, _) => "nodes",
            (Lower::Flash(_), _) => "flash",
            (Lower::Rocks(_), _) => "rocks",
            (Lower::Lmdb(_), _) => "lmdb",
            (Lower::Remote(_), _) | (Lower::None, Upper::Remote(..)) => "remote",
            (Lower::None, Upper::Memory | Upper::None) => "ram",
        }
    }
}

/// The engine of the lower tier.
#[derive(Clone, Debug)]
pub enum Lower {
    /// There is no lower tier.
    None,
    /// Regions on SSD.
    Flash(Box<FlashSettings>),
    /// RocksDB.
    Rocks(Box<RocksSettings>),
    /// LMDB.
    Lmdb(Box<LmdbSettings>),
    /// A server in another process.
    Remote(Box<RemoteConfig>),
    /// The nodes of clusters: this process is a proxy.
    Cluster,
}

/// How items pass from one tier to the other.
#[derive(Clone, Copy, Debug)]
pub struct Between {
    /// Which hits below bring their item up.
    pub promotion: Promotion,
    /// Bytes a day that may be written below; `None`: any.
    pub write_budget: Option<u64>,
}

impl StackSettings {
    /// Those of a proxy, whose apps are told apart elsewhere.
    pub fn of_proxy() -> Self {
        let between = Between { promotion: Promotion::Always, write_budget: None };
        Self { upper: Upper::None, lower: Lower::Cluster, between }
    }

    /// The tiers in force.
    pub fn new(options: &Values) -> Self {
        let upper = match options.get(&L1) {
            TierChoice::None => Upper::None,
            TierChoice::Remote(address) => {
                Upper::Remote(Box::new(remote::server(options, address)), options.get(&remote::REMOTE_PIECE_SIZE))
            }
            _ => Upper::Memory,
        };
        let lower = match lower_choice(options) {
            TierChoice::Flash => Lower::Flash(Box::new(FlashSettings::new(options))),
            TierChoice::Rocks => Lower::Rocks(Box::new(RocksSettings::new(options))),
            TierChoice::Lmdb => Lower::Lmdb(Box::new(LmdbSettings::new(options))),
            TierChoice::Remote(address) => {
                let mut config = remote::server(options, address);
                if !matches!(upper, Upper::None) {
                    // Only these commands tell when an item expires, which has to be known above.
                    config.protocol = Some(Protocol::Meta);
                }
                Lower::Remote(Box::new(config))
            }
            _ => Lower::None,
        };
        let budget = options.get(&flash::FLASH_WRITE_BUDGET);
        let between = Between { promotion: options.get(&PROMOTE), write_budget: (budget > 0).then_some(budget) };
        Self { upper, lower, between }
    }

    /// Whether items are held in RAM of this process.
    pub fn has_memory(&self) -> bool {
        matches!(self.upper, Upper::Memory)
    }
}

/// An engine that keeps items in a place that an option gives.
struct Placed {
    engine: TierChoice,
    place: &'static dyn Declaration,
    section: &'static Section,
}

static PLACED: [Placed; 3] = [
    Placed { engine: TierChoice::Flash, place: &flash::FLASH, section: &flash::SECTION },
    Placed { engine: TierChoice::Rocks, place: &rocks::ROCKS, section: &rocks::SECTION },
    Placed { engine: TierChoice::Lmdb, place: &lmdb::LMDB, section: &lmdb::SECTION },
];

impl Placed {
    fn has_place(&self, options: &Values) -> bool {
        !self.place.in_force(options).is_empty()
    }
}

/// The engine of the lower tier, where the choice is left to it the first one that has a place.
fn lower_choice(options: &Values) -> TierChoice {
    match options.get(&L2) {
        TierChoice::Auto => {
            let placed = PLACED.iter().find(|placed| placed.has_place(options));
            placed.map_or(TierChoice::None, |placed| placed.engine.clone())
        }
        chosen => chosen,
    }
}

/// What cannot be stacked, and options of tiers that are not there.
pub fn contradictions(options: &Values) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut refuse = |option: &dyn Declaration, range: &str| refusals.push(options.refuse(option, range));
    let (upper, lower) = (options.get(&L1), lower_choice(options));
    if matches!((&upper, &lower), (TierChoice::None, TierChoice::None)) {
        refuse(&L1, "memory or a remote server where l2 is none: a node needs one tier at least to keep items in");
    }
    if let (TierChoice::Remote(above), TierChoice::Remote(below)) = (&upper, &lower)
        && above.place() == below.place()
    {
        refuse(&L2, "another server than l1's: its items would be taken for those of the upper tier");
    }
    if matches!(lower, TierChoice::Remote(_)) && upper != TierChoice::None && is_without_expiry(options) {
        let range = "auto or meta where l2 is a remote server under an l1: the other protocols do not tell when an item \
                     expires, so that it would live on above";
        refuse(&remote::REMOTE_PROTOCOL, range);
    }
    for placed in &PLACED {
        let (is_chosen, has_place) = (lower == placed.engine, placed.has_place(options));
        let with_place = format!("given together with {}, which says where items are kept", placed.place.about().key);
        if is_chosen && !has_place {
            refuse(&L2, &with_place);
        }
        if has_place && !is_chosen {
            let in_force = format!("left out where l2 is {lower}: items are kept in one place only");
            refuse(placed.place, &in_force);
        }
        if !has_place {
            changed(options, placed.section).for_each(|option| refuse(option, &with_place));
        }
    }
    let is_remote = |tier: &TierChoice| matches!(tier, TierChoice::Remote(_));
    if !is_remote(&upper) && !is_remote(&lower) {
        let range = "given together with a remote server as l1 or l2";
        changed(options, &remote::SECTION).for_each(|option| refuse(option, range));
    }
    if (upper == TierChoice::None || lower == TierChoice::None) && options.is_changed(&PROMOTE) {
        refuse(&PROMOTE, "given together with two tiers, between which items are moved");
    }
    refusals.extend(match lower {
        TierChoice::Flash => flash::contradictions(options),
        TierChoice::Rocks => rocks::contradictions(options),
        TierChoice::Lmdb => lmdb::contradictions(options),
        TierChoice::Auto | TierChoice::None | TierChoice::Memory | TierChoice::Remote(_) => Vec::new(),
    });
    refusals
}

fn is_without_expiry(options: &Values) -> bool {
    matches!(options.get(&remote::REMOTE_PROTOCOL), Some(Protocol::Binary | Protocol::Text))
}

/// The options of a section that are not at their default. Of a tier that is not there they would have no effect; at its
/// default an option does no harm, as a file may list them all.
fn changed<'a>(options: &'a Values, section: &Section) -> impl Iterator<Item = &'static dyn Declaration> + use<'a> {
    section.options.iter().copied().filter(|option| options.is_changed(*option))
}
