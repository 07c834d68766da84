//! Sizes as operators write them.

use std::fmt;

/// A number of bytes, shown in the largest binary unit that divides it.
pub(super) struct Size(pub(super) u64);

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|(shift, _)| self.0 != 0 && self.0.is_multiple_of(1 << shift)) {
            Some((shift, unit)) => write!(formatter, "{} {unit}", self.0 >> shift),
            None => write!(formatter, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_divides_them() {
        for (bytes, shown) in
            [(0, "0 bytes"), (4097, "4097 bytes"), (256 << 10, "256 KiB"), (137 << 20, "137 MiB"), (3 << 30, "3 GiB")]
        {
            assert_eq!(Size(bytes).to_string(), shown);
        }
    }
}
