//! Edited trees, compared line by line with the requested result.

use std::fs;
use std::sync::Arc;

use testkit::{MemoryFs, TempDir};
use tree::edit::{
    Action, Addition, AdditionRules, Edited, Edits, IdMap, ModeChange, Patterns, Priorities,
    Selection, Stats,
};
use tree::{Error, FileSystem, Inventory, Limits, Result, Time, Xattr};

fn source() -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let usr = fs.add_dir(root, "usr");
    let bin = fs.add_dir(usr, "bin");
    let tool = fs.add_file(bin, "tool", b"a tool");
    fs.link(usr, "same", tool);
    fs.add_xattr(tool, b"security.x", b"1");
    fs.add_xattr(tool, b"user.a", b"2");
    let lib = fs.add_dir(usr, "lib");
    fs.add_file(lib, "x.o", b"object");
    fs.add_file(root, "y.o", b"object");
    fs.add_symlink(root, "link", b"usr");
    fs.metadata_mut(tool).uid = 1000;
    fs.metadata_mut(tool).gid = 100;
    fs
}

fn edited(edits: Edits) -> Result<Edited> {
    Edited::new(Arc::new(source()), edits)
}

fn only(patterns: Patterns) -> Selection {
    Selection {
        only: patterns.into(),
        ..Selection::default()
    }
}

fn exclude(patterns: Patterns) -> Selection {
    Selection {
        exclude: patterns.into(),
        ..Selection::default()
    }
}

#[test]
fn no_file_is_deeper_than_the_maximum() {
    let deepest = |max_depth, only: Patterns| {
        let selection = Selection {
            only: only.into(),
            max_depth: Some(max_depth),
            ..Selection::default()
        };
        let edits = Edits {
            selection,
            ..Edits::default()
        };
        paths(&edited(edits).unwrap()).join(" ")
    };
    assert_eq!(deepest(0, Patterns::default()), "");
    assert_eq!(deepest(1, Patterns::default()), " link usr y.o");
    let lib = Patterns::new(["usr/lib"]);
    assert_eq!(deepest(2, lib), " usr usr/lib");
}

#[test]
fn hard_links_become_files_and_links_lead_below_the_new_root() {
    let edits = Edits {
        no_hard_links: true,
        retarget: Some((*b"usr/lib").into()),
        ..Edits::default()
    };
    let mut fs = source();
    let root = fs.root();
    for (name, target) in [
        ("in", "/usr/lib/x.o"),
        ("bare", "usr/lib/x"),
        ("at", "/usr/lib"),
    ] {
        fs.add_symlink(root, name, target.as_bytes());
    }
    let edited = Edited::new(Arc::new(fs), edits).unwrap();
    let inventory = Inventory::of(&edited, &Limits::default()).unwrap();
    assert_eq!(inventory.file_count(), inventory.entry_count());
    for (name, target) in [
        ("in", "/x.o"),
        ("bare", "/x"),
        ("at", "/usr/lib"),
        ("link", "usr"),
    ] {
        let file = inventory.file(inventory.find(name.as_bytes()).unwrap());
        let found = edited.read_link(inventory.ino(file)).unwrap();
        assert_eq!(found, target.as_bytes());
        assert_eq!(inventory.size(file), target.len() as u64);
    }
}

/// All paths with permissions, owners and attributes.
fn lines(fs: &dyn FileSystem) -> Vec<String> {
    let inventory = Inventory::of(fs, &Limits::default()).unwrap();
    let line = |entry| {
        let file = inventory.file(entry);
        let metadata = inventory.metadata(file);
        assert_eq!(fs.metadata(inventory.ino(file)).unwrap(), metadata);
        let mut words = format!(
            "{} {:o} {}:{} {}",
            inventory.path(entry).escape_ascii(),
            metadata.permissions,
            metadata.uid,
            metadata.gid,
            metadata.mtime.seconds,
        );
        for xattr in fs.xattrs(inventory.ino(file)).unwrap() {
            words += &format!(
                " {}={}",
                xattr.name.escape_ascii(),
                xattr.value.escape_ascii()
            );
        }
        words
    };
    inventory.names().map(line).collect()
}

fn paths(fs: &dyn FileSystem) -> Vec<String> {
    let first = |line: String| line.split(' ').next().unwrap_or_default().to_owned();
    lines(fs).into_iter().map(first).collect()
}

fn additions(list: &str) -> Vec<Addition> {
    Addition::parse_list(list.as_bytes(), &|_| None).unwrap()
}

#[test]
fn what_is_left_out_is_left_out_with_all_below_it() {
    let excluding = |patterns: &[&str]| {
        let edits = Edits {
            selection: exclude(Patterns::new(patterns)),
            ..Edits::default()
        };
        let excluded = Arc::clone(&edits.selection.exclude);
        let paths = paths(&edited(edits).unwrap());
        (paths, excluded.unmatched().count())
    };
    assert_eq!(
        excluding(&["... *.o", "usr/bin"]),
        (
            ["", "link", "usr", "usr/lib", "usr/same"]
                .map(String::from)
                .to_vec(),
            0
        )
    );
    assert_eq!(excluding(&["*.o", "bin"]).0.len(), 8);
    assert_eq!(excluding(&["nothing"]).1, 1);
    let edits = Edits {
        selection: only(Patterns::new(["usr/l*/x.o", "link"])),
        ..Edits::default()
    };
    assert_eq!(
        paths(&edited(edits).unwrap()),
        ["", "link", "usr", "usr/lib", "usr/lib/x.o"]
    );
    for (pattern, selected) in [
        ("*.o", &["", "y.o"][..]),
        ("... *.o", &["", "usr", "usr/lib", "usr/lib/x.o", "y.o"]),
        ("**/*.o", &["", "usr", "usr/lib", "usr/lib/x.o", "y.o"]),
        ("usr/*/t*", &["", "usr", "usr/bin", "usr/bin/tool"]),
        (
            "{usr/lib,y.o}",
            &["", "usr", "usr/lib", "usr/lib/x.o", "y.o"],
        ),
        ("usr/*/none", &[""]),
    ] {
        let edits = Edits {
            selection: only(Patterns::new([pattern])),
            ..Edits::default()
        };
        assert_eq!(paths(&edited(edits).unwrap()), selected, "{pattern}");
    }
    // Excluded files cannot be looked up either.
    let edits = Edits {
        selection: exclude(Patterns::new(["usr/bin"])),
        ..Edits::default()
    };
    let fs = edited(edits).unwrap();
    let usr = fs.lookup(fs.root(), b"usr").unwrap();
    assert!(matches!(fs.lookup(usr.ino, b"bin"), Err(Error::NotFound)));
    assert!(fs.lookup(usr.ino, b"lib").is_ok());
}

#[test]
fn owners_modes_times_and_attributes_change() {
    let edits = Edits {
        uid_maps: vec![
            IdMap {
                from: 0,
                to: 5000,
                count: 1,
            },
            IdMap {
                from: 1000,
                to: 7000,
                count: 10,
            },
        ],
        gid: Some(7),
        file_mode: Some(ModeChange::parse("600").unwrap()),
        dir_mode: Some(ModeChange::parse("go=").unwrap()),
        time: Some(Time {
            seconds: 99,
            nanoseconds: 0,
        }),
        xattrs_only: Patterns::new(["user.*"]),
        additions: additions("usr/lib x user.b=3\nusr/bin m 755 1 2\nusr/bin/tool x user.a=0x34"),
        ..Edits::default()
    };
    let lines = lines(&edited(edits).unwrap());
    assert_eq!(
        lines,
        [
            " 700 5000:7 99",
            "link 777 5000:7 99",
            "usr 700 5000:7 99",
            "usr/bin 755 1:2 99",
            "usr/bin/tool 600 7000:7 99 user.a=4",
            "usr/lib 700 5000:7 99 user.b=3",
            "usr/lib/x.o 600 5000:7 99",
            "usr/same 600 7000:7 99 user.a=4",
            "y.o 600 5000:7 99",
        ]
    );
}

#[test]
fn files_are_added_and_replaced() {
    let dir = TempDir::new();
    fs::write(dir.join("host file"), "from outside").unwrap();
    let host = dir.join("host file");
    let list = format!(
        "dev d 755 0 0\ndev/console c 600 0 5 5 1\ndev/log D 5 700 0 0\ny.o s 777 0 0 usr/lib/x.o\n\
         usr/lib/new l {}\nusr/lib/new x user.n=1\nusr/lib d 711 3 4\nusr/pipe I 44 600 0 0",
        host.display()
    );
    let edits = Edits {
        selection: exclude(Patterns::new(["usr/bin"])),
        additions: additions(&list),
        ..Edits::default()
    };
    let fs = edited(edits).unwrap();
    let all = lines(&fs);
    assert_eq!(
        paths(&fs),
        [
            "",
            "dev",
            "dev/console",
            "dev/log",
            "link",
            "usr",
            "usr/lib",
            "usr/lib/new",
            "usr/lib/x.o",
            "usr/pipe",
            "usr/same",
            "y.o"
        ]
    );
    assert!(
        all[2].starts_with("dev/console 600 0:5 1700000000"),
        "{}",
        all[2]
    );
    assert!(all[3].starts_with("dev/log 700 0:0 5"), "{}", all[3]);
    assert!(all[6].starts_with("usr/lib 711 3:4 "), "{}", all[6]);
    assert!(all[7].ends_with(" user.n=1"), "{}", all[7]);
    let lib = fs
        .lookup(fs.lookup(fs.root(), b"usr").unwrap().ino, b"lib")
        .unwrap();
    let new = fs.lookup(lib.ino, b"new").unwrap();
    let mut content = [0; 20];
    let len = fs.read_at(new.ino, 5, &mut content).unwrap();
    assert_eq!(&content[..len], b"outside");
    let link = fs.lookup(fs.root(), b"y.o").unwrap();
    assert_eq!(fs.read_link(link.ino).unwrap(), b"usr/lib/x.o");

    for wrong in [
        "no/where d 755 0 0",
        "y.o/x d 755 0 0",
        "link/x d 755 0 0",
        "usr s 777 0 0 x",
        "y.o d 755 0 0",
        "nothing m 755 0 0",
        "nothing x user.a=1",
        "new l /no/such/file",
        "new l /dev",
        "new L usr",
        "new L nothing",
        "new f 644 0 0 echo",
        "new R 0 644 0 0 1 0 0",
        "usr/bin/x i 644 0 0",
    ] {
        let edits = Edits {
            selection: exclude(Patterns::new(["usr/bin"])),
            additions: additions(wrong),
            ..Edits::default()
        };
        assert!(
            matches!(edited(edits), Err(Error::File { verb: "add", .. })),
            "{wrong}"
        );
    }
}

/// Adds a list by the rules of mksquashfs; returns the tree, and the paths that are ignored.
fn by_rules(list: &str, rules: AdditionRules, edits: Edits) -> Result<(Edited, Vec<String>)> {
    let spool = std::env::temp_dir();
    let edits = Edits {
        additions: Addition::read_list(list.as_bytes(), &|_| None, &spool)?,
        rules: AdditionRules {
            yields: true,
            commands: Some(spool),
            ..rules
        },
        ..edits
    };
    let fs = edited(edits)?;
    let ignored = fs.ignored().iter();
    let ignored = ignored.map(|(path, _)| path.escape_ascii().to_string());
    let ignored = ignored.collect();
    Ok((fs, ignored))
}

/// The expectations are the results of mksquashfs 4.7.5.
#[test]
fn definitions_are_added_as_by_mksquashfs() {
    let stays = "y.o f 600 1 2 exit 1\nusr d 700 3 4\nnone m 600 1 1\nx d 711 1 1\nx m 700 0 0";
    let (fs, ignored) = by_rules(stays, AdditionRules::default(), Edits::default()).unwrap();
    assert_eq!(ignored, ["x", "y.o", "usr", "none"].map(String::from));
    let [x, y] = ["x ", "y.o "].map(|it| lines(&fs).into_iter().find(|l| l.starts_with(it)));
    assert!(x.unwrap().starts_with("x 711 1:1 "));
    assert!(y.unwrap().starts_with("y.o 644 0:0 "));

    // The order is of no importance, and a link is one more name.
    let list = "b/l L a\nb/x x user.n=1\nb/x d 700 5 6\nb d 755 0 0\na f 640 5 6 printf out\n\
                c/d/e D 7 755 0 0";
    let parents = Stats {
        permissions: 0o711,
        uid: 8,
        gid: 9,
        mtime: None,
    };
    let rules = AdditionRules {
        parents: Some(parents),
        are_edited: true,
        ..AdditionRules::default()
    };
    let edits = Edits {
        file_mode: Some(ModeChange::parse("u=rw,go=").unwrap()),
        uid: Some(77),
        ..Edits::default()
    };
    let (fs, ignored) = by_rules(list, rules, edits).unwrap();
    assert!(ignored.is_empty());
    let shown = lines(&fs);
    for line in [
        "a 600 77:6 1700000000",
        "b/l 600 77:6 1700000000",
        "b/x 700 77:6 1700000000 user.n=1",
        "c 711 77:9 1700000000",
        "c/d/e 755 77:0 7",
    ] {
        assert!(shown.iter().any(|it| it == line), "{line}: {shown:#?}");
    }
    let dir = fs.lookup(fs.root(), b"b").unwrap().ino;
    let [one, other] = [(fs.root(), "a"), (dir, "l")].map(|(dir, name)| {
        let file = fs.lookup(dir, name.as_bytes()).unwrap().ino;
        let mut content = [0; 9];
        let len = fs.read_at(file, 0, &mut content).unwrap();
        assert_eq!(&content[..len], b"out");
        file
    });
    assert_eq!(one, other);

    for wrong in [
        "a/b d 755 0 0",
        "a f 644 0 0 printf 1; exit 3",
        "none x user.a=1",
    ] {
        let added = by_rules(wrong, AdditionRules::default(), Edits::default());
        assert!(added.is_err(), "{wrong}");
    }
}

#[test]
fn the_data_of_a_list_follows_it() {
    let list = "one R 5 644 0 0 3 2 0\ntwo R 5 644 0 0 2 0 1\n\
                #\n# START OF DATA - DO NOT MODIFY\n#\nab\n#d";
    let (fs, _) = by_rules(list, AdditionRules::default(), Edits::default()).unwrap();
    for (name, content) in [("one", &b"\n#d"[..]), ("two", b"ab")] {
        let file = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
        let mut read = [0; 9];
        let len = fs.read_at(file, 0, &mut read).unwrap();
        assert_eq!(&read[..len], content);
        let extents = fs.extents(file, 0).unwrap();
        assert_eq!(extents[0].len, content.len() as u64);
    }
    for wrong in ["3 3 0", "18446744073709551615 5 0"] {
        let list = list.replace("3 2 0", wrong);
        let added = by_rules(&list, AdditionRules::default(), Edits::default());
        assert!(added.is_err(), "{wrong}");
    }
}

#[test]
fn attributes_are_added_to_all_files_that_hold_them() {
    let xattrs = [("user.a", "9"), ("trusted.t", "1")];
    let edits = Edits {
        xattrs_added: xattrs
            .map(|(name, value)| Xattr {
                name: name.as_bytes().into(),
                value: value.as_bytes().into(),
            })
            .into(),
        ..Edits::default()
    };
    let shown = lines(&edited(edits).unwrap());
    let ending = |path: &str, words: &str| {
        let line = shown
            .iter()
            .find(|line| line.starts_with(&format!("{path} ")));
        assert!(line.unwrap().ends_with(words), "{line:?}");
    };
    ending("usr/bin/tool", "0 security.x=1 trusted.t=1 user.a=9");
    ending("usr", "0 trusted.t=1 user.a=9");
    ending("link", "0 trusted.t=1");
}

/// The expectations are the results of mksquashfs 4.7.5.
#[test]
fn actions_are_done_in_their_stages() {
    for (actions, edits, expected) in [
        (
            "exclude@name(*.o)\nempty(excluded)@true",
            Edits::default(),
            &["", "link", "usr", "usr/bin", "usr/bin/tool", "usr/same"][..],
        ),
        (
            "prune@uid(7)&&type(f)\nuid(7)@uid(1000)",
            Edits::default(),
            &[
                "",
                "link",
                "usr",
                "usr/bin",
                "usr/lib",
                "usr/lib/x.o",
                "y.o",
            ],
        ),
        (
            "prune@type(f)\nempty@!name(lib)",
            Edits::default(),
            &["", "link", "usr", "usr/lib"],
        ),
        (
            "empty(source)@true\nexclude@depth(3)||name(link)",
            Edits {
                selection: exclude(Patterns::new(["y.o"])),
                ..Edits::default()
            },
            &["", "usr", "usr/bin", "usr/lib", "usr/same"],
        ),
    ] {
        let actions = Action::parse_list(actions.as_bytes()).unwrap();
        let edits = Edits { actions, ..edits };
        assert_eq!(paths(&edited(edits).unwrap()), expected);
    }
    // Changes add up, and owners for all files count more.
    let list = "chmod(7700)@true\nchmod(g+r)@perm(7700)&&name(lib)\nguid(3,4)@name(y.o)";
    let edits = Edits {
        actions: Action::parse_list(list.as_bytes()).unwrap(),
        uid: Some(9),
        ..Edits::default()
    };
    let shown = lines(&edited(edits).unwrap());
    for line in [
        " 7700 9:0 1700000000",
        "link 777 9:0 1700000000",
        "usr/lib 7740 9:0 1700000000",
        "y.o 7700 9:4 1700000000",
    ] {
        assert!(shown.iter().any(|it| it == line), "{line}: {shown:#?}");
    }
}

#[test]
fn priorities_go_down_and_the_highest_name_counts() {
    let fs = source();
    let inventory = Inventory::of(&fs, &Limits::default()).unwrap();
    let list = Priorities::parse_list(
        b"# first things first\nusr -5\nusr/bin/* 7\n**/*.o 3\nnot/there 1\n",
    )
    .unwrap();
    let priorities = list.of(&inventory);
    let of = |path: &str| {
        let entry = inventory.find(path.as_bytes()).unwrap();
        priorities[inventory.file(entry).0 as usize]
    };
    let got = [
        "",
        "link",
        "usr",
        "usr/bin",
        "usr/bin/tool",
        "usr/lib/x.o",
        "y.o",
    ]
    .map(of);
    assert_eq!(got, [0, 0, -5, -5, 7, 3, 3]);
    assert_eq!(list.unmatched().collect::<Vec<_>>(), [b"not/there"]);
}
