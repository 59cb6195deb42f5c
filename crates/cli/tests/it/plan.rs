//! Predictions, compared with real copies. Times are not compared here: `cargo xtask campaign plan`
//! does that.

use std::fs;
use std::path::Path;

use testkit::{Rng, TempDir};

use super::{ok, run_in};

/// A tree of about 12 MB: texts, tables of numbers, programs of a kind, noise, and many small
/// files.
fn mixed(dir: &Path) {
    fs::create_dir_all(dir.join("small")).unwrap();
    let mut rng = Rng::new(19);
    let words: Vec<String> = (0..3000)
        .map(|_| {
            let len = 2 + rng.index(8);
            (0..len)
                .map(|_| char::from(b'a' + rng.index(26) as u8))
                .collect()
        })
        .collect();
    let text = |rng: &mut Rng, len: usize| {
        let mut text = String::with_capacity(len + 16);
        while text.len() < len {
            // Few words are frequent.
            let most = 1 << (1 + rng.index(11));
            text += &words[rng.index(most.min(words.len()))];
            text.push(if rng.chance(9) { '\n' } else { ' ' });
        }
        text
    };
    for n in 0..700 {
        let len = 40 + rng.index(5000);
        let content = text(&mut rng, len);
        fs::write(dir.join(format!("small/{n}.c")), content).unwrap();
    }
    for n in 0..8 {
        let len = 300_000 + rng.index(600_000);
        fs::write(dir.join(format!("{n}.txt")), text(&mut rng, len)).unwrap();
        let mut numbers = Vec::new();
        let mut last = 0u32;
        while numbers.len() < 400_000 {
            last = last.wrapping_add(rng.below(1 << (4 + 9 * (n % 2))) as u32);
            numbers.extend(last.to_le_bytes());
        }
        fs::write(dir.join(format!("{n}.tab{}", n % 2)), numbers).unwrap();
    }
    fs::write(dir.join("noise.jpg"), rng.bytes(1_500_000)).unwrap();
    fs::write(dir.join("again.txt"), fs::read(dir.join("1.txt")).unwrap()).unwrap();
    fs::write(dir.join("zeros"), vec![0; 1 << 20]).unwrap();
}

/// A number in a row of the JSON.
pub(crate) fn number(row: &str, name: &str) -> f64 {
    let (_, rest) = row
        .split_once(&format!("\"{name}\":"))
        .unwrap_or_else(|| panic!("{name}: {row}"));
    let end = rest.find([',', '}']).unwrap();
    rest[..end].parse().unwrap()
}

/// The rows of the JSON, each with its codec first.
pub(crate) fn rows(json: &str) -> Vec<(String, String)> {
    let (_, rows) = json.split_once("\"rows\":[").unwrap();
    let (rows, _) = rows.split_once("],\"pick\"").unwrap();
    let rows = rows.split("{\"codec\":\"").skip(1);
    rows.map(|row| {
        let (codec, rest) = row.split_once('"').unwrap();
        (codec.to_owned(), rest.to_owned())
    })
    .collect()
}

/// Six candidates of each container are within 2 % of the copy, from a sample: a third of the
/// bytes, but of archives all 13 parts.
#[test]
fn predicted_sizes_are_those_of_copies() {
    let dir = TempDir::new();
    mixed(&dir.join("src"));
    let mut wrong = Vec::new();
    let copies: [(&str, &[&str]); 5] = [
        (
            "squashfs",
            &["none", "lz4", "lzo", "gzip:6", "zstd:3", "zstd:9"],
        ),
        (
            "btrfs",
            &["none", "lzo", "zlib:3", "zlib:9", "zstd:3", "zstd:9"],
        ),
        (
            "tar",
            &["gzip:1", "gzip:6", "zstd:3", "zstd:9", "zstd:12", "xz:1"],
        ),
        (
            "stream",
            &["none", "lzo", "zlib:3", "zlib:9", "zstd:3", "zstd:9"],
        ),
        ("erofs", &["none", "lz4", "gzip:6", "zstd:3", "zstd:9"]),
    ];
    for (container, codecs) in copies {
        let tries: Vec<String> = codecs
            .iter()
            .map(|codec| format!("--try {codec}"))
            .collect();
        let (json, _) = ok(
            &dir,
            &format!(
                "plan --for {container} --json --write-rate 1GB --sample 4M {} src",
                tries.join(" ")
            ),
        );
        let rows = rows(&json);
        for codec in codecs {
            let found = rows.iter().find(|(known, row)| {
                let has_blocks = ["squashfs", "erofs"].contains(&container);
                let is_small = !has_blocks || number(row, "block_bytes") == 131_072.0;
                known == codec && is_small
            });
            let (_, row) = found.unwrap_or_else(|| panic!("{container} {codec}: {json}"));
            let to = match (container, codec.split_once(':').map_or(*codec, |it| it.0)) {
                ("tar", "gzip") => "x.tar.gz",
                ("tar", "zstd") => "x.tar.zst",
                ("tar", _) => "x.tar.xz",
                ("stream", _) => "x.stream",
                ("btrfs", _) => "x.btrfs",
                ("erofs", _) => "x.erofs",
                _ => "x.squashfs",
            };
            let block = match container {
                "erofs" => "--block-size 128K ",
                _ => "",
            };
            ok(
                &dir,
                &format!("copy -q --overwrite {block}--compress {codec} src {to}"),
            );
            let real = fs::metadata(dir.join(to)).unwrap().len() as f64;
            let predicted = number(row, "bytes");
            let off = predicted / real - 1.0;
            if off.abs() >= 0.02 {
                wrong.push(format!(
                    "{container} {codec}: {predicted} predicted, {real} real"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_sample_of_everything_is_exact_and_samples_are_repeatable() {
    let dir = TempDir::new();
    mixed(&dir.join("src"));
    let plan = |options: &str| {
        let line = format!("plan --json --write-rate 1GB --try zstd:3 {options} src");
        let (json, _) = ok(&dir, &line);
        let rows = rows(&json);
        let bytes =
            |(_, row): &(String, String)| (number(row, "bytes"), number(row, "bytes_error"));
        rows.iter().map(bytes).collect::<Vec<_>>()
    };
    let all = plan("--sample 1G -j 1");
    for (bytes, error) in &all {
        assert!(*error == 0.0, "{bytes} {error}");
    }
    ok(&dir, "copy -q --compress zstd:3 src 128.squashfs");
    ok(
        &dir,
        "copy -q --compress zstd:3 --block-size 1M src 1.squashfs",
    );
    let mut real = ["128.squashfs", "1.squashfs"]
        .map(|name| fs::metadata(dir.join(name)).unwrap().len() as f64);
    let mut exact: Vec<f64> = all.iter().map(|(bytes, _)| *bytes).collect();
    real.sort_by(f64::total_cmp);
    exact.sort_by(f64::total_cmp);
    assert_eq!(exact, real);
    let sorted = |options: &str| {
        let mut sizes = plan(options);
        sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
        sizes
    };
    let first = sorted("--sample 1M --seed 5 -j 1");
    assert_eq!(first, sorted("--sample 1M --seed 5 -j 3"));
    assert_ne!(first, sorted("--sample 1M --seed 6"));
    // A first pass over a part is a sample, too, with a longer error bar. All blocks of 1 MiB are
    // in it, whose codec is that of the first pass: its size is exact.
    assert_eq!((first[0], first[1].1 > 0.0), ((exact[0], 0.0), true));
    let part = sorted("--sample 1M --first-pass 5M --seed 5");
    assert_eq!(part[0], first[0]);
    assert!(part[1].1 > first[1].1, "{part:?} {first:?}");
    assert!(
        (part[1].0 - exact[1]).abs() <= part[1].1,
        "{part:?} {exact:?}"
    );
}

#[test]
fn the_recommended_command_works_and_limits_decide() {
    let dir = TempDir::new();
    mixed(&dir.join("it's src"));
    for (container, more) in [
        ("squashfs", "--try lz4 --try gzip"),
        ("btrfs", "--try lzo --try zlib -j 2"),
        ("tar", "--try none --try gzip"),
        ("stream", "--try lzo --try zlib"),
    ] {
        let line = format!("plan --for {container} --write-rate 1GB --sample 1M {more}");
        let words: Vec<&str> = line.split_whitespace().chain(["it's src"]).collect();
        let (code, table, errors) = run_in(dir.path(), words);
        assert_eq!((code, &*errors), (0, ""), "{table}");
        assert!(table.contains("\nrecommended: "), "{table}");
        let command = table.lines().last().unwrap().trim();
        assert!(command.starts_with("restow copy ") && command.contains("'it'\\''s src'"));
        let program = env!("CARGO_BIN_EXE_restow");
        let command = command.replacen("restow", program, 1);
        let status = std::process::Command::new("bash")
            .args(["-c", &format!("{command} -q")])
            .current_dir(dir.path())
            .status();
        assert!(status.unwrap().success(), "{command}");
    }
    let few = "--write-rate 1GB --try none --try zstd:1 --try zstd:9 --sample 2M";
    fs::rename(dir.join("it's src"), dir.join("src")).unwrap();
    let (out, _) = ok(&dir, &format!("plan {few} --max-time 1h src"));
    assert!(
        out.contains("recommended: zstd:9 in blocks of 1M: "),
        "{out}"
    );
    assert!(
        out.contains("reason: the smallest that keeps --max-time 60.0 min"),
        "{out}"
    );
    let (out, _) = ok(&dir, &format!("plan {few} --link 1kbit src"));
    assert!(
        out.contains("reason: sent and unpacked first, in "),
        "{out}"
    );
    let (code, out, _) = run_in(
        dir.path(),
        format!("plan {few} --max-size 1K src").split_whitespace(),
    );
    assert_eq!(code, 1);
    assert!(
        out.contains("no candidate keeps --max-size 1.0 kB"),
        "{out}"
    );
}

#[test]
fn pictures_are_one_file_each_and_load_nothing() {
    let dir = TempDir::new();
    mixed(&dir.join("src"));
    ok(
        &dir,
        "plan --try gzip --try lz4 --try zstd:15 --write-rate 1GB --sample 1M --link 10Mbit --svg a.svg --html a.html src",
    );
    let svg = fs::read_to_string(dir.join("a.svg")).unwrap();
    let page = fs::read_to_string(dir.join("a.html")).unwrap();
    assert!(page.len() < 300_000, "{}", page.len());
    for words in ["Reading", "Sending and unpacking", "zstd:15", "MB/s, "] {
        assert!(svg.contains(words) && page.contains(words), "{words}");
    }
    let loads = |text: &str| {
        let text = text.replace("http://www.w3.org/2000/svg", "");
        ["http:", "https:", "src=", "href=", "@import", "url("]
            .iter()
            .any(|it| text.contains(it))
    };
    assert!(!loads(&svg) && !loads(&page));
}

#[test]
fn odd_trees_and_options_are_taken_or_refused() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("empty")).unwrap();
    for container in ["squashfs", "btrfs", "tar", "stream"] {
        let (out, _) = ok(
            &dir,
            &format!("plan --for {container} --write-rate 1GB empty"),
        );
        assert!(out.contains("recommended: "), "{out}");
        assert!(!out.contains("NaN") && !out.contains("inf"), "{out}");
    }
    for (line, words) in [
        (
            "plan --try zstd:99 empty",
            "--try zstd:99: must be a codec, or one of none, lz4, ",
        ),
        (
            "plan --max-time 0 empty",
            "must be a time, as in 90s, 5m or 1h30m",
        ),
        (
            "plan --link fast empty",
            "must be bytes or bits a second, as in 12MB or 100Mbit",
        ),
        ("plan missing", "open missing: no such file or directory"),
    ] {
        let (code, _, errors) = run_in(dir.path(), line.split_whitespace());
        assert_eq!(code, 2, "{line}");
        assert!(errors.contains(words), "{line}: {errors}");
    }
}
