//! The sources and manifests of the workspace -> imports of a higher floor.
//!
//! A crate uses only crates on floors below its own. The modules of a crate have floors too: no two of them use
//! each other, directly or through others, so there is an order in which each uses only earlier modules. A
//! module is declared by the root of the crate; a folder is one module; definitions in the root itself count as
//! `lib.rs`.
//!
//! Only names in code count: `use` trees, and paths such as `crate::a::b` and `super::b`, also inside of macros. A
//! name that the root re-exports counts as an import of the module that defines the name. The re-export itself does
//! not count, and tests do not. A call of a method without the path of its type is not detected.
//!
//! This test is in the lowest crate because it needs only the files of the workspace.
//!
//!     cargo test -p wideload-simd --test floors -- --nocapture      also shows the tolerated cycles

mod workspace;

use proc_macro2::{Span, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemUse, Macro, Meta, UseTree, Visibility};
use workspace::{Texts, crates, name_of, read, sources};

/// The crates by their folders, the lowest floor first. Crates on one floor do not use each other.
const FLOORS: [&[&str]; 11] = [
    &["simd", "testkit"],
    &["packet"],
    &["pmtu"],
    &["engine", "capture", "linux"],
    &["offload"],
    &["port"],
    &["config"],
    &["gateway", "sim"],
    &["daemon"],
    &["lab"],
    &["cli", "bench", "fuzz"],
];

/// Tolerated imports of a higher floor: crate, importing module, imported module. Without them no cycle remains.
const TOLERATED: &[(&str, &str, &str)] = &[
    ("bench", "placement", "harness"),
    ("bench", "recipe", "workload"),
    ("sim", "rng", "link"),
    ("sim", "scene", "simulation"),
];

#[test]
fn every_crate_uses_only_crates_on_floors_below_its_own() {
    let wrong: Vec<String> = crates().iter().flat_map(|folder| upward_dependencies(folder)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_modules_of_a_crate_form_a_cycle() {
    let (mut known, mut wrong) = (String::new(), String::new());
    let all: Vec<String> = crates().iter().map(|folder| name_of(folder)).collect();
    for gone in TOLERATED.iter().map(|entry| entry.0).filter(|name| !all.iter().any(|known| known == name)) {
        wrong += &format!("{gone}: there is no such crate: take it out of TOLERATED\n");
    }
    for folder in crates() {
        let name = name_of(&folder);
        let arrows = arrows_of(&sources(&folder.join("src")));
        let tolerated: Vec<_> =
            TOLERATED.iter().filter(|entry| entry.0 == name).map(|entry| (entry.1, entry.2)).collect();
        known += &told(&name, &arrows);
        wrong += &judged(&name, &arrows, &tolerated);
    }
    assert!(wrong.is_empty(), "an import runs up; move what both need to a module below them:\n{wrong}");
    print!("{known}");
}

#[test]
fn a_cycle_is_reported_with_its_lines() {
    let files = texts(&[
        ("lib.rs", "mod a; mod b; mod c; pub use c::{C, D as E};"),
        ("a.rs", "use crate::b::B;\nuse crate::E;"),
        ("b/mod.rs", "mod deep;\nfn f() { assert!(1 < crate::c::LIMIT); }"),
        ("b/deep.rs", "use super::f;\nfn g(_: super::super::a::A) {}"),
        ("c.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}"),
    ]);
    let arrows = arrows_of(&files);
    assert_eq!(
        told("x", &arrows),
        "x: a, b use each other:\n  crates/x/src/a.rs:1: a -> b\n  crates/x/src/b/deep.rs:2: b -> a\n"
    );
    let all: Vec<String> = arrows.keys().map(|(from, to)| format!("{from} -> {to}")).collect();
    assert_eq!(all, ["a -> b", "a -> c", "b -> a", "b -> c"]);
    assert_eq!(judged("x", &arrows, &[("b", "a")]), "");
}

#[test]
fn an_unused_exception_is_reported() {
    let files = texts(&[("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "")]);
    let said = judged("x", &arrows_of(&files), &[("a", "b")]);
    assert_eq!(said, "x: a -> b makes no circle any more: take it out of TOLERATED\n");
}

#[test]
fn items_of_the_root_are_defined_in_the_root() {
    let files =
        texts(&[("lib.rs", "use a::A;\nmod a;\npub trait T { fn f(_: A); }"), ("a.rs", "impl crate::T for A {}")]);
    let circle =
        "x: a, lib.rs use each other:\n  crates/x/src/a.rs:1: a -> lib.rs\n  crates/x/src/lib.rs:1: lib.rs -> a\n";
    assert_eq!(told("x", &arrows_of(&files)), circle);
}

/// Imports of one module by another, with their lines.
type Arrows = BTreeMap<(String, String), BTreeSet<Line>>;

/// A file inside of `src`, and a line in it.
type Line = (String, usize);

/// The faults of a crate: cycles that remain without the tolerated imports, and tolerated imports that are not part
/// of a cycle.
fn judged(name: &str, arrows: &Arrows, tolerated: &[(&str, &str)]) -> String {
    let is_tolerated = |names: &(String, String)| tolerated.contains(&(&names.0, &names.1));
    let mut rest = arrows.clone();
    rest.retain(|names, _| !is_tolerated(names));
    let mut wrong = told(name, &rest);
    for (from, to) in tolerated {
        let names = (from.to_string(), to.to_string());
        let reached_back = reached(&rest, to).contains(*from);
        if !arrows.contains_key(&names) || !reached_back {
            writeln!(wrong, "{name}: {from} -> {to} makes no circle any more: take it out of TOLERATED")
                .expect("a text takes all");
        }
    }
    wrong
}

/// The cycles of a crate, each with the lines of its imports.
fn told(name: &str, arrows: &Arrows) -> String {
    let mut text = String::new();
    for circle in circles(arrows) {
        text += &format!("{name}: {} use each other:\n", circle.iter().cloned().collect::<Vec<_>>().join(", "));
        for ((from, to), lines) in
            arrows.iter().filter(|(names, _)| circle.contains(&names.0) && circle.contains(&names.1))
        {
            lines
                .iter()
                .for_each(|(file, line)| text += &format!("  crates/{name}/src/{file}:{line}: {from} -> {to}\n"));
        }
    }
    text
}

/// Sets of more than one module in which each module reaches all others.
fn circles(arrows: &Arrows) -> BTreeSet<BTreeSet<String>> {
    let modules: BTreeSet<&String> = arrows.keys().map(|(from, _)| from).collect();
    let reached: BTreeMap<&String, BTreeSet<String>> =
        modules.iter().map(|from| (*from, reached(arrows, from))).collect();
    let with = |one: &String| {
        let both_ways = |other: &&String| reached[one].contains(*other) && reached[*other].contains(one);
        modules.iter().copied().filter(both_ways).cloned().collect::<BTreeSet<String>>()
    };
    modules.iter().map(|one| with(one)).filter(|circle| circle.len() > 1).collect()
}

/// The modules that a module uses, directly or through others.
fn reached(arrows: &Arrows, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from.to_string()];
    while let Some(next) = open.pop() {
        for (_, to) in arrows.keys().filter(|(from, _)| *from == next) {
            if found.insert(to.clone()) {
                open.push(to.clone());
            }
        }
    }
    found
}

fn arrows_of(texts: &Texts) -> Arrows {
    let root =
        ["lib.rs", "main.rs"].into_iter().find(|root| texts.contains_key(*root)).expect("a crate has a root");
    let mut modules = Vec::new();
    let items = parsed(root, &texts[root]);
    add_module(texts, root, String::new(), Vec::new(), items, &mut modules);
    let names = Names::of(&modules);
    let mut arrows = Arrows::new();
    for module in &modules {
        let mut reader = Reader { module, names: &names, found: Vec::new() };
        module.items.iter().for_each(|item| reader.visit_item(item));
        for (path, span) in reader.found {
            let Some(to) = names.module_of(&path) else { continue };
            let from = module.path.first().map_or(root, |name| name).to_string();
            let to = if to.is_empty() { root.to_string() } else { to };
            if from != to {
                arrows.entry((from, to)).or_default().insert((module.file.clone(), span.start().line));
            }
        }
    }
    arrows
}

/// A module, or the root, whose path is empty.
struct Module {
    path: Vec<String>,
    file: String,
    /// The items of the module, without inner modules and tests.
    items: Vec<Item>,
}

/// Adds the module with these items, and all modules that these items declare. The files of the declared modules
/// are in `folder`, which must end in a slash or be empty.
fn add_module(
    texts: &Texts,
    file: &str,
    folder: String,
    path: Vec<String>,
    items: Vec<Item>,
    modules: &mut Vec<Module>,
) {
    let (inner, items): (Vec<Item>, Vec<Item>) =
        items.into_iter().filter(|item| !is_test(attributes(item))).partition(|item| matches!(item, Item::Mod(_)));
    modules.push(Module { path: path.clone(), file: file.to_string(), items });
    for item in inner {
        let Item::Mod(inner) = item else { unreachable!("they were parted") };
        let name = inner.ident.to_string();
        let path = [path.clone(), vec![name.clone()]].concat();
        let below = format!("{folder}{name}/");
        if let Some((_, items)) = inner.content {
            add_module(texts, file, below, path, items, modules);
            continue;
        }
        let places = [format!("{folder}{name}.rs"), format!("{below}mod.rs")];
        let place = places.iter().find(|place| texts.contains_key(*place));
        let place = place.unwrap_or_else(|| panic!("{file}: the file of `mod {name}` is neither of {places:?}"));
        add_module(texts, place, below, path, parsed(place, &texts[place]), modules);
    }
}

fn parsed(file: &str, text: &str) -> Vec<Item> {
    syn::parse_file(text).unwrap_or_else(|error| panic!("{file}:{}: {error}", error.span().start().line)).items
}

/// The meaning of names behind `crate::`.
struct Names {
    modules: BTreeSet<String>,
    /// Imports and re-exports of the root: their name in the root, and their path inside of the crate.
    imported: BTreeMap<String, Vec<String>>,
    /// Public definitions of each module, for `pub use module::*`.
    starred: BTreeMap<String, String>,
}

impl Names {
    fn of(modules: &[Module]) -> Names {
        let root = &modules[0];
        let top = |module: &&Module| module.path.len() == 1;
        let mut names = Names {
            modules: modules.iter().filter(top).map(|module| module.path[0].clone()).collect(),
            imported: BTreeMap::new(),
            starred: BTreeMap::new(),
        };
        for item in &root.items {
            let Item::Use(import) = item else { continue };
            for Import { path, name, .. } in imports(import) {
                let path = absolute(&[], path);
                if !path.first().is_some_and(|first| names.modules.contains(first)) {
                    // From another crate.
                    names.imported.insert(name, Vec::new());
                } else if name != "*" {
                    names.imported.insert(name, path);
                } else {
                    let module = modules.iter().find(|module| module.path == path);
                    let shown = module.into_iter().flat_map(|module| &module.items).filter_map(defined);
                    names.starred.extend(shown.map(|name| (name, path[0].clone())));
                }
            }
        }
        names
    }

    /// The module of a path inside of the crate; empty for the root, `None` for another crate.
    fn module_of(&self, path: &[String]) -> Option<String> {
        let Some(first) = path.first() else { return Some(String::new()) };
        if self.modules.contains(first) {
            return Some(first.clone());
        }
        match self.imported.get(first) {
            Some(path) => path.first().cloned(),
            None => Some(self.starred.get(first).cloned().unwrap_or_default()),
        }
    }
}

/// Collects the paths in a module, each from the root of the crate.
struct Reader<'a> {
    module: &'a Module,
    names: &'a Names,
    found: Vec<(Vec<String>, Span)>,
}

impl Reader<'_> {
    fn add(&mut self, path: Vec<String>, span: Span) {
        let is_local = match path.first().map(String::as_str) {
            Some("crate" | "super") => true,
            // Names without these prefixes are defined in the module, or imported there.
            Some("self") => path.len() > 1,
            Some(first) => self.module.path.is_empty() && path.len() > 1 && self.names.modules.contains(first),
            None => false,
        };
        if is_local && path.len() > 1 {
            self.found.push((absolute(&self.module.path, path), span));
        }
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let attributes = match item {
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Const(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let is_re_export = self.module.path.is_empty() && matches!(item.vis, Visibility::Public(_));
        if !is_re_export {
            imports(item).into_iter().for_each(|import| self.add(import.path, import.span));
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.add(segments, path.segments[0].ident.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'a Macro) {
        paths_in(item.tokens.clone()).into_iter().for_each(|(path, span)| self.add(path, span));
        visit::visit_macro(self, item);
    }

    fn visit_visibility(&mut self, _: &'a Visibility) {}
}

/// The paths in a macro that begin with `crate` or `super`.
fn paths_in(tokens: TokenStream) -> Vec<(Vec<String>, Span)> {
    let mut found: Vec<(Vec<String>, Span)> = Vec::new();
    // The colons since the last name of an unfinished path; `None` outside of a path.
    let mut colons = None;
    for token in tokens {
        match (token, colons) {
            (TokenTree::Ident(name), Some(2)) => {
                found.last_mut().expect("a path is open").0.push(name.to_string());
                colons = Some(0);
            }
            (TokenTree::Ident(name), _) if name == "crate" || name == "super" => {
                found.push((vec![name.to_string()], name.span()));
                colons = Some(0);
            }
            (TokenTree::Punct(mark), Some(count)) if mark.as_char() == ':' && count < 2 => colons = Some(count + 1),
            (TokenTree::Group(group), _) => {
                found.extend(paths_in(group.stream()));
                colons = None;
            }
            _ => colons = None,
        }
    }
    found
}

/// One name that a `use` tree imports.
struct Import {
    path: Vec<String>,
    /// The imported name in the importing module; a star for all names of the path.
    name: String,
    span: Span,
}

fn imports(item: &ItemUse) -> Vec<Import> {
    let mut found = Vec::new();
    if item.leading_colon.is_none() {
        add_imports(&item.tree, Vec::new(), &mut found);
    }
    found
}

fn add_imports(tree: &UseTree, mut path: Vec<String>, found: &mut Vec<Import>) {
    let mut add = |path: Vec<String>, name: String, span| found.push(Import { path, name, span });
    match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            add_imports(&part.tree, path, found);
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_imports(tree, path.clone(), found)),
        UseTree::Glob(star) => add(path, "*".to_string(), star.star_token.spans[0]),
        UseTree::Name(part) if part.ident == "self" => {
            let name = path.last().cloned().unwrap_or_default();
            add(path, name, part.ident.span());
        }
        UseTree::Name(part) => {
            path.push(part.ident.to_string());
            add(path, part.ident.to_string(), part.ident.span());
        }
        UseTree::Rename(part) => {
            path.push(part.ident.to_string());
            add(path, part.rename.to_string(), part.ident.span());
        }
    }
}

/// The path of a module's name from the root of the crate.
fn absolute(module: &[String], path: Vec<String>) -> Vec<String> {
    let mut from = if path.first().is_some_and(|first| first == "self" || first == "super") {
        module.to_vec()
    } else {
        Vec::new()
    };
    for part in path {
        match part.as_str() {
            "crate" => from.clear(),
            "self" => {}
            "super" => _ = from.pop(),
            _ => from.push(part),
        }
    }
    from
}

/// Whether the item exists only in tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test,")
        }
        meta => meta.path().is_ident("test"),
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name of a public definition.
fn defined(item: &Item) -> Option<String> {
    let (visibility, name) = match item {
        Item::Const(item) => (&item.vis, &item.ident),
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Fn(item) => (&item.vis, &item.sig.ident),
        Item::Static(item) => (&item.vis, &item.ident),
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    (!matches!(visibility, Visibility::Inherited)).then(|| name.to_string())
}

/// The dependencies of a crate on its own floor or above; dependencies of tests do not count.
fn upward_dependencies(folder: &Path) -> Vec<String> {
    let name = name_of(folder);
    let Some(own) = floor_of(&name) else {
        return vec![format!("crates/{name} has no floor: give it one in FLOORS and in ARCHITECTURE.md")];
    };
    let manifest: toml::Table = read(&folder.join("Cargo.toml")).parse().expect("Cargo has read it");
    let targets = manifest.get("target").and_then(|targets| targets.as_table()).into_iter().flatten();
    let tables = targets.filter_map(|(_, table)| table.as_table()).chain([&manifest]);
    let kinds = tables.flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)));
    let used = kinds.flatten().filter_map(|table| table.as_table()).flat_map(|table| table.keys());
    used.filter_map(|used| floor_of(used).filter(|floor| *floor >= own).map(|floor| (used, floor)))
        .map(|(used, floor)| {
            format!("crates/{name}/Cargo.toml: {name} on floor {own} uses {used} on floor {floor}")
        })
        .collect()
}

fn floor_of(name: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&name))
}

fn texts(files: &[(&str, &str)]) -> Texts {
    files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect()
}
