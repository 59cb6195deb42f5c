//! No circle between the files of a crate: whoever reads a file can read first the files that it
//! imports from.
//!
//! A path in `use` or in code leads to the file that defines its item, through re-exports. These
//! are the arrows; `mod x;` and re-exports are none, and neither are those of unit tests.

use std::collections::{BTreeMap, BTreeSet};

use super::repository::{File, Finding, Repository};
use super::source::word_positions;

/// The path of a module from its crate's root.
type Module = Vec<String>;

/// A source file of a crate.
struct SourceFile<'a> {
    file: &'a File,
    /// The code without unit tests.
    code: &'a str,
    /// The names that `use` brings, each with its path as it is written.
    imported: BTreeMap<String, Module>,
    /// Paths in `use` and in code, with their places. The first segment is `crate`, `self`, `super`
    /// or a name.
    paths: Vec<(usize, Module)>,
}

/// The crates' files, each with its module.
type Files<'a> = BTreeMap<Module, SourceFile<'a>>;

/// Each circle is found once, with the lines of its imports.
pub(super) fn circles(repository: &Repository) -> Vec<Finding> {
    let roots = (repository.files.iter())
        .filter_map(|file| {
            file.path
                .strip_suffix("/lib.rs")
                .or(file.path.strip_suffix("/main.rs"))
        })
        .filter(|folder| folder.ends_with("src"));
    roots
        .collect::<BTreeSet<&str>>()
        .into_iter()
        .flat_map(|folder| circles_of(repository, folder))
        .collect()
}

fn circles_of(repository: &Repository, folder: &str) -> Vec<Finding> {
    let mut files = Files::new();
    for file in repository.ending(".rs") {
        let Some(path) = file
            .path
            .strip_prefix(folder)
            .and_then(|path| path.strip_prefix('/'))
        else {
            continue;
        };
        let path = path.trim_end_matches(".rs");
        if !path.starts_with("bin/") && !path.ends_with("/tests") && !path.contains("/tests/") {
            let path = path.strip_suffix("/mod").unwrap_or(path);
            let is_root = ["lib", "main"].contains(&path);
            let module = path
                .split('/')
                .filter(|_| !is_root)
                .map(str::to_owned)
                .collect();
            files.insert(module, SourceFile::parse(file));
        }
    }
    // The line of the first import, for each pair.
    let mut arrows: BTreeMap<&Module, BTreeMap<&Module, usize>> = BTreeMap::new();
    for (module, source) in &files {
        for (at, path) in &source.paths {
            if let Some(to) = resolve(&files, module, path, 0).filter(|to| *to != module) {
                let line = source.file.source().line_at(*at);
                arrows.entry(module).or_default().entry(to).or_insert(line);
            }
        }
    }
    let mut findings = Vec::new();
    let mut in_circle: BTreeSet<(&Module, &Module)> = BTreeSet::new();
    for (from, to) in arrows
        .iter()
        .flat_map(|(from, to)| to.keys().map(move |to| (*from, *to)))
    {
        let Some(back) = way(&arrows, to, from).filter(|_| !in_circle.contains(&(from, to))) else {
            continue;
        };
        let circle: Vec<&Module> = [from].into_iter().chain(back).collect();
        in_circle.extend(circle.windows(2).map(|pair| (pair[0], pair[1])));
        let words: Vec<String> = (circle.windows(2))
            .map(|pair| format!("{}:{}", files[pair[0]].file.path, arrows[pair[0]][pair[1]]))
            .collect();
        let what = format!("imports in a circle: {}", words.join(" -> "));
        findings.push(Finding::new(&files[from].file.path, arrows[from][to], what));
    }
    findings
}

/// The shortest way along the arrows, both ends included.
fn way<'a>(
    arrows: &BTreeMap<&'a Module, BTreeMap<&'a Module, usize>>,
    from: &'a Module,
    to: &Module,
) -> Option<Vec<&'a Module>> {
    let mut seen = BTreeSet::from([from]);
    let mut ways = vec![vec![from]];
    while !ways.is_empty() {
        if let Some(found) = ways.iter().find(|way| way.last() == Some(&&to.clone())) {
            return Some(found.clone());
        }
        let mut longer = Vec::new();
        for way in &ways {
            for next in arrows
                .get(way[way.len() - 1])
                .into_iter()
                .flat_map(BTreeMap::keys)
            {
                if seen.insert(next) {
                    longer.push([way.as_slice(), &[*next]].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

/// The module whose file defines the item of a path that stands in `module`.
fn resolve<'a>(
    files: &'a Files,
    module: &[String],
    path: &[String],
    depth: usize,
) -> Option<&'a Module> {
    let first = path.first()?.as_str();
    let mut at = module.to_vec();
    let mut rest = path;
    match first {
        "crate" => (at, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|name| name == "super") {
                at.pop()?;
                rest = &rest[1..];
            }
        }
        name => {
            let is_module = files.contains_key(&[module, &[name.to_owned()]].concat());
            if !is_module && !files.get(module)?.imported.contains_key(name) {
                return None;
            }
        }
    }
    while let Some((name, after)) = rest.split_first() {
        let inner = [at.as_slice(), std::slice::from_ref(name)].concat();
        if !files.contains_key(&inner) {
            break;
        }
        (at, rest) = (inner, after);
    }
    let (here, source) = files.get_key_value(&at)?;
    let Some((name, after)) = rest.split_first() else {
        return Some(here);
    };
    match source.imported.get(name) {
        // A name of its own path, or re-exports in a circle.
        Some(_) if depth > 8 => None,
        Some(original) => {
            let path = [original.as_slice(), after].concat();
            resolve(files, here, &path, depth + 1)
        }
        None => Some(here),
    }
}

impl<'a> SourceFile<'a> {
    fn parse(file: &'a File) -> SourceFile<'a> {
        let mut parsed = SourceFile {
            file,
            code: file.source().shipped(),
            imported: BTreeMap::new(),
            paths: Vec::new(),
        };
        let mut uses = Vec::new();
        for at in word_positions(parsed.code, "use") {
            let line = parsed.code[..at].rsplit('\n').next().unwrap_or_default();
            let visibility = line.trim();
            // `use<'a>` and `impl ... + use<..>` are bounds.
            if !visibility.is_empty() && !visibility.starts_with("pub")
                || visibility.contains(['{', ';', '='])
            {
                continue;
            }
            let tree = parsed.code[at + 3..].split(';').next().unwrap_or_default();
            uses.push(at..at + 3 + tree.len());
            for (name, path) in imports(&[], tree) {
                if visibility.is_empty() {
                    parsed.paths.push((at, path.clone()));
                }
                parsed.imported.insert(name, path);
            }
        }
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for (at, _) in parsed.code.match_indices("::") {
            let start = parsed.code[..at]
                .rfind(|c| !is_part(c))
                .map_or(0, |before| before + 1);
            // Once for each path, at its first colons.
            if parsed.code[start..at].contains(':')
                || parsed.code[..start].ends_with("pub(in ")
                || uses.iter().any(|range| range.contains(&at))
            {
                continue;
            }
            let len = parsed.code[start..]
                .find(|c| !is_part(c))
                .unwrap_or(parsed.code.len() - start);
            let segments = parsed.code[start..start + len]
                .split("::")
                .filter(|name| !name.is_empty());
            parsed
                .paths
                .push((start, segments.map(str::to_owned).collect()));
        }
        parsed
    }
}

/// The names that a tree of `use` brings, with their paths.
fn imports(before: &[String], tree: &str) -> Vec<(String, Module)> {
    let tree = tree.trim();
    let (path, branches) = tree.split_once('{').unwrap_or((tree, ""));
    let (path, alias) = path.split_once(" as ").unwrap_or((path, ""));
    let names = path
        .split("::")
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let mut path = before.to_vec();
    path.extend(names.map(str::to_owned));
    if tree.contains('{') {
        let inside = branches
            .rsplit_once('}')
            .map_or(branches, |(inside, _)| inside);
        let mut depth = 0_usize;
        let parts = inside.split(|c| {
            depth = depth + usize::from(c == '{') - usize::from(c == '}' && depth > 0);
            c == ',' && depth == 0
        });
        return parts
            .filter(|part| !part.trim().is_empty())
            .flat_map(|part| imports(&path, part))
            .collect();
    }
    if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
        path.pop();
    }
    let name = if alias.is_empty() {
        path.last().cloned()
    } else {
        Some(alias.trim().to_owned())
    };
    name.map(|name| (name, path)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let findings = circles(&Repository::of(files));
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn circle_is_found_with_its_lines() {
        let files = [
            (
                "crates/a/src/lib.rs",
                "mod b;\nmod c;\npub use b::{B, D as E};\n",
            ),
            ("crates/a/src/b.rs", "use crate::{\n    c::{self, X},\n};\n"),
            ("crates/a/src/c/mod.rs", "mod d;\npub(crate) use d::X;\n"),
            (
                "crates/a/src/c/d.rs",
                "// crate::c\nfn f() -> crate::E {}\n",
            ),
        ];
        let expected = "imports in a circle: crates/a/src/b.rs:1 -> crates/a/src/c/d.rs:2";
        assert_eq!(found(&files), [expected]);
    }

    #[test]
    fn paths_in_code_count() {
        let files = [
            (
                "crates/a/src/main.rs",
                "mod b;\nfn f() {}\nfn main() { b::g() }\n",
            ),
            ("crates/a/src/b.rs", "pub(crate) fn g() { super::f() }\n"),
        ];
        let expected = "imports in a circle: crates/a/src/main.rs:3 -> crates/a/src/b.rs:1";
        assert_eq!(found(&files), [expected]);
    }

    #[test]
    fn tests_visibilities_and_other_crates_make_no_circle() {
        let files = [
            ("crates/a/src/lib.rs", "mod b;\nuse b::X;\nuse std::b;\n"),
            (
                "crates/a/src/b.rs",
                "use std::io;\n#[cfg(test)]\nmod tests {\nuse crate::Y;\n}\n",
            ),
            ("crates/a/src/d/mod.rs", "mod e;\nuse e::f;\n"),
            ("crates/a/src/d/e.rs", "pub(in crate::d) fn f() {}\n"),
            ("crates/c/src/lib.rs", "mod b;\nuse a::b;\n"),
            ("crates/c/src/b.rs", "pub fn f() -> a::X { a::b::f() }\n"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn circles_of_re_exports_end() {
        let files = [
            ("crates/a/src/lib.rs", "mod b;\npub use b::X;\n"),
            (
                "crates/a/src/b.rs",
                "pub use crate::X;\nuse crate::X as Y;\n",
            ),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
