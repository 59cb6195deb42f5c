//! A host directory looks as the kernel and the GNU tools report it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use testkit::{MemoryFs, NASTY_SPARSE_BYTES, TempDir, nasty_tree, tool};
use tree::{
    DirEntry, EntryId, Error, ExtentKind, FileKind, FileSystem, HostDir, HostTimes, Ino, Inventory,
    Limits, Time, WalkStep,
};

fn inventory(host: &HostDir) -> Inventory<'_> {
    Inventory::of(host, &Limits::default()).unwrap()
}

/// The file at a path.
fn ino(host: &HostDir, path: &str) -> Ino {
    let mut ino = host.root();
    for name in path.split('/') {
        ino = host.lookup(ino, name.as_bytes()).unwrap().ino;
    }
    ino
}

fn kind_letter(kind: FileKind) -> char {
    match kind {
        FileKind::Regular => 'f',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::BlockDevice => 'b',
        FileKind::CharDevice => 'c',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    }
}

/// Compares with the output of `find` for each file, by path. Sizes and link counts of directories
/// depend on the container.
#[test]
fn names_and_metadata_are_those_that_find_prints() {
    let Some(find) = tool("find") else { return };
    let dir = TempDir::new();
    nasty_tree(dir.path());
    let format = "%P\\0%y %m %U %G %T@ %A@ %n %s %l\\0";
    let printed = find.run([dir.path().as_os_str(), "-printf".as_ref(), format.as_ref()]);
    let mut fields = printed.stdout.split(|&b| b == 0);
    let mut expected = BTreeMap::new();
    while let (Some(path), Some(line)) = (fields.next(), fields.next()) {
        expected.insert(path.to_vec(), line.to_vec());
    }

    let host = HostDir::open(dir.path()).unwrap();
    let inventory = inventory(&host);
    assert_eq!(inventory.entry_count() as usize, expected.len());
    let time = |time: Time| format!("{}.{:09}", time.seconds, time.nanoseconds);
    for entry in inventory.names() {
        let path = inventory.path(entry);
        let file = inventory.file(entry);
        let metadata = inventory.metadata(file);
        let line = expected.remove(&path).unwrap();
        let line = String::from_utf8_lossy(&line).into_owned();
        let parts: Vec<&str> = line.splitn(9, ' ').collect();
        assert_eq!(parts[0], kind_letter(metadata.kind).to_string());
        assert_eq!(parts[1], format!("{:o}", metadata.permissions));
        assert_eq!(parts[2], metadata.uid.to_string());
        assert_eq!(parts[3], metadata.gid.to_string());
        // find prints ten digits after the point, and negative times by their distance from zero.
        let find_time = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
        if metadata.mtime.seconds >= 0 {
            assert_eq!(find_time(parts[4]), find_time(&time(metadata.mtime)));
        }
        if metadata.kind != FileKind::Directory {
            assert_eq!(parts[6], metadata.nlink.to_string());
            assert_eq!(parts[6], inventory.name_count(file).to_string());
        }
        if matches!(metadata.kind, FileKind::Regular | FileKind::Symlink) {
            assert_eq!(parts[7], metadata.size.to_string());
        }
        if metadata.kind == FileKind::Symlink {
            let target = host.read_link(inventory.ino(file)).unwrap();
            assert_eq!(parts[8], String::from_utf8_lossy(&target));
        }
    }
    assert!(expected.is_empty());
}

/// Compares with std, for the fields that `find` rounds or does not support.
#[test]
fn times_and_devices_are_those_of_lstat() {
    let dir = TempDir::new();
    nasty_tree(dir.path());
    let host = HostDir::open_with(dir.path(), HostTimes::All).unwrap();
    let inventory = inventory(&host);
    for entry in inventory.names() {
        let path = inventory.path(entry);
        if path.len() > 3000 {
            continue; // std cannot reach it
        }
        let path = dir.path().join(std::ffi::OsStr::from_bytes(&path));
        let expected = fs::symlink_metadata(&path).unwrap();
        let got = inventory.metadata(inventory.file(entry));
        let time = |time: Time| (time.seconds, i64::from(time.nanoseconds));
        assert_eq!(time(got.mtime), (expected.mtime(), expected.mtime_nsec()));
        let ctime = got.ctime.map(time);
        assert_eq!(ctime, Some((expected.ctime(), expected.ctime_nsec())));
        if got.kind != FileKind::Directory {
            let atime = got.atime.map(time);
            assert_eq!(atime, Some((expected.atime(), expected.atime_nsec())));
        }
        if let Ok(birth) = expected.created() {
            let birth = birth.duration_since(std::time::UNIX_EPOCH).unwrap();
            let birth = (birth.as_secs() as i64, i64::from(birth.subsec_nanos()));
            assert_eq!(got.btime.map(time), Some(birth));
        }
        let number = (u64::from(got.rdev.major) & 0xfff) << 8
            | u64::from(got.rdev.minor) & 0xff
            | (u64::from(got.rdev.minor) & 0xfff00) << 12;
        assert_eq!(number, expected.rdev(), "{}", path.display());
    }
}

#[test]
fn attributes_are_those_that_getfattr_dumps() {
    let Some(getfattr) = tool("getfattr") else {
        return;
    };
    let dir = TempDir::new();
    nasty_tree(dir.path());
    let host = HostDir::open(dir.path()).unwrap();
    let mut seen = 0;
    for name in [
        "attributes",
        "attributes.d",
        "attributes-read-only",
        "access-list",
        "access-list.d",
        "access-list.d/inherits",
        "attributes-link",
        "capability",
        "empty",
    ] {
        let path = dir.path().join(name);
        if path.symlink_metadata().is_err() {
            continue; // made by root only
        }
        let mut command = getfattr.command();
        command.args(["-h", "-d", "-m", "-", "-e", "hex", "--absolute-names"]);
        let dump = testkit::run(command.arg(&path)).stdout;
        let lines = dump.split(|&b| b == b'\n');
        let mut expected: Vec<Vec<u8>> = lines
            .filter(|line| !line.is_empty() && !line.starts_with(b"# file"))
            .map(<[u8]>::to_vec)
            .collect();
        expected.sort();
        let mut got: Vec<Vec<u8>> = Vec::new();
        for xattr in host.xattrs(ino(&host, name)).unwrap() {
            let mut line = Vec::new();
            for &byte in &xattr.name {
                // getfattr writes these in octal, because a line ends and a value begins with them.
                match byte {
                    b'\n' | b'=' | b'\\' | b'\r' => line.extend(format!("\\{byte:03o}").bytes()),
                    _ => line.push(byte),
                }
            }
            // An empty value has no equals sign.
            if !xattr.value.is_empty() {
                line.extend_from_slice(b"=0x");
                line.extend(
                    xattr
                        .value
                        .iter()
                        .flat_map(|b| format!("{b:02x}").into_bytes()),
                );
            } else {
                line.extend_from_slice(b"=0x");
            }
            got.push(line);
            seen += 1;
        }
        got.sort();
        let text = |lines: &[Vec<u8>]| {
            let lines = lines.iter().map(|line| line.escape_ascii().to_string());
            lines.collect::<Vec<_>>()
        };
        assert_eq!(text(&got), text(&expected), "{name}");
    }
    assert!(seen >= 7, "the test saw {seen} attributes");
}

#[test]
fn content_and_extents_agree_with_plain_reads() {
    let dir = TempDir::new();
    nasty_tree(dir.path());
    let host = HostDir::open(dir.path()).unwrap();
    let inventory = inventory(&host);
    let mut holes = 0;
    for file in inventory.files() {
        if inventory.kind(file) != FileKind::Regular {
            continue;
        }
        let path = inventory.path(inventory.first_name(file));
        if path.len() > 3000 {
            continue;
        }
        let path = dir.path().join(std::ffi::OsStr::from_bytes(&path));
        let (ino, size) = (inventory.ino(file), inventory.size(file));
        let plain = match File::open(&path) {
            // Root may read everything; another user is refused here, and must be there.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                assert!(
                    host.read_at(ino, 0, &mut [0]).is_err(),
                    "{}",
                    path.display()
                );
                continue;
            }
            plain => plain.unwrap(),
        };
        let mut at = 0;
        while at < size {
            let extents = host.extents(ino, at).unwrap();
            assert!(!extents.is_empty());
            for extent in extents {
                assert_eq!(extent.offset, at);
                assert!(extent.len > 0);
                at += extent.len;
                if extent.kind == ExtentKind::Hole {
                    holes += 1;
                    continue;
                }
                assert!(extent.len < 20 << 20, "nasty files hold little data");
                let len = extent.len as usize;
                let (mut expected, mut got) = (vec![0; len], vec![1; len]);
                plain.read_exact_at(&mut expected, extent.offset).unwrap();
                assert_eq!(host.read_at(ino, extent.offset, &mut got).unwrap(), len);
                assert!(got == expected, "{}", path.display());
            }
        }
        assert_eq!(at, size);
        assert_eq!(host.extents(ino, size).unwrap(), []);
        let mut buf = [7; 8];
        assert_eq!(host.read_at(ino, size, &mut buf).unwrap(), 0);
        assert_eq!(host.read_at(ino, u64::MAX - 3, &mut buf).unwrap(), 0);
        assert_eq!(buf, [7; 8]);
    }
    assert!(holes > 700, "{holes} holes");
    let huge = ino(&host, "holes/huge");
    assert_eq!(host.metadata(huge).unwrap().size, NASTY_SPARSE_BYTES);
    let mut buf = [1; 4];
    assert_eq!(host.read_at(huge, 1 << 33, &mut buf).unwrap(), 0);
    assert_eq!(host.read_at(huge, 1 << 31, &mut buf).unwrap(), 4);
    assert_eq!(buf, [0; 4]);
}

#[test]
fn steps_are_sorted_and_balanced_and_paths_lead_back() {
    let dir = TempDir::new();
    nasty_tree(dir.path());
    let host = HostDir::open(dir.path()).unwrap();
    let inventory = inventory(&host);
    let mut open: Vec<EntryId> = Vec::new();
    let mut names = 0;
    for step in inventory.steps() {
        match step {
            WalkStep::Enter(entry) => {
                let parent = open.last().map_or(inventory.root(), |&dir| dir);
                assert_eq!(inventory.parent(entry), inventory.file(parent));
                open.push(entry);
                names += 1;
            }
            WalkStep::File(entry) => {
                assert_eq!(
                    inventory.parent(entry),
                    inventory.file(*open.last().unwrap())
                );
                names += 1;
            }
            WalkStep::Leave(entry) => {
                assert_eq!(open.pop(), Some(entry));
                let sorted: Vec<_> = inventory.entries(inventory.file(entry)).collect();
                assert!(sorted.is_sorted_by_key(|&child| inventory.name(child).to_vec()));
            }
        }
    }
    assert!(open.is_empty());
    assert_eq!(names, inventory.entry_count());
    for entry in inventory.names() {
        assert_eq!(inventory.find(&inventory.path(entry)), Some(entry));
    }
    let mut seen = std::collections::HashSet::new();
    for entry in inventory.names() {
        let is_new = seen.insert(inventory.file(entry));
        assert_eq!(inventory.is_first_name(entry), is_new);
    }
    assert_eq!(inventory.find(b"links/no such name"), None);
    assert_eq!(inventory.find(b"empty/below a file"), None);
    // The first in the order of the tree, though the directory above lists `second` before it reads
    // `b/c`.
    let first = inventory.find(b"links/b/c/third").unwrap();
    assert!(inventory.is_first_name(first));
    let all = ["links/second", "links/z/first"].map(|path| inventory.find(path.as_bytes()));
    assert!(
        all.iter()
            .all(|e| inventory.file(e.unwrap()) == inventory.file(first))
    );
}

#[test]
fn nothing_is_read_through_a_link_that_appears_later() {
    let (dir, outside) = (TempDir::new(), TempDir::new());
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/b/file"), "inside").unwrap();
    fs::create_dir_all(outside.join("b")).unwrap();
    fs::write(outside.join("b/file"), "secret").unwrap();
    let mut buf = [0; 6];
    // A parent directory, the directory itself and the file become links to the outside.
    for name in ["a", "a/b", "a/b/file"] {
        let host = HostDir::open(dir.path()).unwrap();
        let listed = inventory(&host);
        let number = |path: &[u8]| listed.ino(listed.file(listed.find(path).unwrap()));
        let (file, b) = (number(b"a/b/file"), number(b"a/b"));
        for n in 0..100 {
            // Enough other directories to evict those on the path.
            let other = dir.join(format!("other{n}"));
            let _ = fs::create_dir(other);
            host.read_dir(ino(&host, &format!("other{n}"))).unwrap();
        }
        let (moved, target) = (
            dir.join("moved"),
            outside.path().join(name[1..].trim_start_matches('/')),
        );
        fs::rename(dir.join(name), &moved).unwrap();
        symlink(&target, dir.join(name)).unwrap();
        for result in [
            host.read_at(file, 0, &mut buf).map(drop),
            host.extents(file, 0).map(drop),
            host.metadata(file).map(drop),
        ] {
            assert!(matches!(result, Err(Error::Changed)), "{name}: {result:?}");
        }
        if name != "a/b/file" {
            assert!(host.read_dir(b).is_err());
            assert!(host.lookup(b, b"file").is_err());
        }
        fs::remove_file(dir.join(name)).unwrap();
        fs::rename(&moved, dir.join(name)).unwrap();
    }
    assert_ne!(&buf, b"secret");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_an_error() {
    let dir = TempDir::new();
    let path = dir.join("file");
    type Change = fn(&Path);
    fn set_len(path: &Path, len: u64) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(len).unwrap();
    }
    let change: [(&str, Change); 4] = [
        ("shrinks", |path| set_len(path, 10)),
        ("grows", |path| set_len(path, 9000)),
        ("is replaced", |path| {
            fs::write(path.with_extension("new"), [9; 5000]).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        }),
        ("is removed", |path| fs::remove_file(path).unwrap()),
    ];
    for (what, change) in change {
        fs::write(&path, [5; 5000]).unwrap();
        let host = HostDir::open(dir.path()).unwrap();
        let file = inventory(&host);
        let file = file.ino(file.file(file.find(b"file").unwrap()));
        change(&path);
        let mut buf = [0; 6000];
        let error = host.read_at(file, 0, &mut buf).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the file changed while it was read",
            "{what}"
        );
        assert!(host.extents(file, 0).is_err(), "{what}");
    }
}

#[test]
fn wrong_kinds_and_numbers_are_errors() {
    let dir = TempDir::new();
    nasty_tree(dir.path());
    let host = HostDir::open(dir.path()).unwrap();
    let (file, fifo) = (ino(&host, "empty"), ino(&host, "fifo"));
    let mut buf = [0; 4];
    assert!(matches!(host.read_dir(file), Err(Error::NotADirectory)));
    assert!(matches!(
        host.read_at(host.root(), 0, &mut buf),
        Err(Error::IsADirectory)
    ));
    assert!(matches!(
        host.read_at(fifo, 0, &mut buf),
        Err(Error::InvalidInput(_))
    ));
    assert!(matches!(host.read_link(file), Err(Error::InvalidInput(_))));
    assert!(matches!(
        host.lookup(host.root(), b"nothing"),
        Err(Error::NotFound)
    ));
    assert!(matches!(
        host.lookup(host.root(), b".."),
        Err(Error::NotFound)
    ));
    assert!(matches!(host.metadata(Ino(1 << 40)), Err(Error::NotFound)));
    assert!(matches!(
        HostDir::open(&dir.join("empty")),
        Err(Error::NotADirectory)
    ));
}

#[test]
fn descriptors_are_few_however_many_files_are_read() {
    let dir = TempDir::new();
    for n in 0..300 {
        fs::create_dir(dir.join(format!("{n}"))).unwrap();
        fs::write(dir.join(format!("{n}/file")), "x").unwrap();
    }
    let host = HostDir::open(dir.path()).unwrap();
    let inventory = inventory(&host);
    let mut buf = [0; 2];
    for file in inventory
        .files()
        .filter(|&f| inventory.kind(f) == FileKind::Regular)
    {
        assert_eq!(host.read_at(inventory.ino(file), 0, &mut buf).unwrap(), 1);
    }
    let below = |target: std::path::PathBuf| target.starts_with(dir.path());
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    let open = open.filter(|target| below(target.clone())).count();
    assert!(open <= 100, "{open} descriptors");
}

#[test]
fn many_threads_read_at_once() {
    let dir = TempDir::new();
    for n in 0..200u8 {
        fs::write(dir.join(format!("{n}")), vec![n; 3000]).unwrap();
    }
    let host = HostDir::open(dir.path()).unwrap();
    let entries = host.read_dir(host.root()).unwrap();
    std::thread::scope(|scope| {
        for start in 0..8 {
            let (host, entries) = (&host, &entries);
            scope.spawn(move || {
                for entry in entries.iter().cycle().skip(start * 25).take(400) {
                    let n: u8 = std::str::from_utf8(&entry.name).unwrap().parse().unwrap();
                    let mut buf = [0; 4000];
                    assert_eq!(host.read_at(entry.ino, 0, &mut buf).unwrap(), 3000);
                    assert!(buf[..3000].iter().all(|&b| b == n));
                }
            });
        }
    });
}

/// Files of /proc claim to be empty, but are not.
#[test]
fn what_the_kernel_shows_of_itself_is_listed_but_not_copied() {
    let host = HostDir::open(Path::new("/proc/sys/kernel")).unwrap();
    let root = host.root();
    assert!(host.read_dir(root).unwrap().len() > 10);
    match Inventory::of(&host, &Limits::default()) {
        Err(Error::File { error, .. }) => assert!(matches!(*error, Error::Unsupported(_))),
        _ => panic!("it would be a copy of empty files"),
    }
}

#[test]
fn an_inventory_takes_36_bytes_for_a_file_and_its_name() {
    let dir = TempDir::new();
    for file in 0..500 {
        File::create(dir.join(format!("{file:07}"))).unwrap();
    }
    let host = HostDir::open_with(dir.path(), HostTimes::Modification).unwrap();
    let mut inventory = inventory(&host);
    let bytes = inventory.memory_bytes();
    // The name is counted with its length; 512 bytes are shared by all files.
    assert!(bytes <= 501 * (36 + 8) + 512, "{bytes}");
    inventory.drop_nanoseconds();
    let mut files = inventory.files();
    assert!(files.all(|file| inventory.metadata(file).mtime.nanoseconds == 0));
    let stat = fs::metadata(dir.join("0000123")).unwrap();
    let entry = inventory.find(b"0000123").unwrap();
    let found = inventory.metadata(inventory.file(entry));
    assert_eq!((found.uid, found.mtime.seconds), (stat.uid(), stat.mtime()));
}

#[test]
fn a_directory_that_is_listed_again_has_the_same_files() {
    let dir = TempDir::new();
    for file in 0..300 {
        fs::write(dir.join(format!("{file:03}")), format!("content {file}")).unwrap();
    }
    fs::hard_link(dir.join("007"), dir.join("another name")).unwrap();
    let host = HostDir::open(dir.path()).unwrap();
    let list = || host.read_dir(host.root()).unwrap();
    let first = list();
    let named = |list: &[DirEntry], name: &str| {
        let entry = list.iter().find(|entry| *entry.name == *name.as_bytes());
        entry.unwrap().ino
    };
    assert_eq!(named(&first, "007"), named(&first, "another name"));
    assert_eq!(list(), first);
    fs::rename(dir.join("123"), dir.join("renamed")).unwrap();
    fs::write(dir.join("new"), b"").unwrap();
    let second = list();
    assert_eq!(named(&second, "renamed"), named(&first, "123"));
    assert!(!first.iter().any(|old| old.ino == named(&second, "new")));
    let mut content = [0; 20];
    let len = host.read_at(named(&second, "renamed"), 0, &mut content);
    assert_eq!(&content[..len.unwrap()], b"content 123");
}

#[test]
fn times_of_any_year_are_those_of_the_tree() {
    let mut tree = MemoryFs::new();
    let root = tree.root();
    // The first and last time of a record, and those beyond.
    let seconds = [0, -1, -1 << 31, (-1 << 31) - 1, (7 << 31) - 1, 7 << 31];
    let mut times: Vec<(i64, u32)> = seconds.map(|seconds| (seconds, 999_999_999)).to_vec();
    times.extend([
        (i64::MIN, 0),
        (i64::MAX, 7),
        (5, 1_000_000_000),
        (5, u32::MAX),
    ]);
    for (number, &(seconds, nanoseconds)) in times.iter().enumerate() {
        let file = tree.add_file(root, format!("{number:02}"), b"");
        tree.metadata_mut(file).mtime = Time {
            seconds,
            nanoseconds,
        };
    }
    let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
    let all = |inventory: &Inventory<'_>| -> Vec<(i64, u32)> {
        let mtimes = inventory.names().skip(1).map(|entry| {
            let mtime = inventory.metadata(inventory.file(entry)).mtime;
            (mtime.seconds, mtime.nanoseconds)
        });
        mtimes.collect()
    };
    assert_eq!(all(&inventory), times);
    let mut rest = inventory.without(|entry| *inventory.name(entry) == *b"00");
    assert_eq!(all(&rest), times[1..]);
    rest.drop_nanoseconds();
    let whole = times[1..].iter().map(|&(seconds, _)| (seconds, 0));
    assert!(all(&rest).into_iter().eq(whole));
    for limit in [7 << 31, 4, -1 << 31, i64::MIN] {
        rest.limit_mtimes(limit);
        let limited = (times[1..].iter()).map(|&(seconds, _)| (seconds.min(limit), 0));
        assert!(all(&rest).into_iter().eq(limited), "{limit}");
    }
}
