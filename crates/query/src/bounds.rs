//! What an expression may cost.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr};

/// What an expression consists of.
#[derive(Default)]
pub(crate) struct Cost {
    /// Parts.
    pub(crate) parts: usize,
    /// How deep parts lie in one another.
    pub(crate) depth: usize,
    /// How deep goings through lists lie in one another.
    pub(crate) loops: usize,
    /// Names that are variables, not those of elements of a list.
    pub(crate) names: Vec<String>,
}

impl Cost {
    pub(crate) fn of(expression: &IdedExpr) -> Self {
        let mut cost = Self::default();
        cost.add(expression, 1, 0, &mut Vec::new());
        cost.names.sort_unstable();
        cost.names.dedup();
        cost
    }

    fn add(&mut self, expression: &IdedExpr, depth: usize, loops: usize, bound: &mut Vec<String>) {
        self.parts += 1;
        self.depth = self.depth.max(depth);
        self.loops = self.loops.max(loops);
        let mut add = |part: &IdedExpr, loops, bound: &mut Vec<String>| self.add(part, depth + 1, loops, bound);
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) if bound.contains(name) => {}
            Expr::Ident(name) => self.names.push(name.clone()),
            Expr::Select(select) => add(&select.operand, loops, bound),
            Expr::Call(call) => {
                call.target.iter().for_each(|target| add(target, loops, bound));
                call.args.iter().for_each(|argument| add(argument, loops, bound));
            }
            Expr::List(list) => list.elements.iter().for_each(|element| add(element, loops, bound)),
            Expr::Map(map) => entries(&map.entries, |part| add(part, loops, bound)),
            Expr::Struct(of) => entries(&of.entries, |part| add(part, loops, bound)),
            Expr::Comprehension(each) => {
                add(&each.iter_range, loops, bound);
                add(&each.accu_init, loops, bound);
                let outside = bound.len();
                bound.extend([each.iter_var.clone(), each.accu_var.clone()]);
                bound.extend(each.iter_var2.clone());
                for part in [&each.loop_cond, &each.loop_step, &each.result] {
                    add(part, loops + 1, bound);
                }
                bound.truncate(outside);
            }
        }
    }
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
