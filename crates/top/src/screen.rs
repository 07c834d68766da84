//! The terminal: draws a few times a second and takes keys, until it is left.

use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::app::{App, Goes};
use crate::draw::draw;
use crate::error::TopError;
use crate::poller::{Config, Poller};

/// How often it is drawn where no key is pressed.
const REDRAW: Duration = Duration::from_millis(250);

/// Shows the servers until the user leaves.
///
/// # Errors
/// If a host is none, or there is no terminal.
pub fn screen(config: Config) -> Result<(), TopError> {
    let poller = Poller::start(config)?;
    let mut app = App::new(poller.outward().clone());
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, &poller, &mut app);
    // Also after an error: the shell gets its terminal back.
    ratatui::try_restore()?;
    shown
}

fn show(terminal: &mut ratatui::DefaultTerminal, poller: &Poller, app: &mut App) -> Result<(), TopError> {
    loop {
        app.take(poller.known());
        terminal.draw(|frame| draw(frame, app))?;
        if !event::poll(REDRAW)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && app.press(key) == Goes::Away
        {
            return Ok(());
        }
    }
}
