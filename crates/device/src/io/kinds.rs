//! The kinds of rings that kernels offer.

use std::io;

use io_uring::{IoUring, Probe, opcode};

/// Reads submitted to the kernel in one call.
const SUBMISSIONS: u32 = 256;
/// Most reads in the kernel at once. The completion queue has as many entries, so it never overflows.
pub(super) const IN_KERNEL: u32 = 1024;

/// Checks that this kernel offers a ring that can read.
pub(super) fn probe() -> io::Result<()> {
    let ring = IoUring::new(4)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    match probe.is_supported(opcode::Read::CODE) {
        true => Ok(()),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// When a ring posts completions to its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// When the thread asks for them (Linux 6.1).
    Deferred,
    /// At the thread's next system call of any kind (Linux 5.19).
    Cooperative,
    /// At once, interrupting the thread.
    Plain,
}

impl Kind {
    /// All kinds, the best first.
    pub(super) const ALL: [Self; 3] = [Self::Deferred, Self::Cooperative, Self::Plain];

    fn build(self) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(IN_KERNEL);
        match self {
            Self::Deferred => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            Self::Cooperative => builder.setup_coop_taskrun().setup_taskrun_flag(),
            Self::Plain => &mut builder,
        }
        .build(SUBMISSIONS)
    }
}

/// A ring of the first of `kinds` that this kernel offers.
pub(super) fn build(kinds: &[Kind]) -> io::Result<IoUring> {
    let mut refused = io::Error::from(io::ErrorKind::Unsupported);
    for kind in kinds {
        match kind.build() {
            Ok(ring) => return Ok(ring),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}
