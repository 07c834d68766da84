//! Kinds whose values are words with a meaning to a node or a proxy.

use moneta_options::kinds::Kind;
use moneta_server::config::Commands;

/// The name of a zone, as a topology has it; may be left out.
pub struct Zone;

/// A host by name or number, without a port; may be left out.
pub struct HostName;

/// A writer's number from 0 to 15, or `auto`.
pub struct WriterId;

/// Commands of operators, separated by commas, or `none`.
pub struct CommandList;

impl Kind for Zone {
    type Value = Option<String>;

    fn read(&self, text: &str) -> Option<Option<String>> {
        (text.is_empty() || moneta_cluster::topology::is_zone(text)).then(|| (!text.is_empty()).then(|| text.into()))
    }

    fn write(&self, name: &Option<String>) -> String {
        name.clone().unwrap_or_default()
    }

    fn range(&self) -> String {
        "the name of a zone of the topology, without control characters".into()
    }

    fn placeholder(&self) -> String {
        "NAME".into()
    }
}

impl Kind for HostName {
    type Value = Option<String>;

    fn read(&self, text: &str) -> Option<Option<String>> {
        if text.is_empty() {
            return Some(None);
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let is_number = bare.parse::<std::net::IpAddr>().is_ok();
        let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        (is_number || is_name).then(|| Some(bare.to_owned()))
    }

    fn write(&self, host: &Option<String>) -> String {
        host.clone().unwrap_or_default()
    }

    fn range(&self) -> String {
        "a host's name or number, without a port".into()
    }

    fn placeholder(&self) -> String {
        "HOST".into()
    }
}

impl Kind for WriterId {
    type Value = Option<u8>;

    fn read(&self, text: &str) -> Option<Option<u8>> {
        match text {
            "auto" => Some(None),
            number => number.parse().ok().filter(|number| *number <= 15).map(Some),
        }
    }

    fn write(&self, writer: &Option<u8>) -> String {
        writer.map_or_else(|| "auto".into(), |writer| writer.to_string())
    }

    fn range(&self) -> String {
        "auto, or a number from 0 to 15".into()
    }

    fn placeholder(&self) -> String {
        "auto|N".into()
    }
}

impl Kind for CommandList {
    type Value = Commands;

    fn read(&self, text: &str) -> Option<Commands> {
        text.parse().ok()
    }

    fn write(&self, commands: &Commands) -> String {
        commands.to_string()
    }

    fn range(&self) -> String {
        format!("`none`, or some of {}, separated by commas", Commands::ALL.and(Commands::DUMP))
    }

    fn placeholder(&self) -> String {
        "COMMANDS".into()
    }
}
