//! Looks at the state, for what stands above this crate.

use crate::control::Control;
use crate::error::Refusal;
use crate::leases::Moment;
use crate::state::State;

impl Control {
    /// What `look` finds in the state as it is now. Everything that this process answers waits meanwhile, so it should take
    /// milliseconds.
    ///
    /// # Errors
    /// 503 if this process is not in step with its ledger: it never shows less than there is.
    pub fn look<T>(&self, look: impl FnOnce(&State, Moment) -> T) -> Result<T, Refusal> {
        let state = self.state_in_step()?;
        Ok(look(&state, self.shared.now()))
    }
}
