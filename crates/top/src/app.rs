//! What is on the screen, and what keys make of it.
//!
//! ```text
//!  List ── Enter ──> Node ── Enter on a hot key ──> Key
//!    ^───── Esc ──────┘ ^──────────── Esc ───────────┘
//! ```

use std::cmp::Ordering;

use moneta_net::Outward;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::item::Asked;
use crate::poller::Known;
use crate::target::HotKey;

/// What the list is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Name,
    Operations,
    Hits,
    P99,
    Memory,
    Connections,
    Hot,
}

impl Sort {
    pub(crate) const ALL: [Self; 7] =
        [Self::Operations, Self::Hits, Self::P99, Self::Memory, Self::Connections, Self::Hot, Self::Name];

    /// Its name on the screen.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Operations => "ops",
            Self::Hits => "hits",
            Self::P99 => "p99",
            Self::Memory => "memory",
            Self::Connections => "conns",
            Self::Hot => "hottest key",
        }
    }

    /// The larger first, what is not known last; names from A on.
    fn compare(self, one: &Known, other: &Known) -> Ordering {
        let number = |known: &Known| {
            let figures = known.figures.as_ref()?;
            match self {
                Self::Name => None,
                Self::Operations => Some(figures.operations),
                Self::Hits => figures.hits,
                Self::P99 => figures.p99,
                Self::Memory => Some(figures.memory),
                Self::Connections => figures.connections,
                Self::Hot => figures.hot,
            }
        };
        let (first, second) = (number(one).unwrap_or(-1.0), number(other).unwrap_or(-1.0));
        second.total_cmp(&first).then_with(|| one.name.cmp(&other.name))
    }
}

/// What is shown.
#[derive(Debug)]
pub(crate) enum View {
    /// All servers.
    List,
    /// One of them, by its place among the known, and which of its hot keys is chosen.
    Node { place: usize, chosen: usize },
    /// A key of it.
    Key { place: usize, chosen: usize, asked: Asked },
}

/// The state of the screen.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) known: Vec<Known>,
    pub(crate) view: View,
    pub(crate) sort: Sort,
    pub(crate) reversed: bool,
    /// The chosen server's place among the known: it stays chosen however the list is sorted.
    pub(crate) chosen: usize,
    /// Lines of a page of the list, as drawn last.
    pub(crate) page: usize,
    outward: Outward,
}

/// Whether the screen goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goes {
    On,
    Away,
}

impl App {
    pub(crate) fn new(outward: Outward) -> Self {
        let (view, sort) = (View::List, Sort::Operations);
        Self { known: Vec::new(), view, sort, reversed: false, chosen: 0, page: 10, outward }
    }

    /// Takes what is known now. One server alone is shown at once.
    pub(crate) fn take(&mut self, known: Vec<Known>) {
        if self.known.is_empty() && known.len() == 1 {
            self.view = View::Node { place: 0, chosen: 0 };
        }
        self.known = known;
    }

    /// Places of the known, in the order of the list.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.known.len()).collect();
        order.sort_by(|one, other| self.sort.compare(&self.known[*one], &self.known[*other]));
        if self.reversed {
            order.reverse();
        }
        order
    }

    /// The hot keys of a server: first those by requests, then those by bytes.
    pub(crate) fn hot_keys(&self, place: usize) -> Vec<&HotKey> {
        let hot = self.known.get(place).and_then(|known| known.hot.as_ref());
        hot.into_iter().flat_map(|hot| hot.by_requests.iter().chain(&hot.by_bytes)).collect()
    }

    /// A key was pressed.
    pub(crate) fn press(&mut self, event: KeyEvent) -> Goes {
        let with_control = event.modifiers.contains(KeyModifiers::CONTROL);
        match event.code {
            KeyCode::Char('q') => return Goes::Away,
            KeyCode::Char('c') if with_control => return Goes::Away,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-(self.page as isize)),
            KeyCode::PageDown => self.step(self.page as isize),
            KeyCode::Home => self.step(isize::MIN / 2),
            KeyCode::End => self.step(isize::MAX / 2),
            KeyCode::Char('s') => self.sort = self.sorted_by(1),
            KeyCode::Char('S') => self.sort = self.sorted_by(Sort::ALL.len() - 1),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Enter | KeyCode::Right => self.open(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => return self.back(),
            _ => {}
        }
        Goes::On
    }

    fn sorted_by(&self, further: usize) -> Sort {
        let now = Sort::ALL.iter().position(|sort| *sort == self.sort).unwrap_or(0);
        Sort::ALL[(now + further) % Sort::ALL.len()]
    }

    fn step(&mut self, by: isize) {
        let moved = |now: usize, count: usize| now.saturating_add_signed(by).min(count.saturating_sub(1));
        match self.view {
            View::List => {
                let order = self.order();
                let now = order.iter().position(|place| *place == self.chosen).unwrap_or(0);
                self.chosen = order.get(moved(now, order.len())).copied().unwrap_or(0);
            }
            View::Node { place, chosen } => {
                let chosen = moved(chosen, self.hot_keys(place).len());
                self.view = View::Node { place, chosen };
            }
            View::Key { .. } => {}
        }
    }

    fn open(&mut self) {
        match self.view {
            View::List if self.chosen < self.known.len() => self.view = View::Node { place: self.chosen, chosen: 0 },
            View::Node { place, chosen } => {
                let Some(key) = self.hot_keys(place).get(chosen).map(|key| (*key).clone()) else { return };
                let asked = Asked::begin(key, &self.known[place].address, &self.outward);
                self.view = View::Key { place, chosen, asked };
            }
            View::List | View::Key { .. } => {}
        }
    }

    fn back(&mut self) -> Goes {
        match self.view {
            View::List => return Goes::Away,
            View::Node { place, .. } => {
                self.chosen = place;
                self.view = View::List;
            }
            View::Key { place, chosen, .. } => self.view = View::Node { place, chosen },
        }
        Goes::On
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Figures;

    fn known(name: &str, operations: f64) -> Known {
        let mut known = Known::new(name.into(), "127.0.0.1:1".parse().unwrap());
        known.figures = Some(Figures { operations, ..Figures::default() });
        known
    }

    fn press(app: &mut App, code: KeyCode) -> Goes {
        app.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn the_chosen_server_stays_chosen_when_the_order_changes() {
        let mut app = App::new(Outward::default());
        app.take(vec![known("a", 1.0), known("b", 3.0), known("c", 2.0)]);
        assert_eq!(app.order(), [1, 2, 0]);
        press(&mut app, KeyCode::Home);
        press(&mut app, KeyCode::Down);
        assert_eq!(app.chosen, 2);
        app.take(vec![known("a", 9.0), known("b", 3.0), known("c", 2.0)]);
        press(&mut app, KeyCode::Char('r'));
        assert_eq!((app.order(), app.chosen), (vec![2, 1, 0], 2));
        press(&mut app, KeyCode::Enter);
        assert!(matches!(app.view, View::Node { place: 2, .. }));
        assert_eq!(press(&mut app, KeyCode::Esc), Goes::On);
        assert_eq!(press(&mut app, KeyCode::Esc), Goes::Away);
    }

    #[test]
    fn keys_without_anything_to_act_on_do_nothing() {
        let mut app = App::new(Outward::default());
        for code in [KeyCode::Up, KeyCode::Down, KeyCode::PageDown, KeyCode::End, KeyCode::Enter, KeyCode::Char('x')] {
            assert_eq!(press(&mut app, code), Goes::On);
        }
        app.take(vec![known("only", 1.0)]);
        press(&mut app, KeyCode::Enter);
        assert!(matches!(app.view, View::Node { place: 0, chosen: 0 }), "it has no hot keys to open");
        for _ in 0..2 * Sort::ALL.len() {
            press(&mut app, KeyCode::Char('s'));
        }
        assert_eq!(app.sort, Sort::Operations);
    }
}
