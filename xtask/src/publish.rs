//! The libraries and the command as they would be published: under names that are free in the registry.
//!
//! There, the short names of some of our crates belong to others. In this repository they stay short; a copy of it, in the target
//! directory, gets the published names. Programs write `use zstd` with both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{cargo, output_of, run};
use crate::outcome::{Outcome, Report};
use crate::root;
use crate::tools::target_dir;

/// What is copied.
const PARTS: [&str; 6] = [
    "Cargo.toml",
    "Cargo.lock",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "crates",
];

/// Made and built as `cargo publish --dry-run` does, each before those that depend on it.
pub(crate) fn publish(report: &mut Report, arguments: &[String]) {
    report.step("publish", || {
        let folder = target_dir().join("package/publish");
        if let Err(reason) = stage(&folder) {
            return Outcome::failed(reason);
        }
        let mut publish = cargo([
            "publish",
            "--dry-run",
            "--workspace",
            "--exclude",
            "testkit",
        ]);
        publish.current_dir(&folder);
        // Not that of this repository, whose crates have other names.
        publish.env("CARGO_TARGET_DIR", folder.join("target"));
        run(publish.args(arguments))
    });
}

/// Copies what is published, with the names for the registry.
fn stage(folder: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(folder.join("crates"));
    let mut list = Command::new("git");
    let listed = output_of(list.current_dir(root()).arg("ls-files").args(PARTS))?;
    for name in listed.lines() {
        let (from, to) = (root().join(name), folder.join(name));
        let failed = |error| format!("copy {name}: {error}");
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let path = PathBuf::from(name);
        if path
            .file_name()
            .is_some_and(|file| file == "Cargo.toml" || file == "Cargo.lock")
        {
            let text = fs::read_to_string(&from).map_err(failed)?;
            fs::write(&to, renamed(name, &text)?).map_err(failed)?;
        } else {
            fs::copy(&from, &to).map_err(failed)?;
        }
    }
    Ok(())
}

/// A manifest, or the lock file, with the published names.
fn renamed(file: &str, text: &str) -> Result<String, String> {
    match file {
        "Cargo.toml" => Ok(of_workspace(text)),
        "Cargo.lock" => Ok(of_lock(text)),
        // What is nested in a crate's folder is no part of it.
        _ if file.split('/').count() > 3 => Ok(text.to_owned()),
        _ => of_crate(file, text),
    }
}

/// The name in the registry.
fn published(name: &str) -> String {
    match name {
        "restow" | "restow-cli" | "testkit" => name.to_owned(),
        name => format!("restow-{name}"),
    }
}

/// The workspace's manifest: members are the crates, which may be published, and dependencies on them name what they are called
/// there. Profiles are for building here.
fn of_workspace(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text
        .lines()
        .take_while(|line| !line.starts_with("[profile"))
    {
        let member = line.trim().trim_end_matches(',').trim_matches('"');
        if member == "xtask" || member == "bench" || member.starts_with("bench/") {
            continue;
        }
        let ours = line.split_once(" = { path = \"crates/");
        match ours {
            Some((name, rest)) if name != "testkit" => {
                let published = published(name);
                lines.push(format!(
                    "{name} = {{ package = \"{published}\", path = \"crates/{rest}"
                ));
            }
            _ if line == "publish = false" => lines.push("publish = true".to_owned()),
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n") + "\n"
}

/// A crate's manifest: its published name, and the name by which programs use it.
fn of_crate(file: &str, text: &str) -> Result<String, String> {
    let name = text.lines().find_map(|line| line.strip_prefix("name = \""));
    let name = name.and_then(|name| name.strip_suffix('"'));
    let name = name.ok_or(format!("{file}: no name"))?;
    let published = published(name);
    if published == name {
        return Ok(text.to_owned());
    }
    let text = text.replacen(
        &format!("name = \"{name}\""),
        &format!("name = \"{published}\""),
        1,
    );
    let library = format!("[lib]\nname = \"{name}\"\n");
    Ok(if text.contains("[lib]\n") {
        text.replacen("[lib]\n", &library, 1)
    } else {
        format!("{text}\n{library}")
    })
}

/// The lock file, so that what is built has the versions that are tested here. Crates from the registry have a source.
fn of_lock(text: &str) -> String {
    let blocks: Vec<&str> = text.split("\n\n").collect();
    let name_of = |block: &str| {
        let name = block
            .lines()
            .find_map(|line| line.strip_prefix("name = \""))?;
        Some(name.trim_end_matches('"').to_owned())
    };
    let is_ours = |block: &&&str| !block.contains("\nsource = ") && block.contains("[[package]]");
    let ours: Vec<String> = blocks
        .iter()
        .filter(is_ours)
        .filter_map(|block| name_of(block))
        .collect();
    let mut lines = Vec::new();
    for line in text.lines() {
        let quoted = line.split('"').nth(1).unwrap_or("");
        let is_name = line.starts_with("name = ") || line.starts_with(' ');
        if is_name && ours.iter().any(|name| name == quoted) {
            lines.push(line.replace(
                &format!("\"{quoted}\""),
                &format!("\"{}\"", published(quoted)),
            ));
        } else {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_get_published_names_and_keep_those_for_programs() {
        let text = "[package]\nname = \"zstd\"\n\n[features]\nstd = []\n";
        let expected =
            "[package]\nname = \"restow-zstd\"\n\n[features]\nstd = []\n\n[lib]\nname = \"zstd\"\n";
        assert_eq!(of_crate("x", text).as_deref(), Ok(expected));
        let text = "[package]\nname = \"ffi\"\n\n[lib]\ndoctest = false\n";
        let expected =
            "[package]\nname = \"restow-ffi\"\n\n[lib]\nname = \"ffi\"\ndoctest = false\n";
        assert_eq!(of_crate("x", text).as_deref(), Ok(expected));
        let command = "[package]\nname = \"restow\"\n";
        assert_eq!(of_crate("x", command).as_deref(), Ok(command));
        assert!(of_crate("x", "[package]\n").is_err());
    }

    #[test]
    fn workspace_names_what_is_published() {
        let text = "members = [\n    \"crates/zstd\",\n    \"bench\",\n    \"bench/x\",\n    \"xtask\",\n]\npublish = false\n\
            zstd = { path = \"crates/zstd\", version = \"1\" }\ntestkit = { path = \"crates/testkit\" }\n[profile.dev]\nx = 1\n";
        let expected = "members = [\n    \"crates/zstd\",\n]\npublish = true\n\
            zstd = { package = \"restow-zstd\", path = \"crates/zstd\", version = \"1\" }\ntestkit = { path = \"crates/testkit\" }\n";
        assert_eq!(of_workspace(text), expected);
    }

    #[test]
    fn locked_versions_stay() {
        let text = "version = 4\n\n[[package]]\nname = \"fuse\"\nversion = \"0\"\ndependencies = [\n \"libc\",\n \"tree\",\n]\n\n\
            [[package]]\nname = \"libc\"\nversion = \"0\"\nsource = \"x\"\n\n[[package]]\nname = \"tree\"\nversion = \"0\"\n";
        let expected = text
            .replace("\"fuse\"", "\"restow-fuse\"")
            .replace("\"tree\"", "\"restow-tree\"");
        assert_eq!(of_lock(text), expected);
    }
}
