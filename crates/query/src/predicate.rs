//! A predicate on one object.

use std::collections::HashMap;

use cel::parser::PrattParser;
use cel::{Context, ExecutionError, IdedExpr, Value};
use serde_json::Value as Json;

use crate::bounds::Cost;
use crate::error::QueryError;

/// The longest expression, in bytes.
pub const LENGTH_MAX: usize = 2048;

/// The most parts: names, literals, operators, and what `exists` and the like stand for.
const PARTS_MAX: usize = 1600;

/// How deep brackets and operators may lie in one another.
const DEPTH_MAX: usize = 64;

/// How many lists may be gone through (`exists`, `all`, `filter`, `map`) within one another, or each over the result of the one
/// before.
const LOOPS_MAX: usize = 2;

/// The most patterns (`matches`): each is compiled for each object.
const PATTERNS_MAX: usize = 4;

/// The variable that is the whole object.
const WHOLE: &str = "it";

/// The functions of CEL: to make them takes longer than to evaluate a predicate.
#[derive(Default)]
pub struct Functions(Context<'static, 'static>);

/// A predicate on one object.
#[derive(Debug)]
pub struct Predicate {
    expression: IdedExpr,
    /// The variables that it uses; [`WHOLE`] may be one.
    names: Vec<String>,
}

impl Predicate {
    /// Reads an expression over objects that have these fields, or some of them. A field that one lacks is `null` there.
    ///
    /// # Errors
    /// If it is no CEL, too large, or names a field that there is not.
    pub fn parse(text: &str, fields: &[&str]) -> Result<Self, QueryError> {
        let too_large = |reason: String| Err(QueryError::TooLarge { reason });
        if text.len() > LENGTH_MAX {
            return too_large(format!("{} bytes ({LENGTH_MAX} are taken)", text.len()));
        }
        if brackets(text) > DEPTH_MAX {
            return too_large(format!("brackets lie deeper than {DEPTH_MAX}"));
        }
        // The crate's other parser takes exponential time for some texts; this one is written by hand, and bounded.
        let parser = PrattParser::new().max_recursion_depth(DEPTH_MAX as u16).max_expression_node_count(PARTS_MAX);
        let expression = parser.parse(text).map_err(|errors| QueryError::Syntax { reason: errors.to_string() })?;
        let cost = Cost::of(&expression);
        if cost.parts > PARTS_MAX || cost.depth > DEPTH_MAX * 2 {
            return too_large("too many parts, or they lie too deep".to_owned());
        }
        if cost.loops > LOOPS_MAX {
            let how = "within one another, or over the result of another";
            return too_large(format!("lists are gone through {how}, more than {LOOPS_MAX} times"));
        }
        if cost.dear_in_loops > 0 {
            return too_large("+ or matches for each element of a list".to_owned());
        }
        if cost.patterns > PATTERNS_MAX {
            return too_large(format!("{} times matches ({PATTERNS_MAX} are taken)", cost.patterns));
        }
        for name in &cost.names {
            if name != WHOLE && !fields.contains(&name.as_str()) {
                let nearest = fields.iter().find(|field| field.eq_ignore_ascii_case(name) || near(field, name));
                return Err(QueryError::NoField {
                    name: name.clone(),
                    nearest: nearest.map(|field| (*field).to_owned()),
                });
            }
        }
        Ok(Self { expression, names: cost.names })
    }

    /// Whether `object` meets it. One that lacks what the expression looks into does not.
    ///
    /// # Errors
    /// [`QueryError::Meaning`] if the value is neither true nor false, or an operator does not fit its sides.
    pub fn meets(&self, object: &Json) -> Result<bool, QueryError> {
        self.meets_with(&Functions::default(), object)
    }

    /// The same, for many objects.
    ///
    /// # Errors
    /// As [`Self::meets`].
    pub fn meets_with(&self, functions: &Functions, object: &Json) -> Result<bool, QueryError> {
        let mut context = functions.0.new_inner_scope();
        for name in &self.names {
            let value = match name.as_str() {
                WHOLE => value(object),
                field => object.get(field).map_or(Value::Null, value),
            };
            context.add_variable_from_value(name.as_str(), value);
        }
        match Value::resolve(&self.expression, &context) {
            Ok(Value::Bool(meets)) => Ok(meets),
            Ok(_) => Err(QueryError::Meaning { reason: "its value is neither true nor false".to_owned() }),
            Err(error) if lacks(&error) => Ok(false),
            Err(error) => Err(QueryError::Meaning { reason: shortened(&error.to_string()) }),
        }
    }
}

/// How deep brackets lie in one another; those in strings count, too.
fn brackets(text: &str) -> usize {
    let mut deepest = 0;
    text.bytes().fold(0usize, |depth, byte| {
        let depth = match byte {
            b'(' | b'[' | b'{' => depth + 1,
            b')' | b']' | b'}' => depth.saturating_sub(1),
            _ => depth,
        };
        deepest = deepest.max(depth);
        depth
    });
    deepest
}

/// Whether an error says that the object lacks something: a key, an element, or a value where there is `null`.
fn lacks(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::NoSuchKey(_) | ExecutionError::IndexOutOfBounds(_) => true,
        ExecutionError::NoSuchOverload(overload) => {
            overload.argument_types().iter().any(|of| of == "null_type" || of == "null")
        }
        ExecutionError::ValuesNotComparable(a, b) | ExecutionError::UnsupportedBinaryOperator(_, a, b) => {
            matches!(a, Value::Null) || matches!(b, Value::Null)
        }
        ExecutionError::UnsupportedTargetType { target } | ExecutionError::NotSupportedAsMethod { target, .. } => {
            matches!(target, Value::Null)
        }
        ExecutionError::UnexpectedType { got, .. } => got == "null_type",
        ExecutionError::UnsupportedIndex(_, of) => matches!(of, Value::Null),
        _ => false,
    }
}

/// Errors may show a whole object.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Whether two names differ by one or two letters, in whatever places.
fn near(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > 2 || a.len().max(b.len()) > 64 {
        return false;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(from != to)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()] <= 2
}

/// JSON as CEL has it: whole numbers are signed, so that they compare with literals.
fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::from(*truth),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(elements) => Value::from(elements.iter().map(value).collect::<Vec<_>>()),
        Json::Object(fields) => {
            Value::from(fields.iter().map(|(name, of)| (name.clone(), value(of))).collect::<HashMap<String, Value>>())
        }
    }
}
