//! An index written out and read back, page by page, as it lies in memory.

use std::io::{self, Read, Write};

use moneta_pages::{PAGE_BYTES, Page};

use crate::address::{COLUMN_BITS, Extent};
use crate::index::Index;

/// What stands before the pages: level, split, entries and pages, 8 bytes each.
const HEAD_BYTES: usize = 32;

impl<const TAG_BITS: u32> Index<TAG_BITS> {
    /// Writes the index to `out`, in the byte order of the machine.
    ///
    /// # Errors
    /// As `out` has them.
    pub fn save(&self, out: &mut impl Write) -> io::Result<()> {
        let head = [self.extent.level as usize, self.extent.split, self.entries, self.pages.len()];
        for number in head {
            out.write_all(&(number as u64).to_le_bytes())?;
        }
        self.pages.iter().try_for_each(|page| out.write_all(page.slice(0..PAGE_BYTES)))
    }

    /// Reads an index that [`Index::save`] has written; `page` gives pages.
    ///
    /// # Errors
    /// As `input` and `page` have them; `InvalidData` if the head makes no sense. What the pages hold is not checked: the
    /// caller has made sure that they are as they were written.
    pub fn load(input: &mut impl Read, mut page: impl FnMut() -> io::Result<Page>) -> io::Result<Self> {
        let mut head = [0; HEAD_BYTES];
        input.read_exact(&mut head)?;
        let number = |at: usize| {
            let bytes = head[at * 8..at * 8 + 8].try_into().expect("eight bytes");
            usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX)
        };
        let (level, split, entries, count) = (number(0), number(1), number(2), number(3));
        let extent = Extent { level: u32::try_from(level).unwrap_or(u32::MAX), split };
        let makes_sense = extent.level <= TAG_BITS
            && split < 1 << (COLUMN_BITS + extent.level)
            && extent.buckets().div_ceil(1 << COLUMN_BITS) <= count
            && count <= 2 << extent.level
            && entries <= extent.buckets() * crate::index::BUCKET_SLOTS;
        if !makes_sense {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut pages = Vec::with_capacity(count);
        for _ in 0..count {
            let mut page = page()?;
            input.read_exact(page.slice_mut(0..PAGE_BYTES))?;
            pages.push(page);
        }
        Ok(Self { pages, extent, entries, turn: 0, walks: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use moneta_pages::PagePool;

    use super::*;

    #[test]
    fn an_index_comes_back_with_all_its_entries() {
        let pool = PagePool::new();
        let mut index = Index::<20>::new(pool.take().unwrap());
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for n in 1..30_000 {
            while index.wants_growth() {
                if index.growth_needs_page() {
                    index.add_page(pool.take().unwrap());
                }
                index.grow();
            }
            index.insert(hash(n), n).unwrap();
        }
        let mut image = Vec::new();
        index.save(&mut image).unwrap();
        let loaded = Index::<20>::load(&mut &image[..], || pool.take()).unwrap();
        assert_eq!(loaded.len(), index.len());
        for n in 1..30_000 {
            assert!(loaded.find(hash(n), |payload| payload == n).is_some(), "{n} is gone");
        }
        assert!(Index::<20>::load(&mut &image[..image.len() - 1], || pool.take()).is_err());
        image[1] = 0xff;
        assert!(Index::<20>::load(&mut &image[..], || pool.take()).is_err());
    }
}
