//! What a column holds in a row, whatever the format.

/// What a column holds in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cell {
    /// Nothing: the column or its value is missing.
    #[default]
    Nothing,
    /// Text or bytes.
    Bytes(Vec<u8>),
    /// A number, a truth value, a list or an object, as JSON.
    Json(Vec<u8>),
}
