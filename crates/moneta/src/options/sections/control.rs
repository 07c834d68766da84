//! The control plane that a node or a proxy follows, and what it registers there.

use moneta_options::declaration::Opt;
use moneta_options::kinds::paths::File;
use moneta_options::kinds::words::Name;
use moneta_options::report::Refusal;
use moneta_options::section;
use moneta_options::values::Values;

use crate::options::kinds::control::ControlUrls;
use crate::options::kinds::topology::Source;
use crate::options::kinds::words::HostName;
use crate::options::sections::cluster::CATCH_UP;
use crate::options::sections::proxy::TOPOLOGY;

/// The file of saved options in the folder of the state.
const SAVED: &str = "options.toml";

section! {
    "Control plane";

    /// Servers of the control plane (discovery.md), any of which knows all. This process registers there, and takes topologies
    /// named `control:APP` from it.
    CONTROL: ControlUrls = Opt::new("control", ControlUrls, Vec::new)
        .example("[\"https://control.example:11290\"]")
        .when("Where `moneta control` runs.");

    /// The environment at the control plane. Nothing in one environment sees another.
    ENV: Name = Opt::new("env", Name, || Some("default".into()))
        .when("Where one control plane has several fleets.");

    /// The replica that this node belongs to: one full copy of the app's data.
    REPLICA: Name = Opt::new("replica", Name, || None)
        .when("On nodes that are to hold a slot of a control plane's topology.");

    /// The slot of its replica's ring that this node is to hold. Where another process holds it, this one waits as a spare.
    SLOT: Name = Opt::new("slot", Name, || None)
        .when("With replica.");

    /// The name of the region that this process is in, for the control plane.
    REGION: Name = Opt::new("region", Name, || None)
        .when("Where there is more than one region.");

    /// Folder for this process's name at the control plane, the last good topologies, and whether it is being filled (fill_from).
    /// No other process may use it.
    STATE_DIR: File = Opt::new("state_dir", File, || None)
        .example("\"/var/lib/moneta/state\"")
        .when(
            "With a control plane: without it a process is a new one after each start, and a proxy does not start \
             while that is away.",
        );

    /// File of options that `moneta set-option --save` has set. Without it, `options.toml` in state_dir.
    SAVED_OPTIONS: File = Opt::new("saved_options", File, || None)
        .adjusted(|options, _| options.get(&STATE_DIR).map(|folder| folder.join(SAVED)))
        .example("\"/var/lib/moneta/options.toml\"")
        .when("Where there is no state_dir.");

    /// The host that others reach this process by. Without it, the address that it listens on; if that is all of the machine's,
    /// the one that leads to the control plane.
    ADVERTISE: HostName = Opt::new("advertise", HostName, || None)
        .when("Behind address translation, in a container, or where certificates are for names.");
}

/// What cannot be had together.
pub fn contradictions(options: &Values, topologies: &[Option<Source>]) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let has_control = !options.get(&CONTROL).is_empty();
    let is_from_control = |source: &Option<Source>| matches!(source, Some(Source::Control(_)));
    if !has_control && topologies.iter().any(is_from_control) {
        refusals.push(options.refuse(&TOPOLOGY, "given together with control, which says where the control plane is"));
    }
    if !has_control && is_from_control(&options.get(&CATCH_UP)) {
        refusals.push(options.refuse(&CATCH_UP, "given together with control, which says where the control plane is"));
    }
    if !has_control && options.get(&REPLICA).is_some() {
        refusals.push(options.refuse(&REPLICA, "left out without control: the topology's file says who holds what"));
    }
    if options.get(&SLOT).is_some() && options.get(&REPLICA).is_none() {
        refusals.push(options.refuse(&SLOT, "given together with replica, whose slot it is"));
    }
    if options.get(&ENV).is_none() {
        refusals.push(options.refuse(&ENV, "a name"));
    }
    refusals
}
