//! Edited trees, compared line by line with the requested result.

use std::fs;
use std::sync::Arc;

use testkit::{MemoryFs, TempDir};
use tree::edit::{Addition, Edited, Edits, IdMap, ModeChange, Patterns, Priorities, Selection};
use tree::{Error, FileSystem, Inventory, Limits, Result, Time};

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
    Addition::parse_list(list.as_bytes()).unwrap()
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
        "new l /dev/null",
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
