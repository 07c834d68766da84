//! What a property may be: schemas of the options of nodes and proxies, made of their declarations, and schemas of users' own names.

use moneta_options::declaration::{Declaration, Section, options};
use moneta_options::kinds::Form;
use moneta_options::kinds::units::{self, Bytes, Time};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

use crate::error::Refusal;
use crate::names::short;
use crate::properties::value::VALUE_MAX;

/// The most words of a schema, and characters of what it says of itself.
const WORDS_MAX: usize = 100;
const SUMMARY_MAX: usize = 1_000;
/// The largest schema, in bytes of JSON.
pub const SCHEMA_MAX: usize = 16 << 10;

/// The options that nodes and proxies have.
#[derive(Clone, Copy)]
pub struct PropertyOptions {
    /// All of them.
    pub sections: &'static [&'static Section],
    /// Whether a property may set the option of this name.
    pub may_set: fn(&str) -> bool,
}

impl Default for PropertyOptions {
    fn default() -> Self {
        Self { sections: &[], may_set: |_| false }
    }
}

impl std::fmt::Debug for PropertyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PropertyOptions").finish_non_exhaustive()
    }
}

/// What values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    /// True or false.
    Bool,
    /// A whole number.
    Integer,
    /// A number.
    Real,
    /// A time, as `250ms`, `10s`, `2h`; a number counts seconds.
    Duration,
    /// A size, as `64k`, `2g`; a number counts bytes.
    Size,
    /// Text.
    String,
    /// One of a few words.
    Word,
    /// Texts.
    List,
    /// Anything.
    Json,
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Integer => "a whole number",
            Self::Real => "a number",
            Self::Duration => "a time, as 250ms, 10s, 5m, 2h or 1d",
            Self::Size => "a size in bytes, or one with a suffix k, m, g or t",
            Self::String => "text",
            Self::Word => "a word",
            Self::List => "a list of texts",
            Self::Json => "JSON",
        }
    }
}

/// What values of a name of a user's own may be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// The type.
    #[serde(rename = "type")]
    pub kind: Type,
    /// The least: of a number, a time or a size, or the length of a text or list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Value>,
    /// The greatest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Value>,
    /// The words, of type word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,
}

/// What a value is compared by.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Measure {
    Whole(i128),
    Real(f64),
}

impl Schema {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// 400 with what is wrong.
    pub fn check(&self) -> Result<(), Refusal> {
        let wrong = |why: &str| Err(Refusal::invalid(format!("the schema makes no sense: {why}")));
        if (self.kind == Type::Word) == self.words.is_empty() {
            return wrong("type word, and no other, takes words");
        }
        if self.words.len() > WORDS_MAX
            || self.summary.chars().count() > SUMMARY_MAX
            || json!(self).to_string().len() > SCHEMA_MAX
        {
            return wrong("it is too long");
        }
        let bound = |bound: &Option<Value>| bound.as_ref().map(|bound| self.bound(bound)).transpose();
        let (min, max) = (bound(&self.min)?, bound(&self.max)?);
        if matches!((min, max), (Some(min), Some(max)) if min > max) {
            return wrong("min is above max");
        }
        Ok(())
    }

    fn bound(&self, bound: &Value) -> Result<Measure, Refusal> {
        let of_length = match self.kind {
            Type::String | Type::List => bound.as_u64().map(|length| Measure::Whole(length.into())),
            Type::Bool | Type::Word | Type::Json => None,
            Type::Integer | Type::Real | Type::Duration | Type::Size => {
                self.measured(bound).and_then(|(_, measure)| measure)
            }
        };
        of_length.ok_or_else(|| Refusal::invalid("the schema makes no sense: min and max are not of its type"))
    }

    /// A value as it is kept, and what it is compared by.
    fn measured(&self, value: &Value) -> Option<(Value, Option<Measure>)> {
        let whole = |number: i128| Some(Measure::Whole(number));
        let text = match value {
            Value::String(text) => Some(text.trim().to_owned()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        match self.kind {
            Type::Bool => match (value, text.as_deref()) {
                (Value::Bool(is_on), _) => Some((json!(is_on), None)),
                (_, Some("true")) => Some((json!(true), None)),
                (_, Some("false")) => Some((json!(false), None)),
                _ => None,
            },
            Type::Integer => text?.parse::<i64>().ok().map(|number| (json!(number), whole(number.into()))),
            Type::Real => {
                let number = text?.parse::<f64>().ok().filter(|number| number.is_finite())?;
                Some((json!(number), Some(Measure::Real(number))))
            }
            Type::Duration => {
                let milliseconds = units::milliseconds(&text?)?;
                let written = Time(Duration::from_millis(milliseconds)).to_string();
                Some((json!(written), whole(milliseconds.into())))
            }
            Type::Size => {
                let bytes = units::size(&text?, 1)?;
                Some((json!(Bytes(bytes).to_string()), whole(bytes.into())))
            }
            Type::String => {
                let text = value.as_str()?;
                Some((json!(text), whole(text.chars().count() as i128)))
            }
            Type::Word => {
                let word = text?;
                self.words.contains(&word).then(|| (json!(word), None))
            }
            Type::List => {
                let texts: Vec<String> = match value {
                    Value::Array(parts) => {
                        parts.iter().map(|part| part.as_str().map(str::to_owned)).collect::<Option<_>>()?
                    }
                    Value::String(text) if text.is_empty() => Vec::new(),
                    Value::String(text) => text.split(',').map(|part| part.trim().to_owned()).collect(),
                    _ => return None,
                };
                let length = texts.len() as i128;
                Some((json!(texts), whole(length)))
            }
            Type::Json => Some((value.clone(), None)),
        }
    }

    /// A value as it is kept.
    ///
    /// # Errors
    /// 400 with what it must be.
    pub fn read(&self, name: &str, value: &Value) -> Result<Value, Refusal> {
        let refuse = || refused(name, value, &self.range());
        let (kept, measure) = self.measured(value).ok_or_else(refuse)?;
        for (bound, is_min) in [(&self.min, true), (&self.max, false)] {
            let Some(bound) = bound else { continue };
            let bound = self.bound(bound)?;
            let is_within = measure.is_some_and(|measure| if is_min { measure >= bound } else { measure <= bound });
            if !is_within {
                return Err(refuse());
            }
        }
        Ok(kept)
    }

    /// What a value must be, as the end of a sentence.
    pub fn range(&self) -> String {
        let text = |bound: &Value| bound.as_str().map_or_else(|| bound.to_string(), str::to_owned);
        let of = if matches!(self.kind, Type::String | Type::List) { " of length" } else { "" };
        let bounds = match (&self.min, &self.max) {
            (Some(min), Some(max)) => format!("{of} from {} to {}", text(min), text(max)),
            (Some(min), None) => format!("{of} from {}", text(min)),
            (None, Some(max)) => format!("{of} up to {}", text(max)),
            (None, None) => String::new(),
        };
        match self.kind {
            Type::Word => format!("one of {}", self.words.join(", ")),
            kind => format!("{}{bounds}", kind.name()),
        }
    }
}

impl PropertyOptions {
    /// The option of this name.
    pub fn option(&self, name: &str) -> Option<&'static dyn Declaration> {
        options(self.sections).find(|option| option.about().key == name)
    }

    /// The names of those that a property may set.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let may_set = self.may_set;
        options(self.sections).map(|option| option.about().key).filter(move |name| may_set(name))
    }

    /// A value for an option, as it is kept.
    ///
    /// # Errors
    /// 400 if no property may set the option, or with what the value must be.
    pub fn read(&self, option: &dyn Declaration, value: &Value) -> Result<Value, Refusal> {
        let name = option.about().key;
        if !(self.may_set)(name) {
            let why = if option.is_live() {
                "it says who may do what, which each process says for itself"
            } else {
                "it takes effect at a restart, and is set where the process is started"
            };
            return Err(Refusal::invalid(format!("no property may set the option `{name}`: {why}")));
        }
        let refuse = || refused(name, value, &option.range());
        let text = text_of(value).ok_or_else(refuse)?;
        let text = option.normal(&text).ok_or_else(refuse)?;
        Ok(match type_of(option) {
            Type::Bool => text.parse::<bool>().map(Value::from).unwrap_or(Value::String(text)),
            Type::Integer => text.parse::<i64>().map(Value::from).unwrap_or(Value::String(text)),
            _ => Value::String(text),
        })
    }

    /// What is known of an option, for people and programs.
    pub fn described(&self, option: &dyn Declaration) -> Value {
        let about = option.about();
        json!({
            "name": about.key,
            "option": true,
            "type": type_of(option),
            "range": option.range(),
            "default": option.default(),
            "summary": about.summary(),
            "settable": (self.may_set)(about.key),
        })
    }
}

/// The type of an option, by how its values are written.
fn type_of(option: &dyn Declaration) -> Type {
    match (option.form(), option.placeholder().as_str()) {
        (Form::Switch, _) => Type::Bool,
        (Form::List, _) => Type::List,
        (Form::Count { .. }, _) | (_, "N") => Type::Integer,
        (_, "SIZE") => Type::Size,
        (_, "SECONDS" | "TIME") => Type::Duration,
        _ if option.range().starts_with("one of ") => Type::Word,
        _ => Type::String,
    }
}

/// A value as an option is written; `None`: it is none.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(parts) => Some(parts.iter().map(text_of).collect::<Option<Vec<_>>>()?.join(",")),
        Value::Null | Value::Object(_) => None,
    }
}

fn refused(name: &str, value: &Value, range: &str) -> Refusal {
    let shown = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Refusal::invalid(format!("{}: `{}` is refused: it must be {range}", short(name), short(&shown)))
}

/// Whether a value is short enough.
///
/// # Errors
/// 413 if it is not; 400 for null, which is no value.
pub(crate) fn check_size(value: &Value) -> Result<(), Refusal> {
    if value.is_null() {
        return Err(Refusal::invalid("null is no value: unset takes it away"));
    }
    if value.to_string().len() > VALUE_MAX {
        return Err(Refusal::too_large(format!("a value has at most {VALUE_MAX} bytes of JSON")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(text: &str) -> Schema {
        let schema: Schema = serde_json::from_str(text).unwrap();
        schema.check().unwrap();
        schema
    }

    #[test]
    fn values_are_kept_in_one_form_or_refused_with_what_they_must_be() {
        let taken = [
            (r#"{"type":"bool"}"#, json!("true"), json!(true)),
            (r#"{"type":"integer","min":1,"max":9}"#, json!("9"), json!(9)),
            (r#"{"type":"real"}"#, json!(1.5), json!(1.5)),
            (r#"{"type":"duration","max":"1m"}"#, json!("60s"), json!("1m")),
            (r#"{"type":"size","min":"1k"}"#, json!(2048), json!("2KiB")),
            (r#"{"type":"string","max":2}"#, json!("éa"), json!("éa")),
            (r#"{"type":"word","words":["a","b"]}"#, json!("b"), json!("b")),
            (r#"{"type":"list","max":2}"#, json!("x, y"), json!(["x", "y"])),
            (r#"{"type":"json"}"#, json!({"a":[1]}), json!({"a":[1]})),
        ];
        for (text, value, kept) in taken {
            assert_eq!(schema(text).read("x", &value).unwrap(), kept, "{text}");
        }
        let refused = [
            (r#"{"type":"bool"}"#, json!(1)),
            (r#"{"type":"integer","min":1,"max":9}"#, json!(10)),
            (r#"{"type":"integer"}"#, json!(1.5)),
            (r#"{"type":"real"}"#, json!("NaN")),
            (r#"{"type":"duration","max":"1m"}"#, json!("61s")),
            (r#"{"type":"size","min":"1k"}"#, json!("1023")),
            (r#"{"type":"string","max":2}"#, json!("abc")),
            (r#"{"type":"word","words":["a","b"]}"#, json!("c")),
            (r#"{"type":"list"}"#, json!([1])),
        ];
        for (text, value) in refused {
            let refusal = schema(text).read("x", &value).unwrap_err();
            assert!(refusal.status == 400 && refusal.why.contains("it must be"), "{text}: {refusal}");
        }
        assert_eq!(check_size(&json!("x".repeat(VALUE_MAX))).unwrap_err().status, 413);
        assert_eq!(check_size(&Value::Null).unwrap_err().status, 400);
    }

    #[test]
    fn a_schema_that_makes_no_sense_is_none() {
        let texts = [
            r#"{"type":"word"}"#,
            r#"{"type":"bool","words":["a"]}"#,
            r#"{"type":"integer","min":2,"max":1}"#,
            r#"{"type":"duration","min":"soon"}"#,
            r#"{"type":"json","max":1}"#,
        ];
        for text in texts {
            let schema: Schema = serde_json::from_str(text).unwrap();
            assert_eq!(schema.check().map_err(|refusal| refusal.status), Err(400), "{text}");
        }
    }
}
