//! Finds circles of files: files of one crate that import each other in a loop, so that none can be understood without the others.
//!
//! Compiled and run by `scripts/check-circles.sh`. It takes the workspace's folder and prints the files of each circle in alphabetical
//! order, and an empty line; with `--why`, also the names that each file takes from the others.
//!
//! It reads lines as rustfmt lays them out: `use` declarations, and paths that begin with `crate`, `super`, `self` or a module of
//! the file. A name that a module only passes on (`pub use`) leads to that module and to the file that defines it, and the module needs
//! that file, too. What is compiled for tests only is left out.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

/// Segments of a path.
type Segments = Vec<String>;

/// A name that a `use` declaration binds, and the path it stands for: without segments, an item of another crate.
struct Import {
    name: String,
    path: Segments,
    /// Other modules find the name here, too.
    passed_on: bool,
}

/// What one file says.
#[derive(Default)]
struct Source {
    imports: Vec<Import>,
    paths: BTreeSet<Segments>,
    definitions: HashSet<String>,
    /// Modules with files.
    children: HashSet<String>,
}

/// A file's lines without comments and without items for tests.
fn code(text: &str) -> Vec<&str> {
    let mut lines = text.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line });
    let mut code = Vec::new();
    while let Some(line) = lines.next() {
        if !matches!(line.trim(), "#[cfg(test)]" | "#[test]") {
            code.push(line.split(" // ").next().unwrap_or_default());
            continue;
        }
        let indentation = &line[..line.len() - line.trim_start().len()];
        let ends = |line: &str| {
            let item = line.strip_prefix(indentation).unwrap_or(" ");
            item.starts_with('}') || (!item.starts_with([' ', '#']) && item.ends_with([';', '}']))
        };
        let _ = lines.find(|line| ends(line));
    }
    code
}

/// An item's keyword and name, if a line declares one: `pub(crate) const fn name(...)`.
fn declared(line: &str) -> Option<(&str, &str)> {
    const KEYWORDS: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!"];
    const QUALIFIERS: [&str; 5] = ["const", "unsafe", "async", "extern", "mut"];
    let mut words =
        line.split_whitespace().filter(|word| !word.starts_with("pub") && !word.starts_with('"')).peekable();
    let mut keyword = words.next()?;
    while QUALIFIERS.contains(&keyword) && words.peek().is_some_and(|next| *next == "fn" || QUALIFIERS.contains(next)) {
        keyword = words.next()?;
    }
    let name = words.next()?.split(|character: char| !character.is_alphanumeric() && character != '_').next()?;
    KEYWORDS.contains(&keyword).then_some((keyword, name))
}

impl Source {
    fn read(text: &str) -> Self {
        let code = code(text);
        let mut source = Self::default();
        for line in code.iter().filter(|line| !line.starts_with(' ')) {
            match declared(line) {
                Some(("mod", name)) if line.ends_with(';') => source.children.insert(name.into()),
                Some((_, name)) => source.definitions.insert(name.into()),
                None => false,
            };
        }
        let mut lines = code.into_iter();
        let mut inline = None;
        while let Some(line) = lines.next() {
            match declared(line) {
                Some(("mod", name)) if line.ends_with('{') => inline = Some(name),
                _ if line.starts_with('}') => inline = None,
                _ => {}
            }
            let item = line.trim_start();
            let passed_on = item.starts_with("pub");
            let item =
                item.strip_prefix("pub").map_or(item, |item| item.trim_start_matches(|end| end != ' ').trim_start());
            if let Some(tree) = item.strip_prefix("use ") {
                let mut tree = tree.to_owned();
                while !tree.ends_with(';') {
                    tree.push_str(lines.next().unwrap_or(";").trim());
                }
                source.import(inline, passed_on, &[], tree.trim_end_matches(';'));
            } else {
                source.note_paths(inline, line);
            }
        }
        source
    }

    /// Notes what a tree of a `use` declaration binds, whose paths begin with `prefix`.
    fn import(&mut self, inline: Option<&str>, passed_on: bool, prefix: &[String], tree: &str) {
        let (path, branches) = tree.split_once('{').map_or((tree, None), |(path, rest)| (path, Some(rest)));
        let (path, alias) = path.split_once(" as ").map_or((path, None), |(path, alias)| (path, Some(alias)));
        let segments = path.trim().split("::").filter(|segment| !segment.is_empty()).map(String::from);
        let mut path: Segments = prefix.iter().cloned().chain(segments).collect();
        if let Some(branches) = branches {
            let mut depth = 0_usize;
            let branches = branches.trim_end().trim_end_matches('}');
            let split = branches.split(|character| {
                match character {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                character == ',' && depth == 0
            });
            for branch in split.map(str::trim).filter(|branch| !branch.is_empty()) {
                self.import(inline, passed_on, &path, branch);
            }
            return;
        }
        // `{self, ...}` names the module before the braces.
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let Some(last) = path.last().cloned() else { return };
        let name = alias.map_or(last, |alias| alias.trim().to_owned());
        let path = if self.is_own(&path[0]) { from_file(inline, path) } else { Vec::new() };
        self.imports.push(Import { name, path, passed_on });
    }

    /// Whether a path of the crate's own begins with this segment.
    fn is_own(&self, first: &str) -> bool {
        matches!(first, "crate" | "super" | "self") || self.children.contains(first) || self.definitions.contains(first)
    }

    fn note_paths(&mut self, inline: Option<&str>, line: &str) {
        let words = line.split(|character: char| !character.is_alphanumeric() && !matches!(character, '_' | ':' | '$'));
        for word in words {
            let path: Segments = word.split("::").map(String::from).filter(|segment| !segment.is_empty()).collect();
            if path.len() > 1 && word.starts_with(&path[0]) && self.is_own(&path[0]) {
                self.paths.insert(from_file(inline, path));
            }
        }
    }
}

/// A path as seen from the file's module, which one in an inline module may not be.
fn from_file(inline: Option<&str>, mut path: Segments) -> Segments {
    match (inline, path[0].as_str()) {
        (Some(_), "super") => path[0] = "self".into(),
        (Some(module), first) if first != "crate" => path.splice(0..0, ["self".into(), module.into()]).for_each(drop),
        _ => {}
    }
    path
}

/// Which files each file takes names from, and which names.
type Arrows<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, BTreeSet<&'a str>>>;

/// A crate's files by module, and what they say.
#[derive(Default)]
struct Package(BTreeMap<Segments, (PathBuf, Source)>);

impl Package {
    /// Reads a module's file, and those of the modules declared in it, which are in `folder`.
    fn read(&mut self, module: Segments, file: PathBuf, folder: &Path) -> io::Result<()> {
        let source = Source::read(&fs::read_to_string(&file)?);
        for child in &source.children {
            let (flat, nested) = (folder.join(format!("{child}.rs")), folder.join(child).join("mod.rs"));
            let module = module.iter().chain([child]).cloned().collect();
            self.read(module, if flat.exists() { flat } else { nested }, &folder.join(child))?;
        }
        self.0.insert(module, (file, source));
        Ok(())
    }

    /// The modules in whose files one finds what a path means in module `from`: those that pass it on, then the one that defines it,
    /// unless that is another crate's. `None` if none does.
    fn targets(
        &self,
        from: &[String],
        path: &[String],
        seen: &mut HashSet<(Segments, Segments)>,
    ) -> Option<Vec<Segments>> {
        if path.is_empty() || !seen.insert((from.to_vec(), path.to_vec())) {
            return None;
        }
        let mut module = from.to_vec();
        let mut rest = path;
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "crate" => module.clear(),
                "self" => {}
                "super" => drop(module.pop()),
                child if self.0.get(&module)?.1.children.contains(child) => module.push(child.into()),
                _ => break,
            }
            rest = after;
        }
        let Some((name, after)) = rest.split_first() else { return Some(vec![module]) };
        let source = &self.0.get(&module)?.1;
        if source.definitions.contains(name) {
            return Some(vec![module]);
        }
        if let Some(import) = source.imports.iter().find(|import| import.name == *name && name != "*") {
            let path = [&import.path, after].concat();
            let further = self.targets(&module, &path, seen).unwrap_or_default();
            return Some([vec![module], further].concat());
        }
        let globs = source.imports.iter().filter(|import| import.name == "*" && !import.path.is_empty());
        let mut passed_on = globs.filter_map(|import| {
            let path = [&import.path[..import.path.len() - 1], rest].concat();
            let defines = |targets: &Vec<Segments>| {
                targets.last().is_some_and(|target| self.0[target].1.definitions.contains(name))
            };
            self.targets(&module, &path, seen).filter(defines)
        });
        let further = passed_on.next().unwrap_or_default();
        Some([vec![module.clone()], further].concat())
    }

    /// Leaves out what a module takes for itself from the modules inside it: it holds them, and they may take its words. What it passes
    /// on counts: whoever takes a name from it needs them all.
    fn arrows(&self) -> Arrows<'_> {
        let mut arrows = Arrows::new();
        for (module, (file, source)) in &self.0 {
            let from = arrows.entry(file).or_default();
            let imports = source.imports.iter().map(|import| (&import.path, import.passed_on));
            for (path, passed_on) in imports.chain(source.paths.iter().map(|path| (path, false))) {
                let targets = self.targets(module, path, &mut HashSet::new()).unwrap_or_default();
                for target in targets.iter().filter(|target| passed_on || !target.starts_with(module)) {
                    if let Some((target, _)) = self.0.get(target).filter(|(target, _)| target != file) {
                        from.entry(target).or_default().extend(path.last().map(String::as_str));
                    }
                }
            }
        }
        arrows
    }
}

/// Sets of two files and more that reach each other.
fn circles<'a>(arrows: &Arrows<'a>) -> BTreeSet<BTreeSet<&'a Path>> {
    let reached: HashMap<&Path, BTreeSet<&'a Path>> = arrows.keys().map(|file| (*file, reach(arrows, file))).collect();
    let circle = |file: &&'a Path| {
        let is_mutual = |other: &&Path| reached[*other].contains(*file);
        reached[*file].iter().copied().filter(is_mutual).collect()
    };
    arrows.keys().map(circle).filter(|circle: &BTreeSet<_>| circle.len() > 1).collect()
}

/// The files that can be reached from one by following arrows.
fn reach<'a>(arrows: &Arrows<'a>, from: &Path) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in arrows[file].keys() {
            if reached.insert(*next) {
                open.push(next);
            }
        }
    }
    reached
}

fn run(workspace: &Path, why: bool) -> io::Result<()> {
    let crates = fs::read_dir(workspace.join("crates"))?.map(|entry| entry.map(|entry| entry.path().join("src")));
    let mut folders: Vec<PathBuf> = crates.collect::<io::Result<_>>()?;
    folders.sort();
    let roots = folders.iter().flat_map(|folder| ["lib.rs", "main.rs"].map(|name| (folder, folder.join(name))));
    for (folder, root) in roots.filter(|(_, root)| root.exists()) {
        let mut package = Package::default();
        package.read(Segments::new(), root, folder)?;
        let arrows = package.arrows();
        let shown = |file: &Path| file.strip_prefix(workspace).unwrap_or(file).display().to_string();
        for circle in circles(&arrows) {
            for file in &circle {
                println!("{}", shown(file));
                for (target, names) in arrows[file].iter().filter(|(target, _)| why && circle.contains(*target)) {
                    let names: Vec<&str> = names.iter().copied().collect();
                    println!("    takes from {}: {}", shown(target), names.join(", "));
                }
            }
            println!();
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (workspace, why) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [workspace] => (workspace, false),
        [workspace, "--why"] => (workspace, true),
        _ => {
            eprintln!("usage: circles WORKSPACE [--why]");
            return ExitCode::from(2);
        }
    };
    match run(Path::new(workspace), why) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("circles: {error}");
            ExitCode::FAILURE
        }
    }
}
