//! The report for people.

use std::fmt;

use crate::report::{Conclusion, Endpoint, Example, Kind, Report, Sighting};

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, nodes, version, protocol } = self;
        let version = if version.is_empty() { "unknown" } else { version };
        if *nodes > 1 {
            return write!(formatter, "{address} ({nodes} nodes, version {version}, {protocol} protocol)");
        }
        write!(formatter, "{address} (version {version}, {protocol} protocol)")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "A  {}\nB  {}\n", self.a, self.b)?;
        for (name, number) in self.rows() {
            writeln!(formatter, "{name:24}{number:>12}")?;
        }
        if !self.expiry_compared {
            writeln!(formatter, "\nExpiration times were not compared.")?;
        }
        for (kind, examples) in self.examples.iter().filter(|(_, examples)| !examples.is_empty()) {
            writeln!(formatter, "\n{}:", heading(*kind))?;
            examples.iter().try_for_each(|example| writeln!(formatter, "  {}", line(*kind, example)))?;
        }
        writeln!(formatter, "\n{} ({:.1} s)", self.summary(), self.seconds)
    }
}

impl Report {
    /// The counts that say something of this run, in words.
    fn rows(&self) -> Vec<(&'static str, u64)> {
        let counts = &self.counts;
        let always = [
            ("compared", counts.compared),
            ("equal", counts.equal),
            ("different", counts.different),
            ("  only in A", counts.only_in_a),
            ("  only in B", counts.only_in_b),
            ("  value differs", counts.value),
            ("  flags differ", counts.flags),
            ("  expiry differs", counts.expiry),
            ("errors", counts.errors),
        ];
        let sometimes = [
            ("  newer in A", counts.newer_in_a),
            ("  newer in B", counts.newer_in_b),
            ("  of the same version", counts.same_version),
            ("gone meanwhile", counts.gone),
            ("changing all the time", counts.changing),
            ("undecided", counts.undecided),
            ("repaired", counts.repaired),
            ("not repaired", counts.unrepaired),
        ];
        let walked = [
            ("listed by A", counts.walked_a),
            ("listed by B", counts.walked_b),
            ("  on nodes without readers", counts.strays),
        ];
        let some =
            |rows: &[(&'static str, u64)]| rows.iter().copied().filter(|(_, number)| *number > 0).collect::<Vec<_>>();
        [some(&walked), always.to_vec(), some(&sometimes)].concat()
    }

    fn summary(&self) -> String {
        match (self.conclusion, &self.incomplete) {
            (Conclusion::Equal, _) if self.counts.repaired > 0 => "Equal after repair.".to_owned(),
            (Conclusion::Equal, _) => "Equal.".to_owned(),
            (Conclusion::Different, _) => "Different.".to_owned(),
            (Conclusion::Incomplete, Some(why)) => format!("Not finished: {why}."),
            (Conclusion::Incomplete, None) => "Not all keys could be compared.".to_owned(),
        }
    }
}

fn heading(kind: Kind) -> &'static str {
    match kind {
        Kind::OnlyInA => "Only in A",
        Kind::OnlyInB => "Only in B",
        Kind::Value => "Value differs",
        Kind::Flags => "Flags differ",
        Kind::Expiry => "Expiry differs",
        Kind::Errors => "Errors",
        Kind::Unrepaired => "Not repaired",
    }
}

/// What of an example belongs to its kind.
fn line(kind: Kind, example: &Example) -> String {
    let key = &example.key;
    if let Some(reason) = &example.reason {
        return format!("{key}  {reason}");
    }
    let both = |part: fn(&Sighting) -> String| {
        let of = |side: &Option<Sighting>| side.as_ref().map_or_else(String::new, part);
        format!("{key}  A: {}, B: {}", of(&example.a), of(&example.b))
    };
    match kind {
        Kind::Flags => both(|item| item.flags.to_string()),
        Kind::Expiry => both(expiry),
        Kind::Value => {
            let at = example.differs_at.map_or_else(String::new, |at| format!(", from byte {at} on"));
            both(|item| format!("{} bytes", item.size)) + &at
        }
        Kind::OnlyInA | Kind::OnlyInB | Kind::Errors | Kind::Unrepaired => {
            let item = example.a.or(example.b);
            item.map_or_else(
                || key.clone(),
                |item| format!("{key}  {} bytes, flags {}, {}", item.size, item.flags, expiry(&item)),
            )
        }
    }
}

fn expiry(item: &Sighting) -> String {
    match item.ttl {
        None => "expiry unknown".to_owned(),
        Some(ttl) if ttl < 0 => "never expires".to_owned(),
        Some(ttl) => format!("expires in {ttl} s"),
    }
}
