//! A walk of the items of several apps, one app after the other, under the names by which clients know their keys.

use moneta_store::component;
use moneta_store::{Cursor, Cx, Door, Walked, Walking};

use super::{App, Apps};

/// Where a walk stands.
#[derive(Default)]
struct Walk {
    /// The app, as a place among all.
    app: usize,
    in_app: Cursor,
}

impl component::Walk for Apps {
    /// Shows what can be read through the door: all of the app behind one of its own, else what the apps' prefixes lead to.
    fn walk(&self, cx: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let door = cx.door();
        let mut walk: Box<Walk> = cursor.take().unwrap_or_default();
        let reached = |app: &App| if door == Door::COMMON { app.prefix.is_some() } else { app.door == Some(door) };
        while self.all().get(walk.app).is_some_and(|app| !reached(app)) {
            walk.app += 1;
        }
        let Some(app) = self.all().get(walk.app) else { return Walking::End };
        let mut named = Vec::new();
        let mut filter = |item: &Walked<'_>| {
            let stripped = app.prefix.as_deref().filter(|_| app.strip_prefix && door == Door::COMMON);
            named.clear();
            named.extend_from_slice(stripped.unwrap_or_default());
            named.extend_from_slice(item.key);
            if self.of(door, &named).is_some_and(|(of, _)| std::ptr::eq(of, app)) {
                show(&Walked { key: &named, ..*item });
            }
        };
        let walking = match component::Walk::walk(&app.cluster, cx, &mut walk.in_app, &mut filter) {
            Walking::End => {
                walk.app += 1;
                walk.in_app = Cursor::default();
                Walking::More
            }
            other => other,
        };
        cursor.keep(walk);
        walking
    }
}
