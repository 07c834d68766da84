//! Tables in plain text, and how numbers are put into them.

/// Rows of cells; the first column is aligned to the left, the others to the right.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Lines between rows, each with the number of rows before it.
    headings: Vec<(usize, String)>,
}

impl Table {
    /// A table with this head.
    pub fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned).to_vec()], headings: Vec::new() }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// Adds a heading line above the rows that follow.
    pub fn heading(&mut self, text: &str) {
        self.headings.push((self.rows.len(), text.to_owned()));
    }

    /// The table as lines of text.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell_width = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
        let widths: Vec<usize> =
            (0..columns).map(|column| self.rows.iter().map(|row| cell_width(row, column)).max().unwrap_or(0)).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (_, heading) in self.headings.iter().filter(|(before, _)| *before == number) {
                text += &format!("\n{heading}\n");
            }
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                line += &if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// A number with as many decimals as its size makes sense of.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

/// The middle value, or the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["name", "value"]);
        table.row(["a long name".to_owned(), "1".to_owned()]);
        assert_eq!(table.render(), "name         value\na long name      1\n");
        table.heading("a heading longer than all cells");
        table.row(["b".to_owned(), "2".to_owned()]);
        let expected =
            "name         value\na long name      1\n\na heading longer than all cells\nb                2\n";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn an_even_number_of_rounds_takes_the_mean_of_the_middle_two() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }
}
