//! What commands print with `--json` is JSON, and says what the words say.

use std::ffi::OsStr;
use std::fs;
use std::ops::Index;
use std::os::unix::ffi::OsStrExt;

use testkit::{Rng, TempDir};

use super::btrfs_source::small;
use super::{ok, run_in};

/// A value, as RFC 8259 has it. Numbers are integers, as all of ours but one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Flag(bool),
    Number(i128),
    Fraction(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        let Json::Object(fields) = self else {
            panic!("not an object: {self:?}");
        };
        let found = fields.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    }

    pub(super) fn number(&self) -> u64 {
        match self {
            Json::Number(number) => u64::try_from(*number).expect("it is not negative"),
            other => panic!("not a number: {other:?}"),
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Json::Text(text) => text,
            other => panic!("not a string: {other:?}"),
        }
    }

    pub(super) fn list(&self) -> &[Json] {
        match self {
            Json::List(list) => list,
            other => panic!("not a list: {other:?}"),
        }
    }
}

impl Index<&str> for Json {
    type Output = Json;

    fn index(&self, key: &str) -> &Json {
        self.get(key)
            .unwrap_or_else(|| panic!("{key} is not in {self:?}"))
    }
}

/// The value at the beginning, and what follows it.
fn value(text: &str) -> Option<(Json, &str)> {
    let text = text.trim_start_matches(' ');
    for (word, value) in [
        ("null", Json::Null),
        ("true", Json::Flag(true)),
        ("false", Json::Flag(false)),
    ] {
        if let Some(rest) = text.strip_prefix(word) {
            return Some((value, rest));
        }
    }
    match text.bytes().next()? {
        b'{' => sequence(&text[1..], '}', |text| {
            let (key, rest) = string(text)?;
            let (value, rest) = value(rest.strip_prefix(':')?)?;
            Some(((key, value), rest))
        })
        .map(|(fields, rest)| (Json::Object(fields), rest)),
        b'[' => sequence(&text[1..], ']', value).map(|(list, rest)| (Json::List(list), rest)),
        b'"' => string(text).map(|(text, rest)| (Json::Text(text), rest)),
        _ => {
            let end = text.find([',', ']', '}']).unwrap_or(text.len());
            let (digits, rest) = text.split_at(end);
            let is_octal = digits.trim_start_matches('-').starts_with('0') && digits.len() > 1;
            let whole = digits.parse().ok().filter(|_| !is_octal).map(Json::Number);
            let number = whole.or_else(|| {
                let is_plain = digits.bytes().all(|it| it.is_ascii_digit() || it == b'.');
                digits.parse().ok().filter(|_| is_plain).map(Json::Fraction)
            });
            Some((number?, rest))
        }
    }
}

fn sequence<T>(
    text: &str,
    end: char,
    item: impl Fn(&str) -> Option<(T, &str)>,
) -> Option<(Vec<T>, &str)> {
    let mut items = Vec::new();
    if let Some(rest) = text.strip_prefix(end) {
        return Some((items, rest));
    }
    let mut rest = text;
    loop {
        let (found, after) = item(rest)?;
        items.push(found);
        if let Some(rest) = after.strip_prefix(end) {
            return Some((items, rest));
        }
        rest = after.strip_prefix(',')?;
    }
}

fn string(text: &str) -> Option<(String, &str)> {
    let mut letters = text.strip_prefix('"')?.chars();
    let mut found = String::new();
    loop {
        match letters.next()? {
            '"' => return Some((found, letters.as_str())),
            '\\' => found.push(match letters.next()? {
                'n' => '\n',
                't' => '\t',
                'u' => {
                    let (digits, _) = letters.as_str().split_at_checked(4)?;
                    letters.nth(3);
                    char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
                }
                letter @ ('"' | '\\' | '/') => letter,
                _ => return None,
            }),
            letter if letter < ' ' => return None,
            letter => found.push(letter),
        }
    }
}

/// The objects of the lines of an output.
pub(super) fn objects_of(out: &str) -> Vec<Json> {
    let objects = out.lines().map(|line| match value(line) {
        Some((object @ Json::Object(_), "")) => object,
        _ => panic!("not an object: {line}"),
    });
    objects.collect()
}

/// The only object of an output.
pub(super) fn object_of(out: &str) -> Json {
    let mut objects = objects_of(out);
    assert_eq!(objects.len(), 1, "{out}");
    objects.remove(0)
}

fn tree(dir: &TempDir, name: &str) {
    let at = dir.join(name);
    fs::create_dir_all(at.join("d")).unwrap();
    fs::write(at.join("d/\"quoted\"\n\\"), "1234").unwrap();
    fs::write(at.join(OsStr::from_bytes(b"odd\xff")), name).unwrap();
    std::os::unix::fs::symlink("d", at.join("link")).unwrap();
}

#[test]
fn lists_have_every_name() {
    let dir = TempDir::new();
    tree(&dir, "src");
    let list = objects_of(&ok(&dir, "ls -R --json src").0);
    assert_eq!(list[0]["schema"].text(), "restow.ls/1");
    let paths: Vec<&str> = (list[1..].iter())
        .map(|it| it.get("path").unwrap_or_else(|| &it["path_base64"]).text())
        .collect();
    assert_eq!(paths, ["d", "d/\"quoted\"\n\\", "link", "b2Rk/w=="]);
    assert_eq!(list[2]["size_bytes"].number(), 4);
    assert_eq!(list[3]["target"].text(), "d");
    assert_eq!(list[1]["kind"].text(), "directory");
    assert!(list[1]["mode"].text().len() == 4 && list[1]["mtime"].text().contains('.'));
}

#[test]
fn differences_are_objects_with_the_same_exit_code() {
    let dir = TempDir::new();
    tree(&dir, "a");
    tree(&dir, "b2");
    fs::write(dir.join("b2/d/new"), "").unwrap();
    let (code, out, _) = run_in(
        dir.path(),
        ["diff", "--json", "--ignore", "mtime", "a", "b2"],
    );
    assert_eq!(code, 1);
    let list = objects_of(&out);
    assert_eq!(list[0]["schema"].text(), "restow.diff/1");
    assert_eq!(
        [list[0]["first"].text(), list[0]["second"].text()],
        ["a", "b2"]
    );
    let last = list.last().unwrap();
    assert_eq!(last["differences"].number(), list.len() as u64 - 2);
    let of = |change: &str| {
        let found = list[1..]
            .iter()
            .find(|it| it.get("change").is_some_and(|it| it.text() == change));
        found.unwrap_or_else(|| panic!("no {change} in {out}"))
    };
    assert_eq!(of("only in second")["path"].text(), "d/new");
    let size = of("size");
    assert_eq!(size["path_base64"].text(), "b2Rk/w==");
    assert_eq!(
        [size["first_bytes"].number(), size["second_bytes"].number()],
        [1, 2]
    );
    let (code, out, _) = run_in(dir.path(), ["diff", "--json", "a", "a"]);
    assert_eq!((code, objects_of(&out)[1]["differences"].number()), (0, 0));
}

#[test]
fn images_are_described_and_checked() {
    let dir = TempDir::new();
    small().write_file(&dir.join("i"));
    let info = object_of(&ok(&dir, "info --json i").0);
    assert_eq!(info["schema"].text(), "restow.info/1");
    assert_eq!(info["label"].text(), "small");
    assert_eq!(info["subvolumes"].list().len(), 4);
    assert!(info["usage"]["total"]["disk_usage_bytes"].number() > 0);
    let part = object_of(&ok(&dir, "info --json i --path zstd").0);
    assert_eq!(part["usage"]["total"]["disk_usage_bytes"].number(), 16_384);
    let check = objects_of(&ok(&dir, "check --json i").0);
    assert_eq!(check[0]["schema"].text(), "restow.check/1");
    assert_eq!((check.len(), check[1]["errors"].number()), (2, 0));
    assert_eq!(check[1]["tree_blocks"].number(), 45);

    tree(&dir, "src");
    ok(&dir, "copy -q src i.squashfs");
    let info = object_of(&ok(&dir, "info --json i.squashfs").0);
    assert_eq!(
        (info["format"].text(), info["files"].number()),
        ("squashfs", 2)
    );
    let check = objects_of(&ok(&dir, "check --json i.squashfs").0);
    assert_eq!(check[1]["inodes"].number(), 5);
    damaged(&dir);
    let (code, out, _) = run_in(dir.path(), ["check", "--json", "bad.squashfs"]);
    let list = objects_of(&out);
    assert_eq!(code, 1, "{out}");
    assert_eq!(list[1]["path"].text(), "big");
    assert!(list[1]["error"].text().contains(", in big"));
    assert!(list.last().unwrap()["errors"].number() > 0);
}

/// Makes an image `bad.squashfs` in which the file `big` cannot be read.
fn damaged(dir: &TempDir) {
    fs::create_dir_all(dir.join("damaged")).unwrap();
    let digits = Rng::new(5).bytes(200_000);
    let digits: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(dir.join("damaged/big"), digits).unwrap();
    ok(dir, "copy -q --compress gzip damaged bad.squashfs");
    let mut image = fs::read(dir.join("bad.squashfs")).unwrap();
    // zlib has a checksum.
    image[5000..5064].fill(0xff);
    fs::write(dir.join("bad.squashfs"), image).unwrap();
}

#[test]
fn a_copy_says_what_it_did_and_what_is_lost() {
    let dir = TempDir::new();
    tree(&dir, "src");
    std::os::unix::net::UnixListener::bind(dir.join("src/socket")).unwrap();
    let (code, out, words) = run_in(dir.path(), ["copy", "--json", "src", "o.tar"]);
    assert_eq!((code, &*words), (1, ""));
    let done = object_of(&out);
    assert_eq!(done["schema"].text(), "restow.copy/1");
    assert_eq!(done["destination"].text(), "o.tar");
    assert_eq!(done["read_bytes"].number(), 7);
    let len = fs::metadata(dir.join("o.tar")).unwrap().len();
    assert_eq!(done["written_bytes"].number(), len);
    let lost = done["losses"].list();
    assert_eq!((lost.len(), lost[0]["path"].text()), (1, "socket"));
    assert!(lost[0]["message"].text().ends_with("cannot hold sockets"));
    assert!(done["not_preserved"].list().is_empty());
    let (code, out, words) = run_in(dir.path(), ["copy", "--json", "src", "-"]);
    assert_eq!((code, &*out), (2, ""));
    assert!(words.contains("--json: standard output is DST"), "{words}");
    // Files that cannot be read.
    damaged(&dir);
    let advice = "; --skip-unreadable leaves it out\n";
    for (to, is_advised) in [("o", true), ("o.btrfs", true), ("o.stream", false)] {
        let (code, _, words) = run_in(dir.path(), ["copy", "bad.squashfs", to]);
        assert_eq!((code, words.ends_with(advice)), (2, is_advised), "{words}");
    }
    let args = ["copy", "--json", "--skip-unreadable", "bad.squashfs", "o"];
    let (code, out, words) = run_in(dir.path(), args);
    assert_eq!((code, &*words), (1, ""));
    let done = object_of(&out);
    let losses = done["losses"].list();
    assert_eq!((losses.len(), losses[0]["path"].text()), (1, "big"));
    assert!(
        losses[0]["message"]
            .text()
            .contains("skipped, cannot be read")
    );
}

#[test]
fn streams_are_sent_converted_and_received() {
    let dir = TempDir::new();
    small().write_file(&dir.join("i"));
    let line = |line: &str| {
        let (out, words) = ok(&dir, line);
        assert_eq!(words, "", "{line}");
        object_of(&out)
    };
    let len = |name: &str| fs::metadata(dir.join(name)).unwrap().len();
    let sent = line("send --json --compressed-data -f s i:snap");
    assert_eq!(sent["schema"].text(), "restow.send/1");
    assert_eq!(sent["destination"].text(), "s");
    assert_eq!(sent["subvolumes"].list().len(), 1);
    let bytes = [
        sent["stream_bytes"].number(),
        sent["written_bytes"].number(),
    ];
    assert_eq!(bytes, [len("s"); 2]);
    let whole = fs::read(dir.join("s")).unwrap();
    fs::write(dir.join("s"), &whole[..1000]).unwrap();
    let sent = line("send --json --compressed-data --resume-from s -f s i:snap");
    assert_eq!(sent["stream_bytes"].number(), len("s"));
    assert_eq!(sent["written_bytes"].number(), len("s") - 1000);

    let made = line("stream convert --json --proto 1 --drop fileattr s one");
    assert_eq!(made["schema"].text(), "restow.stream.convert/1");
    let bytes = [made["read_bytes"].number(), made["written_bytes"].number()];
    assert_eq!(bytes, [len("s"), len("one")]);
    assert!(made["left_out"]["creation_times"].number() > 0);
    for refused in ["send --json i:snap", "stream convert --json s -"] {
        let (code, out, words) = run_in(dir.path(), refused.split(' '));
        assert_eq!((code, &*out), (2, ""));
        assert!(words.contains("--json: standard output is the stream"));
    }

    let verified = line("stream verify --json s");
    fs::create_dir(dir.join("to")).unwrap();
    for (form, to) in [("directory", "to"), ("image", "new.btrfs")] {
        let made = line(&format!("receive --json --to {form} -f s {to}"));
        assert_eq!(made["schema"].text(), "restow.receive/1");
        assert_eq!([made["to"].text(), made["destination"].text()], [form, to]);
        assert_eq!(made["subvolumes"], verified["subvolumes"]);
        assert!(made["not_preserved"].list().is_empty());
    }
}

#[test]
fn progress_is_printed_for_programs() {
    let dir = TempDir::new();
    tree(&dir, "src");
    // Without the words for people.
    let (_, words) = ok(&dir, "copy -q --progress json src i.squashfs");
    assert!(words.ends_with("\"is_done\":true}\n"), "{words}");
    assert!(words.lines().all(|line| line.starts_with('{')), "{words}");
    let (_, words) = ok(&dir, "copy --progress json src j.squashfs");
    let lines: Vec<&str> = words.lines().filter(|line| line.starts_with('{')).collect();
    assert!(
        words
            .lines()
            .all(|line| line.starts_with('{') || line.starts_with("restow: "))
    );
    let last = object_of(lines.last().expect("the end is always printed"));
    assert_eq!(last["progress"].text(), "copied");
    assert_eq!(
        [last["bytes"].number(), last["total_bytes"].number()],
        [7, 7]
    );
    assert_eq!(last["is_done"], Json::Flag(true));
    let (code, _, words) = run_in(
        dir.path(),
        ["ls", "--progress", "json", "--no-progress", "src"],
    );
    assert_eq!(code, 2, "{words}");
}
