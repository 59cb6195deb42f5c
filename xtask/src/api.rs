//! The public items of the libraries, compared with their lists in docs/api.

use std::fs;

use crate::command::{nightly, output_of, package, succeeds};
use crate::environment::root;
use crate::outcome::{Outcome, Report};
use crate::tidy;

/// Where the lists are.
const FOLDER: &str = "docs/api";

/// Compares the public items of each library, or of those named, with its list. `RESTOW_UPDATE=1`
/// writes the lists.
pub(crate) fn api(report: &mut Report, arguments: &[String]) {
    let names = match arguments {
        [] => match libraries() {
            Ok(names) => names,
            Err(reason) => return report.step("api", || Outcome::failed(reason)),
        },
        names => names.to_vec(),
    };
    let is_installed = succeeds(&mut nightly(["public-api", "--version"]));
    for name in &names {
        report.step(&format!("public items of {name}"), || {
            if is_installed {
                compare(name)
            } else {
                Outcome::skipped("needs a nightly compiler, and cargo install cargo-public-api")
            }
        });
    }
}

/// The names of the libraries: the crates below `crates` that others can depend on.
fn libraries() -> Result<Vec<String>, String> {
    let members = tidy::members(&root()).map_err(|error| format!("read manifests: {error}"))?;
    let names = members.into_iter().filter(|member| {
        member.folder.starts_with("crates/") && !["cli", "testkit"].contains(&&*member.name)
    });
    Ok(names.map(|member| member.name).collect())
}

fn compare(name: &str) -> Outcome {
    let package = match name {
        "restow" => name.to_owned(),
        name => package(name),
    };
    let mut command = nightly(["public-api", "-sss", "--all-features", "--package"]);
    let list = match output_of(command.arg(package)) {
        Ok(list) => list,
        Err(reason) => return Outcome::failed(reason),
    };
    let path = root().join(FOLDER).join(format!("{name}.txt"));
    if std::env::var_os("RESTOW_UPDATE").is_some() {
        return match fs::write(&path, list) {
            Ok(()) => Outcome::passed(),
            Err(error) => Outcome::failed(format!("write {}: {error}", path.display())),
        };
    }
    let pinned = fs::read_to_string(&path).unwrap_or_default();
    let lost = only_in(&pinned, &list);
    let new = only_in(&list, &pinned);
    if lost.is_empty() && new.is_empty() {
        return Outcome::passed();
    }
    for (sign, lines) in [('-', &lost), ('+', &new)] {
        for line in lines {
            println!("{sign} {line}");
        }
    }
    Outcome::failed(format!(
        "{name}: {} items gone and {} new; RESTOW_UPDATE=1 cargo xtask api {name} accepts them",
        lost.len(),
        new.len()
    ))
}

/// The lines of `a` that `b` lacks.
fn only_in<'a>(a: &'a str, b: &str) -> Vec<&'a str> {
    let others: std::collections::BTreeSet<&str> = b.lines().collect();
    a.lines().filter(|line| !others.contains(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::only_in;

    #[test]
    fn a_list_that_lacks_an_item_differs() {
        assert_eq!(only_in("a\nb\nc\n", "c\na\n"), ["b"]);
        assert!(only_in("c\na\n", "a\nb\nc\n").is_empty());
    }
}
