//! Instances by application.

use std::fmt::Write as _;

use crate::instance::{Instance, Status};

/// An application and those of its instances that are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Application {
    /// Its name, in capitals.
    pub name: String,
    /// Its instances.
    pub instances: Vec<Instance>,
}

/// All applications, or what changed of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applications {
    /// A number that grows with each change.
    pub version: u64,
    /// [`hash`] over all instances there are, also where only changes are told.
    pub hash: String,
    /// Applications.
    pub applications: Vec<Application>,
}

impl Applications {
    /// The applications of these instances, each in the place of its first instance, with the hash over them.
    pub fn of(version: u64, instances: impl IntoIterator<Item = Instance>) -> Self {
        let mut applications: Vec<Application> = Vec::new();
        for instance in instances {
            match applications.iter_mut().rev().find(|application| application.name == instance.app) {
                Some(application) => application.instances.push(instance),
                None => applications.push(Application { name: instance.app.clone(), instances: vec![instance] }),
            }
        }
        let statuses =
            applications.iter().flat_map(|application| &application.instances).map(|instance| instance.status);
        let hash = hash(statuses);
        Self { version, hash, applications }
    }
}

/// The hash over instances: how many there are of each status, in the order of the words (`DOWN_1_UP_3_`).
pub fn hash(statuses: impl IntoIterator<Item = Status>) -> String {
    let mut counts = [0u64; Status::ALL.len()];
    for status in statuses {
        counts[status as usize] += 1;
    }
    let mut hash = String::new();
    for (status, count) in Status::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0) {
        let _ = write!(hash, "{status}_{count}_");
    }
    hash
}
