//! The codecs as patches for a kernel tree: sources in `lib/restow`, which that kernel's own Kbuild
//! compiles with its Rust.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::folder::files;
use crate::command::output_of;
use crate::environment::root;
#[cfg(test)]
use crate::tools;

/// Where the sources are put.
const FOLDER: &str = "lib/restow";

/// The files that are of no crate.
const OTHERS: &str = "xtask/src/kmod/series";

/// A patch: subject, the reason, and the files that it adds to [`FOLDER`], by how paths begin.
type Patch = (&'static str, &'static str, &'static [&'static str]);

const PATCHES: [Patch; 8] = [
    (
        "lib: restow: Add XXH32 and XXH64 in Rust",
        "A crate without unsafe code, an allocator or a panic. The checksum of\nZstandard's frames is XXH64. Nothing is built yet.",
        &["xxhash/"],
    ),
    (
        "lib: restow: Add entropy coders of Zstandard in Rust",
        "The parts of both directions: headers of frames, FSE and Huffman\ncodes, literals, sequences, dictionaries, and the caller's workspace\nthat all memory is taken from.",
        &["zstd/"],
    ),
    (
        "lib: restow: Add decompression of Zstandard in Rust",
        "Frames in one call, and streams, in the caller's memory.",
        &["zstd/decode/"],
    ),
    (
        "lib: restow: Add compression of Zstandard in Rust",
        "Levels -131072 to 22. An index that the compiler cannot prove is checked,\nand a wrong one is an error, for nothing here may panic.",
        &["zstd/encode/"],
    ),
    (
        "lib: restow: Add inner loops of Zstandard in Rust",
        "The only unsafe code of the crate: inner loops on integers, twice where\nBMI1, BMI2 and LZCNT make them faster.",
        &["zstd/arch/"],
    ),
    (
        "lib: restow: Add the C functions of Zstandard in Rust",
        "The functions of <linux/zstd.h> and <linux/xxhash.h>, with the error\nnumbers of the C library.",
        &["ffi/"],
    ),
    (
        "lib: restow: Build Zstandard and xxHash in Rust",
        "With CONFIG_RESTOW, the functions of <linux/zstd.h> and <linux/xxhash.h>\nare those of lib/restow, built in or as modules as their users need them.",
        &["Kconfig", "Makefile", "xxhash_main.c", "zstd_main.c"],
    ),
    (
        "lib: restow: Add KUnit tests",
        "Frames that were put together field by field from RFC 8878, and round\ntrips at each level.",
        &["restow_kunit.c"],
    ),
];

/// The patch with which all of it is built.
const BUILT: usize = 6;

/// The crates, and their files and folders that a kernel does not build.
const CRATES: [(&str, &[&str]); 3] = [
    ("xxhash", &[]),
    ("zstd", &["read.rs", "write.rs", "vec.rs"]),
    ("ffi", &["legacy"]),
];

/// Changes to files of the tree: how a line begins, and the lines in its place, or before it if
/// they begin in another way.
const CHANGES: [(&str, &str, &str); 4] = [
    (
        "lib/Kconfig",
        "config XXHASH",
        "source \"lib/restow/Kconfig\"\n\n",
    ),
    (
        "lib/Makefile",
        "obj-$(CONFIG_XXHASH)",
        "obj-$(CONFIG_XXHASH)\t+= $(if $(CONFIG_RESTOW),restow/,xxhash.o)\n",
    ),
    (
        "lib/Makefile",
        "obj-$(CONFIG_ZSTD_COMPRESS)",
        "obj-$(CONFIG_ZSTD_COMPRESS) += $(if $(CONFIG_RESTOW),restow/,zstd/)\n",
    ),
    (
        "lib/Makefile",
        "obj-$(CONFIG_ZSTD_DECOMPRESS)",
        "obj-$(CONFIG_ZSTD_DECOMPRESS) += $(if $(CONFIG_RESTOW),restow/,zstd/)\n",
    ),
];

/// The title of our entry among the maintainers.
const ENTRY: &str = "RESTOW (ZSTANDARD AND XXHASH IN RUST)";

/// Subject and text of the letter before the patches.
const COVER: &str = "Zstandard and xxHash in Rust\n\n\
    The functions of <linux/zstd.h> and <linux/xxhash.h> in Rust, beside the C\n\
    code of lib/zstd and lib/xxhash.c, which stays and is built unless\n\
    CONFIG_RESTOW is set. The sources are those of the crates xxhash, zstd and\n\
    ffi of restow without their unit tests. Memory comes from the caller alone,\n\
    and neither data nor a call out of order makes them panic.";

/// Frames with more bytes are left out of the KUnit tests.
const FRAME_MAX: usize = 256;

/// Makes the patches for a kernel tree, in a folder that is made, and gives their paths.
pub(super) fn series(tree: &Path, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("write {}: {error}", folder.display());
    let sources = sources(tree)?;
    let scratch = folder.join("tree");
    fs::create_dir_all(&scratch).map_err(failed)?;
    let author = output_of(git(&root()).args(["log", "-1", "--format=%an%n%ae"]))?;
    let (name, address) = author.trim_end().split_once('\n').unwrap_or_default();
    let commit = |words: &[&str]| {
        output_of(git(&scratch).args(["add", "--all"]))?;
        let mut commit = git(&scratch);
        for who in ["AUTHOR", "COMMITTER"] {
            commit.env(format!("GIT_{who}_NAME"), name);
            commit.env(format!("GIT_{who}_EMAIL"), address);
        }
        output_of(commit.args(["commit", "--quiet", "--signoff"]).args(words))
    };
    output_of(git(&scratch).args(["init", "--quiet", "--initial-branch=series"]))?;
    let mut changed = BTreeMap::new();
    for path in ["lib/Kconfig", "lib/Makefile", "MAINTAINERS"] {
        let from = tree.join(path);
        let text = fs::read_to_string(&from)
            .map_err(|error| format!("read {}: {error}", from.display()))?;
        put(&scratch.join(path), &text)?;
        changed.insert(path, text);
    }
    commit(&["--message", "The tree"])?;
    let mut patterns = BTreeSet::new();
    for (at, (subject, reason, _)) in PATCHES.iter().enumerate() {
        for (path, text) in &sources {
            if patch_of(path) == Some(at) {
                put(&scratch.join(FOLDER).join(path), text)?;
                patterns.insert(pattern(path, at));
            }
        }
        for (path, text) in &changed {
            let text = match *path {
                "MAINTAINERS" => with_entry(text, name, address, &patterns),
                _ if at == BUILT => with_folder(path, text)?,
                _ => continue,
            };
            put(&scratch.join(path), &text)?;
        }
        commit(&["--message", subject, "--message", reason])?;
    }
    output_of(git(&scratch).args(["config", "branch.series.description", COVER]))?;
    let mut format = git(&scratch);
    format.args([
        "format-patch",
        "--quiet",
        "--cover-letter",
        "--no-signature",
    ]);
    format.args(["--cover-from-description=subject", "--zero-commit"]);
    format
        .arg(format!("-{}", PATCHES.len()))
        .args(["--output-directory", ".."]);
    output_of(&mut format)?;
    let mut patches = files(folder)?;
    patches.retain(|(name, _)| name.ends_with(".patch"));
    Ok(patches.into_iter().map(|(_, path)| path).collect())
}

fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder);
    git
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, text))
        .map_err(|error| format!("write {}: {error}", path.display()))
}

/// The patch that adds a file: that with the longest beginning of its path.
fn patch_of(path: &str) -> Option<usize> {
    let starts = PATCHES.iter().enumerate().flat_map(|(at, (.., starts))| {
        let known = starts.iter().filter(|start| path.starts_with(**start));
        known.map(move |start| (start.len(), at))
    });
    starts.max().map(|(_, at)| at)
}

/// The pattern of a file among those of a maintainer: the largest folder that only this patch adds
/// to, or else all files beside it.
fn pattern(path: &str, at: usize) -> String {
    let mut others: Vec<&str> = Vec::new();
    for (other, (.., starts)) in PATCHES.iter().enumerate() {
        if other != at {
            others.extend(*starts);
        }
    }
    let mut folders = path.match_indices('/').map(|(end, _)| &path[..=end]);
    let own =
        (folders.clone()).find(|folder| !others.iter().any(|start| start.starts_with(folder)));
    match (own, folders.next_back()) {
        (Some(own), _) => own.to_owned(),
        (None, Some(folder)) => format!("{folder}*"),
        (None, None) => path.to_owned(),
    }
}

/// All files of [`FOLDER`], by their paths there.
fn sources(tree: &Path) -> Result<BTreeMap<String, String>, String> {
    let mut sources = BTreeMap::new();
    for (name, left_out) in CRATES {
        let folder = root().join("crates").join(name);
        let readme = folder.join("README.md");
        sources.insert(format!("{name}/README.md"), read(&readme)?);
        let mut folders = vec![folder.join("src")];
        while let Some(at) = folders.pop() {
            for entry in
                fs::read_dir(&at).map_err(|error| format!("read {}: {error}", at.display()))?
            {
                let path = entry
                    .map_err(|error| format!("read {}: {error}", at.display()))?
                    .path();
                let inner = path.strip_prefix(folder.join("src")).unwrap_or(&path);
                let inner = inner.to_string_lossy().into_owned();
                if left_out.contains(&inner.as_str()) || inner.ends_with("tests.rs") {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else {
                    sources.insert(format!("{name}/{inner}"), without_tests(&read(&path)?));
                }
            }
        }
    }
    for (name, path) in files(&root().join(OTHERS))? {
        if !name.ends_with(".rs") {
            sources.insert(name, read(&path)?);
        }
    }
    for (list, header, into) in [
        ("xxhash", "xxhash", "xxhash_main.c"),
        ("zstd_compress", "zstd", "zstd_main.c"),
        ("zstd_decompress", "zstd", "zstd_main.c"),
    ] {
        let header = read(&tree.join(format!("include/linux/{header}.h")))?;
        let list_path = root().join(format!("kmod/names_{list}.h"));
        let exports = exports(&read(&list_path)?, &header);
        let mark = format!("@{}@\n", list.trim_start_matches("zstd_"));
        if let Some(text) = sources.get_mut(into) {
            *text = text.replace(&mark, &exports);
        }
    }
    if let Some(text) = sources.get_mut("restow_kunit.c") {
        let (vectors, content_max) = vectors()?;
        *text = (text.replace("@vectors@\n", &vectors))
            .replace("@content_max@", &content_max.to_string());
    }
    Ok(sources)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))
}

/// A source as a kernel has it: with its licence, and without unit tests, which are at its end.
fn without_tests(text: &str) -> String {
    let end = text
        .find("\n#[cfg(test)]\nmod tests {")
        .unwrap_or(text.len());
    let text = text[..end].replace(
        "include_str!(\"../README.md\")",
        "include_str!(\"README.md\")",
    );
    format!(
        "// SPDX-License-Identifier: Apache-2.0 OR MIT\n{}\n",
        text.trim_end()
    )
}

/// The functions of a list that the kernel's header has.
fn exports(list: &str, header: &str) -> String {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut text = String::new();
    for line in list
        .lines()
        .filter_map(|line| line.strip_prefix("#define "))
    {
        let name = line.split(' ').next().unwrap_or_default();
        let is_there = header.match_indices(name).any(|(at, _)| {
            let before = header.as_bytes()[..at].last();
            let after = header.as_bytes().get(at + name.len());
            !before.is_some_and(|byte| is_of_name(*byte)) && after == Some(&b'(')
        });
        if is_there {
            let _ = writeln!(text, "EXPORT({name});");
        }
    }
    text
}

/// Elements of the table of frames: those of the tests of zstd that are short and need no
/// dictionary; and the length of the longest content.
fn vectors() -> Result<(String, usize), String> {
    let folder = root().join("crates/zstd/testdata");
    let mut text = String::new();
    let mut content_max = 0;
    for row in read(&folder.join("README.md"))?.lines() {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [file, result, what] = cells[..] else {
            continue;
        };
        let Some(name) = file
            .strip_prefix("| `")
            .and_then(|name| name.strip_suffix(".zst`"))
        else {
            continue;
        };
        if what.contains("Dictionary: ") || name.contains("magicless") {
            continue;
        }
        let path = folder.join(format!("{name}.zst"));
        let frame = fs::read(&path).map_err(|error| format!("read {}: {error}", path.display()))?;
        let content = result.split_once(" bytes, `");
        if frame.len() > FRAME_MAX {
            continue;
        }
        let (length, hash) = content.map_or(("0", "0"), |(length, hash)| {
            (length, hash.trim_end_matches('`'))
        });
        content_max = content_max.max(length.parse().unwrap_or(0));
        let lines: Vec<String> = (frame.chunks(16))
            .map(|bytes| {
                bytes
                    .iter()
                    .fold(String::new(), |line, byte| line + &format!("\\x{byte:02x}"))
            })
            .collect();
        let _ = writeln!(
            text,
            "\t{{ \"{name}\",\n\t  \"{}\",\n\t  {}, {}, {length}, 0x{hash}ULL }},",
            lines.join("\"\n\t  \""),
            frame.len(),
            content.is_some(),
        );
    }
    Ok((text, content_max))
}

/// The list of maintainers with an entry of ours for these files, where it belongs by its name.
fn with_entry(text: &str, name: &str, address: &str, patterns: &BTreeSet<String>) -> String {
    let start = text.find("Maintainers List").unwrap_or(0);
    let mut at = text.len();
    for (blank, _) in text[start..].match_indices("\n\n") {
        let title = &text[start + blank + 2..];
        if title.starts_with(|first: char| first.is_ascii_alphanumeric()) && title > ENTRY {
            at = start + blank + 2;
            break;
        }
    }
    let mut entry = format!("{ENTRY}\nM:\t{name} <{address}>\nS:\tMaintained\n");
    for pattern in patterns {
        let _ = writeln!(entry, "F:\t{FOLDER}/{pattern}");
    }
    format!("{}{entry}\n{}", &text[..at], &text[at..])
}

/// A file of the tree with our folder in it.
fn with_folder(path: &str, text: &str) -> Result<String, String> {
    let mut changed = String::new();
    let mut found = 0;
    let changes = CHANGES.iter().filter(|(file, ..)| *file == path);
    for line in text.split_inclusive('\n') {
        match changes
            .clone()
            .find(|(_, start, _)| line.starts_with(start))
        {
            Some((_, start, new)) => {
                found += 1;
                changed += new;
                if !new.starts_with(start) {
                    changed += line;
                }
            }
            None => changed += line,
        }
    }
    if found != changes.count() {
        return Err(format!(
            "{path} of this kernel lacks a line that the series changes"
        ));
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;

    /// The lines of a kernel that the series looks at.
    const TREE: [(&str, &str); 5] = [
        (
            "lib/Kconfig",
            "menu \"Library\"\n\nconfig XXHASH\n\ttristate\n",
        ),
        (
            "lib/Makefile",
            "obj-$(CONFIG_XXHASH)\t+= xxhash.o\nobj-$(CONFIG_ZSTD_COMPRESS) += zstd/\nobj-$(CONFIG_ZSTD_DECOMPRESS) += zstd/\n",
        ),
        (
            "MAINTAINERS",
            "Maintainers List\n----\n\n3C59X DRIVER\nS:\tMaintained\n\nTHE REST\nF:\t*\n",
        ),
        (
            "include/linux/xxhash.h",
            "u64 xxh64(const void *, size_t, u64);\n",
        ),
        (
            "include/linux/zstd.h",
            "size_t zstd_compress_bound(size_t);\nunsigned int zstd_is_error(size_t);\n",
        ),
    ];

    #[test]
    fn the_series_applies_and_its_crates_compile() {
        let at = env::temp_dir().join(format!("restow-series-{}", std::process::id()));
        let _ = fs::remove_dir_all(&at);
        let tree = at.join("linux");
        for (path, text) in TREE {
            put(&tree.join(path), text).unwrap();
        }
        let patches = series(&tree, &at.join("series")).unwrap();
        assert_eq!(patches.len(), PATCHES.len() + 1);
        output_of(
            git(&tree)
                .args(["apply", "--whitespace=error"])
                .args(&patches[1..]),
        )
        .unwrap();
        let has = |path: &str, part: &str| {
            let text = read(&tree.join(path)).unwrap();
            assert!(text.contains(part), "{path} lacks {part}: {text}");
        };
        has("lib/Kconfig", "Kconfig\"\n\nconfig XXHASH");
        has(
            "lib/Makefile",
            "COMPRESS) += $(if $(CONFIG_RESTOW),restow/,zstd/)\n",
        );
        has("MAINTAINERS", "Maintained\n\nRESTOW");
        has("MAINTAINERS", "F:\tlib/restow/xxhash/\n");
        // Each patch names the files that it adds.
        for patch in &patches[1..] {
            let text = read(patch).unwrap();
            assert!(text.contains("\n+F:\tlib/restow/"), "{}", patch.display());
        }
        has(
            "lib/restow/zstd_main.c",
            "COMPRESS)\nEXPORT(zstd_compress_bound);\n#endif",
        );
        has(
            "lib/restow/zstd_main.c",
            "DECOMPRESS)\nEXPORT(zstd_is_error);\n#endif",
        );
        // Or else the module is permanent.
        has("lib/restow/zstd_main.c", "\nmodule_exit(");
        // Called by crypto/zstd.c.
        has(
            "lib/restow/zstd_main.c",
            "\nEXPORT_SYMBOL_GPL(ZSTD_isError);\n",
        );
        has("lib/restow/xxhash_main.c", "\nEXPORT(xxh64);\n");
        has(
            "lib/restow/restow_kunit.c",
            ", true, 500, 0x77cc80c704cb48d3ULL },\n",
        );
        // A frame of 31 bytes; 128 KiB are too few.
        has("lib/restow/restow_kunit.c", "#define CONTENT_MAX 131080\n");
        // The crates that Kbuild compiles, as far as the types.
        for (name, features, known) in [
            ("xxhash", "", ""),
            (
                "zstd",
                "arch assume-bmi no-panic compress decompress",
                "xxhash",
            ),
            (
                "ffi",
                "allocator assume-bmi export modern xxhash compress decompress",
                "xxhash zstd",
            ),
        ] {
            let mut rustc = Command::new(tools::rustc());
            rustc.args([
                "--edition=2024",
                "--crate-type=rlib",
                "--emit=metadata",
                "-Dwarnings",
            ]);
            for feature in features.split_whitespace() {
                rustc.args(["--cfg", &format!("feature=\"{feature}\"")]);
            }
            for known in known.split_whitespace() {
                rustc.args(["--extern", known]);
            }
            let source = tree.join(FOLDER).join(name).join("lib.rs");
            rustc
                .arg("-L")
                .arg(&at)
                .arg("--out-dir")
                .arg(&at)
                .arg(source);
            output_of(rustc.args(["--crate-name", name])).unwrap();
        }
        fs::remove_dir_all(&at).unwrap();
    }
}
