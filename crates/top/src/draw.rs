//! Draws the state of the screen: as many columns as there is room for, the most telling first.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use crate::app::{App, View};
use crate::figures::Figures;
use crate::item::Asked;
use crate::poller::Known;
use crate::target::HotKey;
use crate::units;

/// A column of the list: title, width, what it shows.
type Column = (&'static str, u16, fn(&Figures) -> String);

/// Columns after the name, in the order in which they find room.
const COLUMNS: [Column; 13] = [
    ("OPS/S", 6, |figures| units::count(figures.operations)),
    ("HIT", 5, |figures| or_none(figures.hits, units::share)),
    ("P99", 5, |figures| or_none(figures.p99, units::time)),
    ("MEM", 5, |figures| units::bytes(figures.memory)),
    ("CONNS", 5, |figures| or_none(figures.connections, units::count)),
    ("P50", 5, |figures| or_none(figures.p50, units::time)),
    ("ITEMS", 6, |figures| or_none(figures.items, units::count)),
    ("EVICT/S", 7, |figures| or_none(figures.evictions, units::count)),
    ("WA", 5, |figures| or_none(figures.amplification, |value| format!("{value:.2}"))),
    ("SSD W/S", 7, |figures| or_none(figures.device_written, units::bytes)),
    ("HOTTEST", 7, |figures| or_none(figures.hot, units::share)),
    ("SLOW/S", 6, |figures| or_none(figures.slow, units::count)),
    ("VERSION", 10, |figures| figures.version.clone()),
];

/// The least width of the name.
const NAME_MIN: u16 = 12;
/// From this width on hot keys stand beside the rest.
const WIDE: u16 = 90;

const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().fg(Color::DarkGray);
const BAD: Style = Style::new().fg(Color::Red);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

fn or_none(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// Draws it.
pub(crate) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    app.page = usize::from(middle.height.saturating_sub(1)).max(1);
    let (title, help) = match &app.view {
        View::List => (list_title(app), "q quit  s sort  r reverse  Enter open"),
        View::Node { place, .. } => (node_title(app.known.get(*place)), "Esc back  Enter open key  q quit"),
        View::Key { asked, .. } => (Line::styled(asked.key.shown.clone(), TITLE), "Esc back  q quit"),
    };
    frame.render_widget(Paragraph::new(title), top);
    frame.render_widget(Paragraph::new(Line::styled(help, DIM)), bottom);
    match &app.view {
        View::List => list(frame, middle, app),
        View::Node { place, chosen } => node(frame, middle, app, *place, *chosen),
        View::Key { asked, .. } => key(frame, middle, asked),
    }
}

fn list_title(app: &App) -> Line<'static> {
    let silent = app.known.iter().filter(|known| known.failure.is_some()).count();
    let operations: f64 = app.known.iter().filter_map(|known| Some(known.figures.as_ref()?.operations)).sum();
    let mut title = vec![
        Span::styled(format!("{} servers", app.known.len()), TITLE),
        Span::raw(format!("  {}/s  by {}", units::count(operations), app.sort.name())),
    ];
    if silent > 0 {
        title.push(Span::styled(format!("  {silent} silent"), BAD));
    }
    Line::from(title)
}

fn list(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let name_width = app.known.iter().map(|known| known.name.chars().count() as u16).max().unwrap_or(0).max(4);
    let mut left = area.width.saturating_sub(NAME_MIN.max(name_width.min(area.width / 3)));
    let fits = |(_, width, _): &&Column| {
        let fits = left > *width;
        left = if fits { left - width - 1 } else { 0 };
        fits
    };
    let columns: Vec<&Column> = COLUMNS.iter().take_while(fits).collect();
    let right = |text: String, width: u16| Cell::from(format!("{text:>0$}", usize::from(width)));
    let titles = columns.iter().map(|(title, width, _)| right((*title).to_owned(), *width));
    let header = Row::new(std::iter::once(Cell::from("NODE")).chain(titles)).style(DIM);
    let order = app.order();
    let row = |place: &usize| {
        let known = &app.known[*place];
        let cells: Vec<Cell<'_>> = match &known.figures {
            Some(figures) => columns.iter().map(|(_, width, show)| right(show(figures), *width)).collect(),
            None => Vec::new(),
        };
        let name = match (&known.figures, &known.failure) {
            (_, Some((since, why))) => Line::from(vec![
                Span::raw(known.name.clone()),
                Span::styled(format!(" silent {} s: {why}", since.elapsed().as_secs()), BAD),
            ]),
            (None, None) => Line::from(vec![Span::raw(known.name.clone()), Span::styled(" …", DIM)]),
            (Some(_), None) => Line::from(known.name.clone()).style(name_style(known)),
        };
        Row::new(std::iter::once(Cell::from(name)).chain(cells))
    };
    let healthy: Vec<Row<'_>> = order.iter().map(row).collect();
    let widths = std::iter::once(Constraint::Min(NAME_MIN))
        .chain(columns.iter().map(|(_, width, _)| Constraint::Length(*width)));
    let table = Table::new(healthy, widths).header(header).row_highlight_style(CHOSEN).column_spacing(1);
    let chosen = order.iter().position(|place| *place == app.chosen);
    let mut state = TableState::default().with_selected(chosen);
    frame.render_stateful_widget(table, area, &mut state);
    silent_rows(frame, area, app, &order, state.offset(), chosen);
}

/// Why a server is silent stands across the columns that it has no numbers for.
fn silent_rows(frame: &mut Frame<'_>, area: Rect, app: &App, order: &[usize], offset: usize, chosen: Option<usize>) {
    for (line, row) in (offset..order.len()).take(usize::from(area.height.saturating_sub(1))).enumerate() {
        let known = &app.known[order[row]];
        let Some((since, why)) = &known.failure else { continue };
        let text = Line::from(vec![
            Span::raw(known.name.clone()),
            Span::styled(format!("  silent for {}: {why}", seconds(*since)), BAD),
        ]);
        let style = if chosen == Some(row) { CHOSEN } else { Style::new() };
        let place = Rect { y: area.y + 1 + line as u16, height: 1, ..area };
        frame.render_widget(Paragraph::new(text).style(style), place);
    }
}

fn seconds(since: Instant) -> String {
    units::time(since.elapsed().as_secs().max(1) as f64)
}

fn name_style(known: &Known) -> Style {
    let is_unready = known.figures.as_ref().is_some_and(|figures| figures.ready == Some(false));
    let is_down = known.by_proxy.as_ref().is_some_and(|(_, state)| state != "up");
    if is_unready || is_down { BAD } else { Style::new() }
}

fn node_title(known: Option<&Known>) -> Line<'static> {
    let Some(known) = known else { return Line::default() };
    let mut title = vec![Span::styled(known.name.clone(), TITLE)];
    if let Some((zone, state)) = &known.by_proxy {
        title.push(Span::raw(format!("  zone {zone}, {state} to its proxy")));
    }
    match (&known.figures, &known.failure) {
        (_, Some((since, why))) => title.push(Span::styled(format!("  silent for {}: {why}", seconds(*since)), BAD)),
        (Some(figures), None) => {
            title.push(Span::raw(format!("  {}", figures.version)));
            if figures.ready == Some(false) {
                title.push(Span::styled("  not ready", BAD));
            }
        }
        (None, None) => title.push(Span::styled("  …", DIM)),
    }
    Line::from(title)
}

fn node(frame: &mut Frame<'_>, area: Rect, app: &App, place: usize, chosen: usize) {
    let Some(known) = app.known.get(place) else { return };
    let numbers = known.figures.as_ref().map_or_else(Vec::new, numbers);
    let (keys, chosen_line) = hot_lines(app, place, chosen);
    if area.width >= WIDE {
        let [left, right] = Layout::horizontal([Constraint::Percentage(55), Constraint::Percentage(45)]).areas(area);
        frame.render_widget(Paragraph::new(numbers), left);
        scrolled(frame, right, keys, chosen_line);
    } else {
        let before = numbers.len();
        let all = numbers.into_iter().chain(keys).collect();
        // Without a chosen key from the top, so that numbers are seen first.
        let shown = chosen_line.filter(|_| chosen > 0).map(|line| line + before);
        scrolled(frame, area, all, shown);
    }
}

/// Lines, scrolled so far that one of them is seen.
fn scrolled(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>, seen: Option<usize>) {
    let height = usize::from(area.height).max(1);
    let first = seen.map_or(0, |line| (line + 2).saturating_sub(height));
    frame.render_widget(Paragraph::new(lines).scroll((first.min(usize::from(u16::MAX)) as u16, 0)), area);
}

/// A heading, and pairs of a name and what it is.
fn section(lines: &mut Vec<Line<'static>>, title: &str, pairs: impl IntoIterator<Item = (String, String)>) {
    let mut pairs = pairs.into_iter().peekable();
    if pairs.peek().is_none() {
        return;
    }
    lines.push(Line::styled(title.to_owned(), TITLE));
    lines.extend(pairs.map(|(name, value)| Line::from(format!("  {name:<16} {value:>8}"))));
}

fn numbers(figures: &Figures) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let pair = |name: &str, value: Option<f64>, show: fn(f64) -> String| Some((name.to_owned(), show(value?)));
    let of = |list: &[(String, f64)], show: fn(f64) -> String| -> Vec<(String, String)> {
        list.iter().map(|(name, value)| (name.clone(), show(*value))).collect()
    };
    let all = ("all".to_owned(), units::count(figures.operations));
    section(&mut lines, "commands a second", std::iter::once(all).chain(of(&figures.by_command, units::count)));
    let times = figures
        .latencies
        .iter()
        .map(|(name, p50, p99)| (name.clone(), format!("{:>8} {:>8}", units::time(*p50), units::time(*p99))));
    section(&mut lines, "times                 p50      p99", times);
    let reads = figures.by_tier.iter().filter(|(_, rate)| *rate > 0.0);
    let reads: Vec<(String, String)> = reads.map(|(tier, rate)| (tier.clone(), units::count(*rate))).collect();
    section(&mut lines, "reads a second by tier", pair("hits", figures.hits, units::share).into_iter().chain(reads));
    let clients = [
        pair("connections", figures.connections, units::count),
        pair("in, a second", figures.received, units::bytes),
        pair("out, a second", figures.sent, units::bytes),
        pair("slow, a second", figures.slow, units::count),
        pair("late turns", figures.late, units::count),
    ];
    section(&mut lines, "clients", clients.into_iter().flatten());
    let held = [
        pair("items", figures.items, units::count),
        pair("evicted a second", figures.evictions, units::count),
        pair("limit", figures.memory_limit, units::bytes),
    ];
    section(&mut lines, "memory", held.into_iter().flatten().chain(of(&figures.memory_by_part, units::bytes)));
    let device = [
        pair("write amplif.", figures.amplification, |value| format!("{value:.2}")),
        pair("written a second", figures.device_written, units::bytes),
        pair("read a second", figures.device_read, units::bytes),
    ];
    let regions = figures.regions.iter().filter(|(_, count)| *count > 0.0);
    let regions = regions.map(|(state, count)| (format!("regions {state}"), units::count(*count)));
    section(&mut lines, "SSD", device.into_iter().flatten().chain(regions));
    lines
}

/// Hot keys of one kind: title, keys, how their rate is shown.
type Kind<'a> = (&'static str, &'a [HotKey], fn(f64) -> String);

/// The hot keys, and the line of the chosen one.
fn hot_lines(app: &App, place: usize, chosen: usize) -> (Vec<Line<'static>>, Option<usize>) {
    let Some(hot) = app.known.get(place).and_then(|known| known.hot.as_ref()) else { return (Vec::new(), None) };
    let mut lines = Vec::new();
    let mut chosen_line = None;
    let mut number = 0;
    let kinds: [Kind<'_>; 2] = [
        ("hottest keys by requests, a second", &hot.by_requests, units::count),
        ("by bytes, a second", &hot.by_bytes, units::bytes),
    ];
    for (title, keys, show) in kinds {
        if keys.is_empty() {
            continue;
        }
        lines.push(Line::styled(title, TITLE));
        for key in keys {
            let style = if number == chosen { CHOSEN } else { Style::new() };
            if number == chosen {
                chosen_line = Some(lines.len());
            }
            let text = format!("  {:>6} {:>6}  {}", units::share(key.share), show(key.rate), key.shown);
            lines.push(Line::styled(text, style));
            number += 1;
        }
    }
    (lines, chosen_line)
}

fn key(frame: &mut Frame<'_>, area: Rect, asked: &Asked) {
    let lines: Vec<Line<'_>> = match asked.lines() {
        None => vec![Line::styled("…", DIM)],
        Some(lines) => lines.into_iter().map(|(name, value)| Line::from(format!("{name:<16} {value}"))).collect(),
    };
    frame.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use moneta_net::Outward;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;
    use crate::target::Hot;

    fn known(name: &str, operations: f64) -> Known {
        let mut known = Known::new(name.into(), "127.0.0.1:1".parse().unwrap());
        let by_command = vec![("get".to_owned(), operations)];
        let (hits, p99) = (Some(0.985), Some(0.0012));
        let (connections, memory_by_part) = (Some(12.0), vec![("items logs".to_owned(), 1e6)]);
        let regions = vec![("free".to_owned(), 3.0), ("retired".to_owned(), 0.0)];
        known.figures = Some(Figures {
            operations,
            by_command,
            hits,
            p99,
            connections,
            memory_by_part,
            regions,
            memory: 1e6,
            ready: Some(true),
            version: "1.2.3".into(),
            amplification: Some(1.07),
            ..Figures::default()
        });
        known
    }

    fn screen(app: &mut App, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, app)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    fn fleet() -> App {
        let mut app = App::new(Outward::default());
        let mut gone = known("10.0.0.3:11280", 0.0);
        gone.figures = None;
        gone.failure =
            Instant::now().checked_sub(Duration::from_secs(12)).map(|since| (since, "connection refused".into()));
        app.take(vec![known("10.0.0.1:11280", 12_345.0), known("10.0.0.2:11280", 900.0), gone]);
        app
    }

    #[test]
    fn forty_columns_show_what_tells_most() {
        let lines = screen(&mut fleet(), 40, 8);
        assert_eq!(lines[0], "3 servers  13.2k/s  by ops  1 silent");
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["NODE", "OPS/S", "HIT", "P99", "MEM"]);
        assert_eq!(
            lines[2].split_whitespace().collect::<Vec<_>>(),
            ["10.0.0.1:11280", "12.3k", "98.5%", "1.2ms", "977K"]
        );
        assert!(lines[4].starts_with("10.0.0.3:11280  silent for 12.0s: conn"), "{lines:?}");
        assert!(lines[7].starts_with("q quit"), "{lines:?}");
        let wide = screen(&mut fleet(), 140, 8);
        assert!(wide[1].contains("WA") && wide[1].ends_with("VERSION") && wide[2].contains("1.07"), "{wide:?}");
    }

    #[test]
    fn any_size_is_drawn() {
        for (width, height) in [(1, 1), (3, 2), (11, 5), (40, 3), (300, 100)] {
            let mut app = fleet();
            screen(&mut app, width, height);
            app.press(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
            screen(&mut app, width, height);
        }
    }

    #[test]
    fn a_thousand_servers_are_scrolled_to_the_chosen_one() {
        let mut app = App::new(Outward::default());
        app.take((0..1000).map(|n| known(&format!("node-{n}"), f64::from(n))).collect());
        screen(&mut app, 80, 12);
        app.press(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
        let lines = screen(&mut app, 80, 12);
        assert!(lines[0].starts_with("1000 servers") && lines[10].starts_with("node-0 "), "{lines:?}");
    }

    #[test]
    fn a_server_is_opened_with_its_hot_keys_on_narrow_and_wide_screens() {
        let mut node = known("n", 10.0);
        let key = |shown: &str| HotKey { shown: shown.into(), query: String::new(), rate: 61.0, share: 0.5 };
        node.hot = Some(Hot { by_requests: vec![key("user:1"), key("user:2")], by_bytes: vec![key("page")] });
        let mut app = App::new(Outward::default());
        app.take(vec![node]);
        let narrow = screen(&mut app, 40, 40);
        for part in ["commands a second", "get", "regions free", "write amplif.", "50.0%     61  user:1", "by bytes"] {
            assert!(narrow.iter().any(|line| line.contains(part)), "{part} in {narrow:#?}");
        }
        assert!(!narrow.iter().any(|line| line.contains("retired")));
        let wide = screen(&mut app, 120, 20);
        assert!(wide[1].contains("commands a second") && wide[1].contains("hottest keys by requests"), "{wide:#?}");
        // On a low screen the chosen key is scrolled to.
        app.press(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
        let low = screen(&mut app, 40, 8);
        assert!(low.iter().any(|line| line.contains("page")), "{low:#?}");
    }
}
