//! Compressed archives, made and read in place, and archives one after another.

use std::fs;
use std::process::Command;

use testkit::{Rng, TempDir, tool};

use super::{ok, restow, run_in};

/// A directory `src` with more content than one part of an archive has.
fn source(noise_mib: usize) -> TempDir {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/sub")).unwrap();
    let mut random = Rng::new(1);
    let noise = std::iter::repeat_with(|| random.next_u64().to_le_bytes());
    let noise: Vec<u8> = noise.take(noise_mib << 17).flatten().collect();
    fs::write(dir.join("src/noise"), noise).unwrap();
    let text = "to be, or not to be\n".repeat(150_000);
    fs::write(dir.join("src/sub/text"), text).unwrap();
    dir
}

#[test]
fn archives_are_compressed_by_their_ending_and_other_programs_read_them() {
    let dir = source(1);
    ok(&dir, "copy -q src plain.tar");
    let plain = fs::read(dir.join("plain.tar")).unwrap();
    for (ending, program, levels) in [
        ("tar.gz", "gzip", ["gzip:1", "gzip:9"]),
        ("tar.xz", "xz", ["xz:0", "xz:1"]),
        ("tar.zst", "zstd", ["zstd:1", "zstd:9"]),
    ] {
        let name = format!("x.{ending}");
        let (_, words) = ok(&dir, &format!("copy src {name} --compress {}", levels[0]));
        assert!(words.contains(", ratio "), "{words}");
        ok(&dir, &format!("diff src {name}"));
        // The threads do not matter, a level does, and the format can be named.
        for threads in [1, 3] {
            let again = format!(
                "copy -q -j {threads} src again --to {ending} --overwrite --compress {}",
                levels[0]
            );
            ok(&dir, &again);
            assert!(fs::read(dir.join(&name)).unwrap() == fs::read(dir.join("again")).unwrap());
        }
        ok(
            &dir,
            &format!(
                "copy -q --overwrite src again --to {ending} --compress {}",
                levels[1]
            ),
        );
        let size = |name: &str| fs::metadata(dir.join(name)).unwrap().len();
        assert!(size("again") < size(&name), "{ending}");
        assert!(size(&name) < plain.len() as u64 / 2, "{ending}");
        let (code, _, words) = run_in(dir.path(), ["copy", "src", "y.tar.gz", "--compress", "lz4"]);
        assert_eq!(code, 2);
        assert!(
            words.contains("--compress lz4: the name of DST says that it is compressed with gzip")
        );
        if let Some(program) = tool(program) {
            let decoded = program
                .command()
                .args(["-dc", &name])
                .current_dir(dir.path())
                .output();
            let decoded = decoded.unwrap();
            assert!(
                decoded.status.success() && decoded.stdout == plain,
                "{ending}"
            );
        }
        // Into a pipe.
        let mut piped = Command::new("sh");
        let line = format!(
            "{} copy -q src - --to {ending} | {0} ls -",
            restow([""; 0]).get_program().display()
        );
        let piped = piped
            .args(["-c", &line])
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert_eq!(piped.stdout, b"noise\nsub\n");
    }
}

#[test]
fn a_zstd_archive_is_read_in_place() {
    let dir = source(5);
    ok(&dir, "copy -q src x.tar.zst");
    // With a seek table, nothing is decompressed into a temporary file: there is no room for one.
    let read = |line: &str| {
        let mut command = restow(line.split_whitespace());
        command.current_dir(dir.path()).env("TMPDIR", "/nowhere");
        super::shown(&command.output().unwrap())
    };
    assert_eq!(
        read("ls -R x.tar.zst"),
        (0, "noise\nsub\nsub/text\n".into(), String::new())
    );
    let (code, text, _) = read("cat x.tar.zst sub/text");
    assert_eq!((code, text.len()), (0, 3_000_000));
    assert_eq!(read("diff x.tar.zst src").0, 0);
    // Without one, it is.
    let packed = fs::read(dir.join("x.tar.zst")).unwrap();
    fs::write(dir.join("cut.tar.zst"), &packed[..packed.len() - 1]).unwrap();
    assert_eq!(read("ls cut.tar.zst").0, 2);
    // A damaged part without a header costs what is in it.
    let mut damaged = packed.clone();
    damaged[3 << 20] ^= 1;
    fs::write(dir.join("damaged.tar.zst"), &damaged).unwrap();
    assert_eq!(read("cat damaged.tar.zst sub/text").0, 0);
    let (code, _, words) = read("cat damaged.tar.zst noise");
    assert_eq!(code, 2);
    assert!(words.contains("zstd frame at byte "), "{words}");
}

#[test]
fn archives_that_other_programs_compressed_are_read() {
    let dir = source(1);
    ok(&dir, "copy -q src x.tar");
    let plain = fs::read(dir.join("x.tar")).unwrap();
    for (program, ending, args) in [
        ("gzip", "gz", &["-1"][..]),
        ("bzip2", "bz2", &["-1"]),
        ("xz", "xz", &["-0"]),
        ("xz", "lzma", &["--format=lzma", "-0"]),
        ("zstd", "zst", &["-q", "-1"]),
        ("lz4", "lz4", &["-q", "-1"]),
        ("lzop", "lzo", &["-q", "-1"]),
        ("lzop", "lzo", &["-q", "-9", "--crc32"]),
        ("lzop", "lzo", &["-q", "--no-checksum"]),
    ] {
        let Some(program) = tool(program) else { return };
        let name = format!("y.{ending}");
        let pack = |bytes: &[u8]| {
            fs::write(dir.join("part"), bytes).unwrap();
            let mut command = program.command();
            command
                .args(args)
                .args(["-c", "part"])
                .current_dir(dir.path());
            testkit::run(&mut command).stdout
        };
        // In two streams, where the format can be concatenated; lzop warns of them.
        let middle = if matches!(ending, "lzma" | "lzo") {
            plain.len()
        } else {
            plain.len() / 3
        };
        let mut packed = pack(&plain[..middle]);
        if middle < plain.len() {
            packed.extend(pack(&plain[middle..]));
        }
        fs::write(dir.join(&name), &packed).unwrap();
        ok(&dir, &format!("diff src {name}"));
        ok(&dir, &format!("check {name}"));
        // What the program says about bytes behind the end, ours says, too.
        for behind in [&b"garbage"[..], &[0; 512]] {
            fs::write(dir.join(&name), [&packed[..], behind].concat()).unwrap();
            let mut command = program.command();
            let unpacked = command.args(["-dc", &name]).current_dir(dir.path());
            let unpacked = unpacked.output().unwrap();
            let status = unpacked.status.code().unwrap();
            // gzip, lz4 and lzop give the content, and fail.
            let expected = match (status, ending) {
                (0, _) => 0,
                (_, "gz" | "lz4" | "lzo") if unpacked.stdout == plain => 1,
                _ => 2,
            };
            let (code, _, words) = run_in(dir.path(), ["copy", "-q", &name, "z"]);
            assert_eq!(code, expected, "{ending} {behind:?}, {status}: {words}");
            if code < 2 {
                ok(&dir, "diff src z");
                fs::remove_dir_all(dir.join("z")).unwrap();
            }
        }
        fs::write(dir.join(&name), &packed[..packed.len() - 40]).unwrap();
        let (code, _, words) = run_in(dir.path(), ["copy", "-q", &name, "z"]);
        assert!(
            code == 2 && words.contains("decompress it with "),
            "{ending}: {words}"
        );
    }
}

#[test]
fn a_seek_table_that_does_not_fit_is_named_and_not_used() {
    let dir = source(1);
    ok(&dir, "copy -q src x.tar.zst");
    let mut packed = fs::read(dir.join("x.tar.zst")).unwrap();
    // The length of the first frame is the first field behind the header of the table.
    let table = packed
        .windows(4)
        .rposition(|at| at == b"\x5e\x2a\x4d\x18")
        .unwrap();
    packed[table + 8] ^= 1;
    fs::write(dir.join("x.tar.zst"), packed).unwrap();
    let (_, words) = ok(&dir, "copy x.tar.zst y");
    let expected = "restow: x.tar.zst: the seek table does not fit the archive, \
                    which is decompressed from its beginning\n";
    assert!(words.starts_with(expected), "{words}");
    ok(&dir, "diff src y");
    let (code, words, _) = run_in(dir.path(), ["check", "x.tar.zst"]);
    assert!(code == 1 && words.contains("1 error in 3 names"), "{words}");
    let place = format!(" at byte {table:#x})");
    let (first, _) = words.split_once('\n').unwrap();
    let is_named = first.starts_with("zstd seek table does not fit its file (found ");
    assert!(is_named && first.ends_with(&place), "{words}");
    // The lengths in the file are right, and those of the content are not.
    let mut packed = fs::read(dir.join("x.tar.zst")).unwrap();
    packed[table + 8] ^= 1;
    packed[table + 12] ^= 1;
    fs::write(dir.join("x.tar.zst"), packed).unwrap();
    let (_, words) = ok(&dir, "copy x.tar.zst y.tar");
    let is_named = words.contains("the seek table does not fit the archive");
    assert!(is_named, "{words}");
    ok(&dir, "diff src y.tar");
    assert_eq!(run_in(dir.path(), ["check", "x.tar.zst"]).0, 1);
}

/// Two lengths whose errors cancel each other out, within one member: its frames alone tell.
#[test]
fn wrong_lengths_in_a_large_member_of_a_seek_table_are_found_by_check() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/big"), Rng::new(4).bytes(20 << 20)).unwrap();
    fs::write(dir.join("src/last"), "last").unwrap();
    ok(&dir, "copy -q src x.tar.zst");
    let mut packed = fs::read(dir.join("x.tar.zst")).unwrap();
    let header = |at: &[u8]| at == b"\x5e\x2a\x4d\x18";
    let table = packed.windows(4).rposition(header).unwrap();
    // A header, then for each frame its length and that of its content.
    let frames = (packed.len() - table - 8 - 9) / 8;
    assert!(frames > 4, "{frames}");
    for (frame, add) in [(frames / 2, 1), (frames / 2 + 1, -1)] {
        let at = table + 8 + 8 * frame + 4;
        let len: &mut [u8; 4] = (&mut packed[at..at + 4]).try_into().unwrap();
        *len = u32::from_le_bytes(*len)
            .wrapping_add_signed(add)
            .to_le_bytes();
    }
    fs::write(dir.join("x.tar.zst"), packed).unwrap();
    let (code, words, _) = run_in(dir.path(), ["check", "x.tar.zst"]);
    assert!(code == 1 && words.contains("in the seek table"), "{words}");
    let (code, _, words) = run_in(dir.path(), ["copy", "x.tar.zst", "y"]);
    assert!(code == 2 && words.contains("in the seek table"), "{words}");
    assert!(!dir.join("y").exists());
}

#[test]
fn archives_one_after_another_are_read_with_ignore_zeros() {
    let dir = source(1);
    fs::create_dir(dir.join("more")).unwrap();
    fs::write(dir.join("more/last"), "last").unwrap();
    for ending in ["tar", "tar.gz", "tar.zst"] {
        ok(&dir, &format!("copy -q src a.{ending}"));
        ok(&dir, &format!("copy -q more b.{ending}"));
        let read = |name: &str| fs::read(dir.join(format!("{name}.{ending}"))).unwrap();
        fs::write(dir.join("both"), [read("a"), read("b")].concat()).unwrap();
        let (first, _) = ok(&dir, "ls both");
        let (all, _) = ok(&dir, "ls --ignore-zeros both");
        assert_eq!(all, "last\nnoise\nsub\n", "{ending}");
        // The table at the end is that of the second archive, and does not fit the whole.
        assert_eq!(first, "noise\nsub\n", "{ending}");
        assert_eq!(ok(&dir, "cat --ignore-zeros both last").0, "last");
    }
}
