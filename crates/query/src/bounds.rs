//! What an expression may cost.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr};

/// What begins the names that the parser makes for the results of lists that are gone through. No text can have them.
const MADE: char = '@';

/// What an expression consists of.
#[derive(Default)]
pub(crate) struct Cost {
    /// Parts.
    pub(crate) parts: usize,
    /// How deep parts lie in one another.
    pub(crate) depth: usize,
    /// How often lists are gone through, one within another or over the result of another: each multiplies what there is.
    pub(crate) loops: usize,
    /// Operators that take long or make much, for each element of a list.
    pub(crate) dear_in_loops: usize,
    /// Patterns that are compiled, for each object.
    pub(crate) patterns: usize,
    /// Names that are variables, not those of elements of a list.
    pub(crate) names: Vec<String>,
}

impl Cost {
    pub(crate) fn of(expression: &IdedExpr) -> Self {
        let mut cost = Self::default();
        cost.loops = cost.add(expression, 1, false, &mut Vec::new());
        cost.names.sort_unstable();
        cost.names.dedup();
        cost
    }

    /// Adds a part and those in it; returns how many lists are gone through in one another there.
    fn add(&mut self, expression: &IdedExpr, depth: usize, in_loop: bool, bound: &mut Vec<String>) -> usize {
        self.parts += 1;
        self.depth = self.depth.max(depth);
        let mut most = 0;
        let mut add = |part: &IdedExpr, bound: &mut Vec<String>| {
            most = self.add(part, depth + 1, in_loop, bound).max(most);
        };
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) if bound.contains(name) => {}
            Expr::Ident(name) => self.names.push(name.clone()),
            Expr::Select(select) => add(&select.operand, bound),
            Expr::Call(call) => {
                call.target.iter().for_each(|target| add(target, bound));
                call.args.iter().for_each(|argument| add(argument, bound));
                let grows = call.func_name == "_+_" && !call.args.first().is_some_and(is_made);
                let matches = call.func_name == "matches";
                self.dear_in_loops += usize::from(in_loop && (grows || matches));
                self.patterns += usize::from(matches);
            }
            Expr::List(list) => list.elements.iter().for_each(|element| add(element, bound)),
            Expr::Map(map) => entries(&map.entries, |part| add(part, bound)),
            Expr::Struct(of) => entries(&of.entries, |part| add(part, bound)),
            Expr::Comprehension(each) => {
                add(&each.iter_range, bound);
                add(&each.accu_init, bound);
                let outside = bound.len();
                bound.extend([each.iter_var.clone(), each.accu_var.clone()]);
                bound.extend(each.iter_var2.clone());
                let parts = [&each.loop_cond, &each.loop_step, &each.result];
                let within = parts.map(|part| self.add(part, depth + 1, true, bound));
                bound.truncate(outside);
                return most + 1 + within.into_iter().max().unwrap_or(0);
            }
        }
        most
    }
}

/// Whether this is the result, so far, of a list that is gone through.
fn is_made(part: &IdedExpr) -> bool {
    matches!(&part.expr, Expr::Ident(name) if name.starts_with(MADE))
}

fn entries<'a>(entries: &'a [cel::common::ast::IdedEntryExpr], mut add: impl FnMut(&'a IdedExpr)) {
    for entry in entries {
        match &entry.expr {
            EntryExpr::StructField(field) => add(&field.value),
            EntryExpr::MapEntry(entry) => {
                add(&entry.key);
                add(&entry.value);
            }
        }
    }
}
