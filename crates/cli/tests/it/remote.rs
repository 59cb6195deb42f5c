//! Sources of a web server, for all commands that read.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use testkit::{Manner, RangeServer, Rng, TempDir, cases};

use super::{names, ok, restow, run_in};

/// Files of a tree by their paths, with the content of a few.
fn tar(files: usize, content: usize) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut rng = Rng::new(5);
    for number in 0..files {
        let len = if number % 100 == 0 { content } else { 0 };
        let mut header = [0; 512];
        let name = match number % 100 {
            0 => format!("d{:03}/content", number / 100),
            _ => format!("d{:03}/file-{:08x}", number / 100, rng.below(1 << 32)),
        };
        header[..name.len()].copy_from_slice(name.as_bytes());
        for (at, digits) in [
            (100, "0000644".to_owned()),
            (108, "0000000".to_owned()),
            (116, "0000000".to_owned()),
            (124, format!("{len:011o}")),
            (136, format!("{:011o}", 1_600_000_000 + rng.below(1 << 24))),
        ] {
            header[at..at + digits.len()].copy_from_slice(digits.as_bytes());
        }
        header[148..156].copy_from_slice(b"        ");
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(&rng.bytes(len));
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// Makes an image `name` of such a tree in a directory.
fn image(dir: &TempDir, name: &str, files: usize, content: usize) -> Vec<u8> {
    fs::write(dir.join("all.tar"), tar(files, content)).unwrap();
    ok(dir, &format!("copy -q all.tar {name}"));
    fs::read(dir.join(name)).unwrap()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn a_squashfs_image_is_listed_in_few_requests() {
    let dir = TempDir::new();
    let bytes = image(&dir, "i.squashfs", cases(20_000), 30_000);
    let tables = u64_at(&bytes, 40) - u64_at(&bytes, 64);
    let server = RangeServer::new(bytes);
    let url = server.url("i.squashfs");
    let (listed, _) = ok(&dir, &format!("ls -lR {url}"));
    assert_eq!(listed, ok(&dir, "ls -lR i.squashfs").0);
    assert!(server.requests() <= 8, "{}", server.requests());
    // Beside the tables, the beginning and the rest of a block.
    let max = tables * 12 / 10 + (192 << 10);
    assert!(server.bytes() <= max, "{} of {tables}", server.bytes());
    // Twice as many, because the tables are read again, and twice for the content.
    let requests = server.requests();
    let output = restow(["cat", &url, "d000/content"]).output().unwrap();
    assert_eq!(output.stdout.len(), 30_000);
    assert!(server.requests() - requests <= 4);
}

#[test]
fn a_btrfs_image_is_listed_in_few_requests() {
    let dir = TempDir::new();
    let bytes = image(&dir, "i.btrfs", cases(20_000), 30_000);
    let (counts, _) = ok(&dir, "check --json i.btrfs");
    let blocks = counts.split_once("\"tree_blocks\":").unwrap().1;
    let blocks: u64 = blocks.split(',').next().unwrap().parse().unwrap();
    let server = RangeServer::new(bytes);
    let url = server.url("i.btrfs");
    assert_eq!(
        ok(&dir, &format!("ls -lR {url}")).0,
        ok(&dir, "ls -lR i.btrfs").0
    );
    // The superblock, the chunks, the roots and the top of the tree are in places of their own.
    let (requests, bytes) = (server.requests(), server.bytes());
    assert!(
        requests <= 5 + blocks / 16,
        "{requests} for {blocks} blocks"
    );
    assert!(
        bytes <= blocks * 16384 * 3 / 2 + (512 << 10),
        "{bytes} for {blocks} blocks"
    );
}

#[test]
fn a_check_and_a_copy_read_the_object_once() {
    for name in ["i.squashfs", "i.btrfs", "i.erofs"] {
        let dir = TempDir::new();
        let bytes = image(&dir, name, 3_000, 1 << 20);
        let len = bytes.len() as u64;
        // Less than the object has.
        for line in [
            "check --remote-cache 16MiB URL",
            "copy -q --remote-cache 16MiB URL out",
        ] {
            let server = RangeServer::new(bytes.clone());
            ok(&dir, &line.replace("URL", &server.url(name)));
            assert!(
                server.bytes() <= len * 102 / 100,
                "{line} {name}: {} of {len}",
                server.bytes()
            );
        }
        ok(&dir, &format!("diff {name} out"));
    }
}

#[test]
fn an_index_finds_a_file_of_a_stream() {
    let dir = TempDir::new();
    let stream = image(&dir, "i.stream", 2_000, 1 << 20);
    ok(&dir, "index -q i.stream i.idx");
    let index = fs::read(dir.join("i.idx")).unwrap();
    let (index_len, stream_len) = (index.len(), stream.len());
    assert!(index_len * 200 <= stream_len, "{index_len} of {stream_len}");
    let (data, names) = (RangeServer::new(stream), RangeServer::new(index));
    let (index, stream) = (names.url("i.idx"), data.url("i.stream"));
    let (listed, _) = ok(&dir, &format!("ls -R {index}"));
    assert!(listed == ok(&dir, "ls -R i.stream").0);
    let cat = ["cat", "--device", &stream, &index, "d007/content"];
    let output = restow(cat).output().unwrap();
    let expected = restow(["cat", "i.stream", "d007/content"])
        .current_dir(dir.path())
        .output();
    assert!(output.stdout == expected.unwrap().stdout);
    assert_eq!(output.stdout.len(), 1 << 20);
    // The first request has 128 KiB, and parts begin before the data and end behind it.
    let fetched = data.bytes();
    assert!(fetched <= (1 << 20) + (256 << 10), "{fetched}");
}

#[test]
fn failing_requests_change_nothing() {
    let dir = TempDir::new();
    let bytes = image(&dir, "i.squashfs", 2_000, 1 << 20);
    let server = RangeServer::with(bytes, |number, _| {
        let mut rng = Rng::new(number);
        let is_cut = rng.below(10) == 0;
        Manner {
            refusal: (rng.below(10) == 0).then(|| (503, String::new())),
            cut: is_cut.then(|| rng.below(1 << 20) as usize),
            ..Manner::default()
        }
    });
    let url = server.url("i.squashfs");
    ok(&dir, &format!("copy -q {url} out.tar"));
    ok(&dir, "copy -q i.squashfs local.tar");
    assert!(fs::read(dir.join("out.tar")).unwrap() == fs::read(dir.join("local.tar")).unwrap());
}

/// Whatever is read before and after, no copy is made of two versions.
#[test]
fn an_object_that_is_replaced_ends_a_copy() {
    let dir = TempDir::new();
    let bytes = image(&dir, "i.squashfs", 2_000, 1 << 20);
    let mut new = bytes.clone();
    let middle = new.len() / 2;
    new[middle] ^= 1;
    let new = Arc::new(new);
    let server = RangeServer::new(bytes.clone());
    let all = ["out", "out.tar", "out.squashfs", "out.btrfs"];
    let before = names(dir.path());
    // Each format takes another number of requests.
    let requests = all.map(|out| {
        let before = server.requests();
        ok(&dir, &format!("copy -q {} {out}", server.url("i")));
        server.requests() - before
    });
    fs::remove_dir_all(dir.join("out")).unwrap();
    all[1..]
        .iter()
        .for_each(|out| fs::remove_file(dir.join(out)).unwrap());
    let mut rng = Rng::new(3);
    for trial in 0..cases(12) {
        let out = trial as usize % all.len();
        let since = 1 + rng.below(requests[out] / 2);
        let out = all[out];
        let new = Arc::clone(&new);
        let server = RangeServer::with(bytes.clone(), move |number, _| {
            if number < since {
                return Manner::default();
            }
            Manner {
                object: Some(Arc::clone(&new)),
                etag: Some("\"2\""),
                is_guarding: trial % 2 == 0,
                ..Manner::default()
            }
        });
        let (code, _, words) = run_in(dir.path(), ["copy", "-q", &server.url("i"), out]);
        assert_eq!(code, 2, "since {since} {out}: {words}");
        assert!(
            words.contains("the object was replaced while it was read"),
            "{words}"
        );
        assert_eq!(names(dir.path()), before, "since {since} {out}");
    }
}

#[test]
fn exit_code_75_says_that_trying_again_may_help() {
    let dir = TempDir::new();
    let bytes = image(&dir, "i.squashfs", 2_000, 1 << 20);
    let busy = |status, since| {
        RangeServer::with(bytes.clone(), move |number, _| Manner {
            refusal: (number >= since).then(|| (status, "Retry-After: 0\r\n".to_owned())),
            ..Manner::default()
        })
    };
    for (status, since, code) in [
        (503, 0, 75),
        (503, 2, 75),
        (429, 3, 75),
        (403, 0, 2),
        (404, 0, 2),
        (403, 2, 2),
    ] {
        let server = busy(status, since);
        let found = run_in(dir.path(), ["copy", "-q", &server.url("i"), "out.tar"]);
        assert_eq!(found.0, code, "{status} since {since}: {}", found.2);
        assert!(!dir.join("out.tar").exists());
        let found = run_in(dir.path(), ["check", "-q", &server.url("i")]);
        assert_eq!(found.0, code, "{status} since {since}: {}", found.2);
    }
    // The port of a closed listener.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://user:hush@{port}/i?sig=hush");
    let (code, _, words) = run_in(dir.path(), ["ls", &url]);
    assert_eq!(code, 75, "{words}");
    assert!(
        words.contains(&format!("open http://{port}/i?...: ")),
        "{words}"
    );
    assert!(!words.contains("hush"));
    assert_eq!(run_in(dir.path(), ["ls", "none"]).0, 2);
}

/// Subvolumes, further devices, older images and streams are objects as well.
#[test]
fn every_source_can_be_an_object() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/home")).unwrap();
    fs::write(dir.join("src/home/a"), vec![7; 100_000]).unwrap();
    fs::write(dir.join("src/b"), "b").unwrap();
    let at = dir.path();
    ok(&dir, "copy -q src i.btrfs --as-subvolume home");
    ok(&dir, "copy -q src s.stream");
    ok(&dir, "copy -q src a.tar.gz");
    let serve = |name: &str| RangeServer::new(fs::read(dir.join(name)).unwrap());
    let btrfs = serve("i.btrfs");
    let url = btrfs.url("x.btrfs");
    assert_eq!(ok(&dir, &format!("ls {url}:home")).0, "a\n");
    ok(&dir, &format!("diff {url}:home src/home"));
    assert!(ok(&dir, &format!("info {url}")).0.contains("home"));
    let (code, _, words) = run_in(at, ["ls", &format!("{url}:none")]);
    assert_eq!(code, 2);
    assert!(words.contains("no subvolume or directory none"), "{words}");
    let stream = serve("s.stream");
    let url = stream.url("s");
    ok(&dir, &format!("stream verify {url}"));
    ok(&dir, &format!("ls -R {url}"));
    fs::create_dir(dir.join("into")).unwrap();
    ok(&dir, &format!("receive --to directory -f {url} into"));
    let tar = serve("a.tar.gz");
    ok(&dir, &format!("diff {} src", tar.url("a")));
    ok(
        &dir,
        &format!("copy -q src more.tar --with {}=more", tar.url("a")),
    );
    assert!(ok(&dir, "ls -R more.tar").0.contains("more/home/a"));
    ok(
        &dir,
        &format!(
            "copy -q src new.btrfs --as-subvolume home --reuse {}",
            btrfs.url("i")
        ),
    );
    ok(&dir, "check new.btrfs");
}

#[test]
fn a_server_that_ignores_ranges_gives_archives_in_order() {
    let dir = TempDir::new();
    let squashfs = image(&dir, "i.squashfs", 500, 10_000);
    let serve = |bytes| {
        RangeServer::with(bytes, |_, _| Manner {
            has_ranges: false,
            ..Manner::default()
        })
    };
    let server = serve(fs::read(dir.join("all.tar")).unwrap());
    ok(&dir, &format!("diff {} all.tar", server.url("a")));
    assert_eq!(server.requests(), 1);
    let server = serve(squashfs);
    let (code, _, words) = run_in(dir.path(), ["ls", &server.url("a")]);
    assert_eq!(code, 2);
    assert!(
        words.contains("a SquashFS image from a server that ignores ranges; save it"),
        "{words}"
    );
}

#[test]
fn files_of_web_servers_are_not_written() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    for dst in ["http://127.0.0.1:1/a", "https://127.0.0.1:1/a"] {
        let (code, _, words) = run_in(dir.path(), ["copy", "src", dst]);
        assert_eq!(code, 2);
        assert!(words.contains("which restow does not write"), "{words}");
    }
    assert_eq!(names(dir.path()), ["src"]);
}

#[test]
#[ignore = "needs root"]
fn an_object_is_mounted() {
    let dir = TempDir::new();
    let bytes = image(&dir, "i.squashfs", 500, 10_000);
    let server = RangeServer::new(bytes);
    fs::create_dir(dir.join("point")).unwrap();
    let url = server.url("i");
    ok(&dir, &format!("mount {url} point"));
    let compared = run_in(dir.path(), ["diff", "point", "i.squashfs"]);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let (code, ..) = run_in(dir.path(), ["unmount", "point"]);
    assert_eq!((code, compared.0), (0, 0), "{}", compared.2);
    assert!(mounts.contains(&url));
    assert!(Path::new(&dir.join("point")).exists());
}
