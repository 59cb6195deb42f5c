//! Layouts that are damaged or mean harm: an error or a tree, never a panic or a hang.

use codec::Wrapper;
use testkit::{ImageLayout, LAYER_RULES, Rng, TAR_LAYER, cases, layer, run, tool};
use tree::sha256;

use crate::chunked::{Chunked, MEMBERS};
use crate::layouts::packed;
use crate::{limits, open, tree_of};

/// Gives a blob its digest again, everywhere.
fn mend(layout: &mut ImageLayout, path: &str) {
    let digits = |bytes: &[u8]| -> String {
        sha256(bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    };
    let Some(old) = path.strip_prefix("blobs/sha256/") else {
        return;
    };
    let Some(bytes) = layout.files.remove(path) else {
        return;
    };
    let new = digits(&bytes);
    let len = bytes.len();
    layout.files.insert(format!("blobs/sha256/{new}"), bytes);
    // The documents that name it get a new digest, too.
    for _ in 0..10 {
        let named = layout.files.iter().find_map(|(name, bytes)| {
            let text = str::from_utf8(bytes).ok()?;
            Some((name.clone(), text.find(old)?, text.replace(old, &new)))
        });
        let Some((name, at, mut text)) = named else {
            return;
        };
        if let Some(size) = text[at..].find("\"size\":") {
            let from = at + size + 7;
            let digits = text[from..].bytes().take_while(u8::is_ascii_digit).count();
            text.replace_range(from..from + digits, &len.to_string());
        }
        layout.files.insert(name.clone(), text.into_bytes());
        mend(layout, &name);
    }
}

/// Changes some bytes: any, or a number or sign of JSON.
fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..1 + rng.index(4) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.index(bytes.len());
        match rng.index(6) {
            0 => bytes[at] = rng.below(256) as u8,
            1 => bytes[at] ^= 1 << rng.index(8),
            2 => bytes[at] = *b"{}[]\",:0129\\.wh/=".get(rng.index(17)).unwrap(),
            3 => bytes.truncate(at),
            4 => {
                let end = (at + rng.index(200)).min(bytes.len());
                bytes.extend_from_within(at..end);
            }
            _ => {
                let end = (at + rng.index(600)).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
}

/// Says that a process has its limit.
const LIMITED: &str = "RESTOW_TEST_LIMITED";

/// Runs a test in a process of its own with as many bytes of address space, unless this is that
/// process.
fn is_limited(test: &str, bytes: u64) -> bool {
    if std::env::var_os(LIMITED).is_some() {
        return true;
    }
    if let Some(prlimit) = tool("prlimit") {
        let mut command = prlimit.command();
        let command = command.arg(format!("--as={bytes}"));
        let command = command.arg(std::env::current_exe().unwrap());
        run(command
            .args(["--exact", test, "--test-threads=1"])
            .env(LIMITED, "1"));
    }
    false
}

#[test]
fn damaged_layouts_are_read_or_refused() {
    if !is_limited("hostile::damaged_layouts_are_read_or_refused", 40 << 20) {
        return;
    }
    let cases = cases(400);
    let mut rng = Rng::new(36);
    let mut read = 0;
    for case in 0..cases {
        let rule = &LAYER_RULES[rng.index(LAYER_RULES.len())];
        let layers = rule.layers.iter().map(|members| layer(*members));
        let mut layers: Vec<Vec<u8>> = layers.collect();
        let damages_layer = rng.chance(2);
        if damages_layer {
            let at = rng.index(layers.len());
            damage_headers(&mut layers[at], &mut rng);
        }
        let layers = layers.into_iter();
        let mut layout = if rng.chance(4) {
            ImageLayout::docker("app", layers.map(|it| (it.clone(), it)))
        } else if rng.chance(2) {
            let layers = layers.map(|it| (TAR_LAYER, packed(Wrapper::Gzip, &it), it));
            ImageLayout::default().with("latest", "amd64", layers)
        } else {
            ImageLayout::of(layers)
        };
        let paths: Vec<String> = layout.files.keys().cloned().collect();
        let path = &paths[rng.index(paths.len())];
        if let Some(bytes) = layout.files.get_mut(path).filter(|_| !damages_layer) {
            damage(bytes, &mut rng);
            if !rng.chance(4) {
                mend(&mut layout, path);
            }
        }
        let Ok(opened) = open(&layout) else {
            continue;
        };
        for listed in opened.images() {
            let _ = opened.image(listed);
        }
        if opened.images().is_empty() {
            continue;
        }
        if let Ok(tree) = tree_of(&layout) {
            read += 1;
            let usage = tree.layer_usage().unwrap();
            assert!(
                usage.iter().all(|it| it.hidden_bytes <= it.bytes),
                "case {case}"
            );
            let _ = testkit::use_all(&tree, &limits());
        }
    }
    assert!(read > cases / 10, "{read} of {cases} are trees");
}

/// Changes bytes of headers, and gives them the right checksum.
fn damage_headers(archive: &mut [u8], rng: &mut Rng) {
    for header in archive
        .chunks_exact_mut(512)
        .filter(|it| &it[257..262] == b"ustar")
    {
        for _ in 0..rng.index(3) {
            // The name, the type, the target, and all else.
            let at = [rng.index(8), 156, 157 + rng.index(8), rng.index(512)][rng.index(4)];
            header[at] = *b"\0./axdlw0123456\xff".get(rng.index(16)).unwrap();
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
}

#[test]
fn damaged_tables_are_read_or_refused() {
    if !is_limited("hostile::damaged_tables_are_read_or_refused", 256 << 20) {
        return;
    }
    let chunked = Chunked::of(&MEMBERS, 10);
    let table = chunked.table();
    let mut rng = Rng::new(36);
    let (mut read, cases) = (0, cases(300));
    for _ in 0..cases {
        let mut text = table.clone().into_bytes();
        for _ in 0..1 + rng.index(3) {
            let at = rng.index(text.len());
            match rng.index(3) {
                0 => text[at] = *b"{}[]\",:0129".get(rng.index(11)).unwrap(),
                1 => text[at] = rng.below(256) as u8,
                _ => drop(text.drain(at..(at + rng.index(80)).min(text.len()))),
            }
        }
        let text = String::from_utf8_lossy(&text);
        if let Ok(tree) = tree_of(&chunked.image(&text)) {
            read += 1;
            let _ = testkit::use_all(&tree, &limits());
        }
    }
    assert!(read > cases / 2, "{read} of {cases}");
}

#[test]
fn indexes_that_name_each_other_end() {
    let index = "application/vnd.oci.image.index.v1+json";
    let mut layout = ImageLayout::of([layer(["a=1"])]);
    // Each names the one before ten times: 10^8 images.
    let mut text = String::from_utf8(layout.files["index.json"].clone()).unwrap();
    for _ in 0..8 {
        let digest: String = (sha256(text.as_bytes()).iter())
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let item = format!(
            r#"{{"mediaType":"{index}","digest":"sha256:{digest}","size":{}}}"#,
            text.len()
        );
        layout
            .files
            .insert(format!("blobs/sha256/{digest}"), text.into_bytes());
        text = format!(r#"{{"manifests":[{}]}}"#, [&*item; 10].join(","));
        layout
            .files
            .insert("index.json".to_owned(), text.clone().into_bytes());
        match open(&layout) {
            Ok(opened) => assert!(opened.images().len() <= 1000),
            Err(error) => assert!(error.to_string().contains("limit reached"), "{error}"),
        }
    }
}

#[test]
fn paths_in_archives_lead_nowhere_outside() {
    for path in ["/etc/passwd", "../../etc/passwd", "0/../../../etc/passwd"] {
        let mut layout = ImageLayout::docker("app", [(layer(["a=1"]), layer(["a=1"]))]);
        let text = String::from_utf8(layout.files["manifest.json"].clone()).unwrap();
        let text = text.replace("config.json", path);
        layout
            .files
            .insert("manifest.json".to_owned(), text.into_bytes());
        let words = open(&layout).err().unwrap().to_string();
        assert!(words.ends_with("no such file or directory"), "{words}");
    }
}
