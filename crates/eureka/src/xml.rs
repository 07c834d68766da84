//! XML to and from the JSON that means the same.
//!
//! Names of elements are escaped as Eureka's XStream escapes them: `_` is `__`, `$` is `_-`, what may not be in a name `_.` and four
//! hexadecimal digits. `versions__delta` and `apps__hashcode` are such names, so JSON has them in this form, too.

use quick_xml::Reader;
use quick_xml::escape::escape;
use quick_xml::events::{BytesRef, BytesStart, Event};
use serde_json::{Map, Value};

use crate::error::EurekaError;

/// How deep elements may lie in one another: an instance has four levels.
const DEPTH_MAX: usize = 8;

/// How many elements there may be.
const ELEMENTS_MAX: usize = 2048;

/// An element that is read.
#[derive(Default)]
struct Element {
    name: String,
    /// Attributes, as `@name`, and children.
    fields: Map<String, Value>,
    text: String,
}

impl Element {
    fn begin(start: &BytesStart<'_>) -> Result<Self, EurekaError> {
        let mut fields = Map::new();
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|error| syntax(&error))?;
            let name = attribute.key.as_ref().to_owned();
            let value = quick_xml::escape::unescape(&attribute.value).map_err(|error| syntax(&error))?;
            fields.insert(format!("@{name}"), Value::from(value.as_ref()));
        }
        Ok(Self { name: name_of(start.name().as_ref()), fields, text: String::new() })
    }

    fn value(self) -> (String, Value) {
        let Self { name, mut fields, text } = self;
        let children = fields.keys().any(|name| !name.starts_with('@'));
        if fields.is_empty() {
            return (name, Value::from(text));
        }
        if !children && !text.is_empty() {
            fields.insert("$".to_owned(), Value::from(text));
        }
        (name, Value::Object(fields))
    }
}

fn syntax(error: &dyn std::fmt::Display) -> EurekaError {
    EurekaError::Syntax { encoding: "XML", reason: error.to_string() }
}

/// The value of a document, under its root's name.
pub(crate) fn read(body: &[u8]) -> Result<Value, EurekaError> {
    let text = std::str::from_utf8(body).map_err(|error| syntax(&error))?;
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Element> = Vec::new();
    let mut elements = 0;
    loop {
        let ended = match reader.read_event().map_err(|error| syntax(&error))? {
            Event::Start(start) | Event::Empty(start) if elements == ELEMENTS_MAX || open.len() == DEPTH_MAX => {
                drop(start);
                return Err(EurekaError::TooLarge { reason: "there are too many elements, or they lie too deep" });
            }
            Event::Start(start) => {
                elements += 1;
                open.push(Element::begin(&start)?);
                None
            }
            Event::Empty(start) => {
                elements += 1;
                Some(Element::begin(&start)?)
            }
            Event::End(_) => open.pop(),
            Event::Text(part) => {
                push(&mut open, &part);
                None
            }
            Event::CData(part) => {
                push(&mut open, &part);
                None
            }
            Event::GeneralRef(reference) => {
                push(&mut open, &character(&reference)?);
                None
            }
            Event::DocType(_) => return Err(syntax(&"it has a document type")),
            Event::Eof => return Err(syntax(&"it ends too early")),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => None,
        };
        let Some(mut element) = ended else { continue };
        if element.fields.keys().any(|name| !name.starts_with('@')) || element.text.trim().is_empty() {
            element.text.clear();
        }
        let (name, value) = element.value();
        match open.last_mut() {
            None => return Ok(Value::Object(Map::from_iter([(name, value)]))),
            Some(parent) => match parent.fields.get_mut(&name) {
                None => {
                    parent.fields.insert(name, value);
                }
                Some(Value::Array(several)) => several.push(value),
                Some(one) => *one = Value::Array(vec![one.take(), value]),
            },
        }
    }
}

fn push(open: &mut [Element], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

/// The character that a reference stands for: one by its number, or one of XML's five. No document declares others, since none may
/// have a document type.
fn character(reference: &BytesRef<'_>) -> Result<String, EurekaError> {
    if let Some(character) = reference.resolve_char_ref().map_err(|error| syntax(&error))? {
        return Ok(character.to_string());
    }
    let known = quick_xml::escape::resolve_xml_entity(reference);
    known.map(str::to_owned).ok_or_else(|| syntax(&format!("there is no entity {}", &**reference)))
}

/// A document whose root has this name.
pub(crate) fn write(name: &str, value: &Value) -> Vec<u8> {
    let mut out = String::new();
    element(&mut out, name, value);
    out.into_bytes()
}

fn element(out: &mut String, name: &str, value: &Value) {
    let none = Map::new();
    let fields = match value {
        Value::Array(several) => return several.iter().for_each(|one| element(out, name, one)),
        Value::Object(fields) => fields,
        _ => &none,
    };
    let name = match name {
        // These are escaped already.
        "versions__delta" | "apps__hashcode" => name.to_owned(),
        name => escaped_name(name),
    };
    out.push('<');
    out.push_str(&name);
    for (attribute, value) in fields.iter().filter_map(|(name, value)| Some((name.strip_prefix('@')?, value))) {
        out.push_str(&format!(" {attribute}=\"{}\"", escape(words(value).as_str())));
    }
    out.push('>');
    let attributes = fields.keys().any(|name| name.starts_with('@'));
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| !name.starts_with('@')) {
                match name.as_str() {
                    "$" if attributes => text(out, &words(value)),
                    name => element(out, name, value),
                }
            }
        }
        value => text(out, &words(value)),
    }
    out.push_str("</");
    out.push_str(&name);
    out.push('>');
}

/// Text, without the characters that XML cannot have.
fn text(out: &mut String, text: &str) {
    let allowed =
        |c: &char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    let text: String = text.chars().filter(allowed).collect();
    out.push_str(&escape(text.as_str()).replace('\r', "&#13;"));
}

fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Whether a name may begin with, or have, this character. Narrower than XML, which takes most of Unicode.
fn in_name(character: char, first: bool) -> bool {
    character.is_ascii_alphabetic() || (!first && (character.is_ascii_digit() || matches!(character, '.' | '-')))
}

fn escaped_name(name: &str) -> String {
    let mut escaped = String::new();
    for unit in name.encode_utf16() {
        match char::from_u32(u32::from(unit)) {
            Some('_') => escaped.push_str("__"),
            Some('$') => escaped.push_str("_-"),
            Some(character) if in_name(character, escaped.is_empty()) => escaped.push(character),
            _ => escaped.push_str(&format!("_.{unit:04x}")),
        }
    }
    match escaped.is_empty() {
        true => "_.0000".to_owned(),
        false => escaped,
    }
}

/// The name that an escaped one stands for. A `_` that escapes nothing stands for itself.
fn name_of(escaped: &str) -> String {
    let mut units: Vec<u16> = Vec::new();
    let mut rest = escaped;
    while let Some(character) = rest.chars().next() {
        let hex = rest
            .strip_prefix("_.")
            .and_then(|tail| tail.get(..4))
            .and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let (unit, taken) = match hex {
            Some(unit) => (Some(unit), 6),
            None if rest.starts_with("__") => (Some(u16::from(b'_')), 2),
            None if rest.starts_with("_-") => (Some(u16::from(b'$')), 2),
            None => (None, character.len_utf8()),
        };
        match unit {
            Some(0) => {}
            Some(unit) => units.push(unit),
            None => units.extend(character.encode_utf16(&mut [0; 2]).iter()),
        }
        rest = &rest[taken..];
    }
    String::from_utf16_lossy(&units)
}
