//! How layers are merged: the rules of the image specification, by hand.

use testkit::{ImageLayout, LAYER_RULES, layer};
use tree::tar::{Tar, TarOptions};
use tree::{Error, FileSystem, ReadAt, Result};

use crate::{limits, notation, tree_of};

fn merged(layers: &[Vec<u8>]) -> Result<Tar> {
    let boxed = |it: &Vec<u8>| -> Box<dyn ReadAt> { Box::new(it.clone()) };
    let layers = layers.iter().map(boxed).collect();
    Tar::open_layers(layers, limits(), TarOptions::default())
}

#[test]
fn layers_are_merged_by_the_rules() {
    for rule in LAYER_RULES {
        let layers = rule.layers.iter().map(|members| layer(*members));
        let tree = tree_of(&ImageLayout::of(layers)).unwrap_or_else(|error| {
            panic!("{}: {error}", rule.name);
        });
        assert_eq!(notation(&tree), rule.tree, "{}", rule.name);
        let usage = tree.layer_usage().unwrap();
        let all: Vec<u64> = rule.layers.iter().map(|it| content_bytes(it)).collect();
        let found: Vec<u64> = usage.iter().map(|it| it.bytes).collect();
        assert_eq!(found, all, "{}", rule.name);
        let hidden: u64 = usage.iter().map(|it| it.hidden_bytes).sum();
        let shown = content_bytes(rule.tree);
        assert_eq!(hidden, all.iter().sum::<u64>() - shown, "{}", rule.name);
        testkit::use_all(&tree, &limits()).unwrap();
    }
}

/// The bytes of files in the notation, of which each name has its part.
fn content_bytes(lines: &[&str]) -> u64 {
    let parts = lines.iter().filter_map(|line| {
        let (path, rest) = line.split_once('=')?;
        let name = path.rsplit('/').next()?;
        let rest = rest.split('@').next()?;
        let (content, names) = rest.rsplit_once('*').unwrap_or((rest, "1"));
        let is_file = !name.starts_with(".wh.");
        is_file.then(|| 60 * content.len() as u64 / names.parse::<u64>().unwrap())
    });
    parts.sum::<u64>() / 60
}

#[test]
fn three_hundred_layers_are_one_tree() {
    let layers = (0..300).map(|number| {
        let (before, all) = (number - 1, format!("all={number}"));
        layer([
            format!("f{number}={number}"),
            format!(".wh.f{before}="),
            all,
        ])
    });
    let tree = tree_of(&ImageLayout::of(layers)).unwrap();
    assert_eq!(notation(&tree), ["all=299", "f299=299"]);
    let usage = tree.layer_usage().unwrap();
    assert_eq!(usage.len(), 300);
    assert!(
        usage[..299]
            .iter()
            .all(|it| (it.files, it.hidden_files) == (2, 2))
    );
    assert_eq!((usage[299].files, usage[299].hidden_files), (2, 0));
}

#[test]
fn hidden_bytes_are_those_of_files_that_nobody_sees() {
    let layers = [
        layer(["a=12345", "b=123", "d/", "d/x=1234567", "k=1", "l^k"]),
        layer(["a=1", ".wh.d=", "m^b", ".wh.l="]),
        layer([".wh.b=", "n=12", "n=1234"]),
    ];
    let usage = merged(&layers).unwrap().layer_usage().unwrap();
    let numbers = usage
        .iter()
        .map(|it| [it.files, it.bytes, it.hidden_files, it.hidden_bytes]);
    // `b` is still shown as `m`, and `k` has lost one of two names.
    let expected = [[4, 16, 2, 12], [1, 1, 0, 0], [2, 6, 1, 2]];
    assert_eq!(numbers.collect::<Vec<_>>(), expected);
}

#[test]
fn links_lead_nowhere_outside_and_end() {
    let refused = |layers: &[Vec<u8>]| merged(layers).err().unwrap().to_string();
    let words = refused(&[layer(["loop>loop"]), layer(["loop/x=1"])]);
    assert!(
        words.starts_with("layer 2: limit reached: symbolic links"),
        "{words}"
    );
    let long = format!("l>{}", "a/".repeat(45));
    let chain: Vec<String> = (0..10)
        .map(|it| format!("l{it}>{}l{}", "d/../".repeat(15), it + 1))
        .collect();
    let words = refused(&[layer(["d/".to_owned()]), layer(chain), layer(["l0/x=1"])]);
    assert!(
        words.starts_with("layer 3: limit reached: symbolic links"),
        "{words}"
    );
    // Where a link leads to nothing, directories are made, as by a path.
    let tree = merged(&[
        layer([long, "out>../../etc".to_owned()]),
        layer(["l/x=1", "out/y=2"]),
    ]);
    let tree = notation(&tree.unwrap());
    assert!(tree.contains(&format!("{}x=1", "a/".repeat(45))));
    assert!(tree.contains(&"etc/y=2".to_owned()));
    // A file in the path is none.
    let words = refused(&[layer(["f=1"]), layer(["f/x=1"])]);
    assert!(
        words.contains("layer 2: tar entry lies below a file"),
        "{words}"
    );
    let words = refused(&[layer(["f=1", "l>f"]), layer(["l/x=1"])]);
    assert!(
        words.contains("layer 2: tar entry lies below a file"),
        "{words}"
    );
    // A hard link to nothing, and to a file that the layer itself hides.
    for link in [&["x^none"][..], &["x^f/none"], &["x^f", ".wh.f="]] {
        let words = refused(&[layer(["f=1"]), layer(link.iter().copied())]);
        assert!(
            words.contains("hard link in tar has no earlier target"),
            "{words}"
        );
    }
}

#[test]
fn whiteouts_hide_names_only() {
    for name in [".wh.", ".wh..", ".wh...", "d/.wh..."] {
        let refused = merged(&[layer(["d/", "d/x=1"]), layer([format!("{name}=")])]);
        let words = refused.err().unwrap().to_string();
        assert!(
            words.contains("whiteout of a layer hides no name"),
            "{name}: {words}"
        );
    }
    let refused = merged(&[layer(["d/"]), layer([".wh.d/x="])]).err().unwrap();
    assert!(
        refused.to_string().contains("lies below a whiteout"),
        "{refused}"
    );
    // Those that find nothing hide nothing.
    let tree = merged(&[
        layer(["d/", "f=1"]),
        layer([".wh.x=", "no/.wh.x=", "f/.wh.x=", "no/.wh..wh..opq="]),
    ]);
    assert_eq!(notation(&tree.unwrap()), ["d/", "f=1"]);
    // In an archive that is no layer, the names mean nothing.
    let tar = Tar::open(Box::new(layer(["d/", "d/.wh.x="])), limits()).unwrap();
    assert_eq!(notation(&tar), ["d/", "d/.wh.x="]);
}

#[test]
fn many_whiteouts_of_one_directory_take_no_time() {
    const FILES: usize = 20_000;
    let lower = (0..FILES).map(|number| format!("d/f{number}=1"));
    let again = (0..FILES).map(|number| format!("d/g{number}=1"));
    let marks = (0..FILES).flat_map(|_| [".wh.d=", "d/.wh..wh..opq="].map(str::to_owned));
    let layers = [layer(lower), layer(again.chain(marks))];
    let tree = merged(&layers).unwrap();
    assert_eq!(
        tree.read_dir(tree.lookup(tree.root(), b"d").unwrap().ino)
            .unwrap()
            .len(),
        FILES
    );
}

#[test]
fn too_many_layers_are_refused() {
    let empty: Vec<Vec<u8>> = vec![layer([""; 0]); 1001];
    assert!(matches!(merged(&empty), Err(Error::Limit(_))));
    assert!(merged(&empty[..1000]).is_ok());
    // An empty file is an archive without members.
    assert!(merged(&[Vec::new(), layer(["x=1"])]).is_ok());
}
