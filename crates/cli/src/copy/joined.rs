//! Several sources as one, and one file as a tree.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use restow::{Address, SourceTree};
use tree::{FileKind, FileSystem, Graft, HostDir, Joined, is_valid_name};

use super::args::Copy;
use crate::text;

/// The source with those of `--with`, each where it belongs; and the view that joins them, if there is one.
///
/// # Errors
/// One cannot be opened, or a path is not one.
pub(super) fn join(source: SourceTree, args: &Copy) -> Result<(SourceTree, Option<Arc<Joined>>)> {
    if args.with.is_empty() && args.root_becomes.is_none() {
        return Ok((source, None));
    }
    let root = args.root_becomes.as_deref().map(OsStr::as_bytes);
    let mut grafts = vec![graft(source.tree(), names(root.unwrap_or_default())?)];
    let options = args.source.options(false);
    let mut sources = Vec::new();
    for words in &args.with {
        let (path, at) = split(words);
        let address = Address::of(&path)?;
        let further = SourceTree::open_further(&address, &options, args.rescue.accept_changed)?;
        grafts.push(graft(further.tree(), names(at)?));
        sources.push(further);
    }
    let joined = Arc::new(Joined::new(grafts)?);
    let tree: Arc<dyn FileSystem> = Arc::<Joined>::clone(&joined);
    Ok((source.joined(tree, sources), Some(joined)))
}

fn graft(tree: &Arc<dyn FileSystem>, path: Vec<Box<[u8]>>) -> Graft {
    Graft {
        path,
        tree: Arc::clone(tree),
        ino: tree.root(),
        kind: FileKind::Directory,
    }
}

/// `SRC2` or `SRC2=PATH`, taken apart at the last `=`, unless there is a file with the whole name.
fn split(words: &OsString) -> (PathBuf, &[u8]) {
    let bytes = words.as_bytes();
    let equals = bytes.iter().rposition(|&byte| byte == b'=');
    match equals {
        Some(at) if !Path::new(words).exists() => {
            let source = OsStr::from_bytes(&bytes[..at]);
            (source.into(), &bytes[at + 1..])
        }
        _ => (words.into(), b""),
    }
}

/// The names of a path in the destination.
fn names(path: &[u8]) -> Result<Vec<Box<[u8]>>> {
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<Box<[u8]>> = names
        .filter(|name| !matches!(*name, b"" | b"."))
        .map(Box::from)
        .collect();
    if !names.iter().all(|name| is_valid_name(name)) {
        bail!("{} is not a path in the destination", text::of_name(path));
    }
    Ok(names)
}

/// The one file that `--to file` copies, as a tree in which it has the name of the destination.
///
/// # Errors
/// There is no such file, or it is not a regular file.
pub(super) fn only_file(args: &Copy, name: &OsStr) -> Result<SourceTree> {
    let (source, path) = match &args.paths[..] {
        [path] => {
            let address = Address::of(&args.src)?;
            let options = args.source.options(false);
            let source = SourceTree::open_further(&address, &options, args.rescue.accept_changed)?;
            (source, path.as_bytes())
        }
        [] => {
            let (parent, path) =
                linux::split_path(&args.src).context("SRC is not a regular file")?;
            (SourceTree::of_dir(parent, HostDir::open(parent)?), path)
        }
        _ => bail!("--to file copies one file"),
    };
    let entry = source.find(path, true)?;
    if entry.kind != FileKind::Regular {
        let (path, kind) = (source.path_name(path), text::of_kind(entry.kind));
        bail!("{path} is a {kind}; --to file copies a regular file");
    }
    let joined = Joined::new(vec![Graft {
        path: vec![name.as_bytes().into()],
        tree: Arc::clone(source.tree()),
        ino: entry.ino,
        kind: entry.kind,
    }])?;
    Ok(source.joined(Arc::new(joined), Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_follows_the_last_equals_sign() {
        for (words, source, at) in [
            ("a", "a", ""),
            ("a=b/c", "a", "b/c"),
            ("a=b=c", "a=b", "c"),
            ("a=", "a", ""),
        ] {
            let words = OsString::from(words);
            assert_eq!(split(&words), (source.into(), at.as_bytes()));
        }
        assert_eq!(
            names(b"/a//./b/").unwrap(),
            [Box::from(*b"a"), Box::from(*b"b")]
        );
        assert!(names(b"a/../b").is_err());
    }
}
