//! What happened to an object, and when.

use std::sync::Mutex;
use std::time::Instant;

/// One finished command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<Input, Output> {
    /// Nanoseconds from the start of the history to just before the command was sent.
    pub invoked: u64,
    /// Nanoseconds from the start of the history to just after its reply was read.
    pub returned: u64,
    /// The command.
    pub input: Input,
    /// The reply.
    pub output: Output,
}

/// Records operations of several threads against one clock.
#[derive(Debug)]
pub struct Recorder<Input, Output> {
    start: Instant,
    operations: Mutex<Vec<Operation<Input, Output>>>,
}

impl<Input, Output> Recorder<Input, Output> {
    /// An empty history that starts now.
    pub fn new() -> Self {
        Self { start: Instant::now(), operations: Mutex::new(Vec::new()) }
    }

    /// Runs one command and records it; a failed command is not recorded, and its error returned.
    pub fn record<E>(&self, input: Input, run: impl FnOnce(&Input) -> Result<Output, E>) -> Result<(), E> {
        let invoked = self.now();
        let output = run(&input)?;
        let operation = Operation { invoked, returned: self.now(), input, output };
        self.operations.lock().expect("no thread panics while it holds the lock").push(operation);
        Ok(())
    }

    /// Takes what was recorded so far.
    pub fn take(&self) -> Vec<Operation<Input, Output>> {
        std::mem::take(&mut *self.operations.lock().expect("no thread panics while it holds the lock"))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("a test runs for less than 500 years")
    }
}

impl<Input, Output> Default for Recorder<Input, Output> {
    fn default() -> Self {
        Self::new()
    }
}
