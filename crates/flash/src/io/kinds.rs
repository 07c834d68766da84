//! The kinds of rings that kernels give.

use std::io;

use io_uring::{IoUring, Probe, opcode};

/// Reads handed to the kernel in one call.
const SUBMISSIONS: u32 = 256;
/// Reads in the kernel at once; the kernel has room for so many completions, so none ever overflows.
pub(super) const IN_KERNEL: u32 = 1024;

/// Whether this kernel gives us a ring that can read.
pub(super) fn probe() -> io::Result<()> {
    let ring = IoUring::new(4)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    match probe.is_supported(opcode::Read::CODE) {
        true => Ok(()),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// How a ring lets completions through to its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// When the thread comes for them (6.1).
    Deferred,
    /// At the thread's next call of any kind (5.19).
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

/// The first of `kinds` that this kernel gives.
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
