//! A device of the SSD tier as an operator writes it: `PATH:SIZE`.

use moneta_flash::DeviceConfig;
use moneta_options::kinds::units::{Bytes, size};
use moneta_options::kinds::{Form, Kind};

/// Devices of the SSD tier with their sizes, separated by commas; may be left out.
pub struct Devices;

/// One directory of an engine with its size; may be left out.
pub struct DevicePlace;

impl Kind for Devices {
    type Value = Vec<DeviceConfig>;

    fn read(&self, text: &str) -> Option<Vec<DeviceConfig>> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(read).collect()
    }

    fn write(&self, devices: &Vec<DeviceConfig>) -> String {
        let devices: Vec<String> = devices.iter().map(written).collect();
        devices.join(",")
    }

    fn range(&self) -> String {
        "PATH:SIZE, or several of them separated by commas: the path of a directory, file or block device, and a whole number \
         with a suffix m, g or t (MiB, GiB, TiB)"
            .into()
    }

    fn placeholder(&self) -> String {
        "PATH:SIZE".into()
    }

    fn form(&self) -> Form {
        Form::List
    }
}

impl Kind for DevicePlace {
    type Value = Option<DeviceConfig>;

    fn read(&self, text: &str) -> Option<Option<DeviceConfig>> {
        let mut places = Devices.read(text)?;
        (places.len() <= 1).then(|| places.pop())
    }

    fn write(&self, place: &Option<DeviceConfig>) -> String {
        place.as_ref().map_or_else(String::new, written)
    }

    fn range(&self) -> String {
        "PATH:SIZE: the path of a directory, and a whole number with a suffix m, g or t (MiB, GiB, TiB)".into()
    }

    fn placeholder(&self) -> String {
        "PATH:SIZE".into()
    }
}

/// Reads `PATH:SIZE`. Refuses a size without a suffix: it is hardly meant in bytes, and the unit would be a guess.
fn read(text: &str) -> Option<DeviceConfig> {
    let (path, amount) = text.rsplit_once(':')?;
    let has_suffix = amount.bytes().any(|byte| byte.is_ascii_alphabetic());
    let bytes = size(amount.trim(), 1).filter(|bytes| *bytes > 0 && has_suffix)?;
    (!path.is_empty()).then(|| DeviceConfig { path: path.into(), bytes })
}

/// Writes a device in the same way.
fn written(device: &DeviceConfig) -> String {
    format!("{}:{}", device.path.display(), Bytes(device.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Option<Vec<(String, u64)>> {
        let devices = Devices.read(text)?;
        Some(devices.into_iter().map(|device| (device.path.display().to_string(), device.bytes)).collect())
    }

    #[test]
    fn a_path_stands_before_the_last_colon() {
        assert_eq!(listed("/mnt/a:1g"), Some(vec![("/mnt/a".into(), 1 << 30)]));
        assert_eq!(listed("./odd:name:64MiB"), Some(vec![("./odd:name".into(), 64 << 20)]));
        assert_eq!(listed("a:1m,b:2m"), Some(vec![("a".into(), 1 << 20), ("b".into(), 2 << 20)]));
        assert_eq!(listed(""), Some(vec![]));
    }

    #[test]
    fn what_lacks_a_path_a_size_or_a_unit_is_refused() {
        for text in
            ["/mnt/a", "/mnt/a:", ":1g", "/mnt/a:0g", "/mnt/a:1000000", "/mnt/a:1gb", "/mnt/a:-1g", "a:1g b:1g,c"]
        {
            assert_eq!(listed(text), None, "{text}");
        }
    }
}
