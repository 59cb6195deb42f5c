//! Against liblzo2, by a small C program that the test compiles.

use crate::{Random, pack, pack_at, unpack};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use testkit::cases;

/// What the C program reads: `c` or `d`, two little-endian lengths (input, room for output), the
/// input. It answers with the status, the length of the output and the output, until its input
/// ends.
const PROGRAM: &str = r#"
#include <lzo/lzo1x.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
int main(void) {
    static char work[LZO1X_999_MEM_COMPRESS];
    int what;
    while ((what = getchar()) != EOF) {
        uint32_t lens[2];
        if (fread(lens, 4, 2, stdin) != 2) return 1;
        unsigned char *in = malloc(lens[0] + 1), *out = malloc(lens[1] + 1);
        if (fread(in, 1, lens[0], stdin) != lens[0]) return 1;
        lzo_uint len = lens[1];
        int32_t status =
            what == 'c' ? lzo1x_1_compress(in, lens[0], out, &len, work) :
            what == 'C' ? lzo1x_999_compress_level(in, lens[0], out, &len, work, 0, 0, 0, 8) :
            lzo1x_decompress_safe(in, lens[0], out, &len, work);
        uint32_t answer[2] = { (uint32_t)status, (uint32_t)len };
        fwrite(answer, 4, 2, stdout);
        fwrite(out, 1, len, stdout);
        fflush(stdout);
        free(in); free(out);
    }
    return 0;
}
"#;

struct Liblzo2 {
    child: std::process::Child,
    dir: std::path::PathBuf,
}

impl Liblzo2 {
    /// `None` if the test has to be skipped.
    fn start(test: &str) -> Option<Self> {
        testkit::tool("/usr/include/lzo/lzo1x.h")?;
        let cc = testkit::tool("cc")?;
        let dir =
            std::env::temp_dir().join(format!("restow-liblzo2-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("lzo2.c"), PROGRAM).unwrap();
        let built = cc
            .command()
            .args(["-O1", "-o", "lzo2", "lzo2.c", "-llzo2"])
            .current_dir(&dir)
            .status()
            .expect("a C compiler is needed");
        assert!(
            built.success(),
            "liblzo2 and its headers are needed (Debian: liblzo2-dev)"
        );
        let child = Command::new(dir.join("lzo2"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Some(Liblzo2 { child, dir })
    }

    /// Status and output.
    fn ask(&mut self, what: u8, input: &[u8], room: usize) -> (i32, Vec<u8>) {
        let to = self.child.stdin.as_mut().unwrap();
        to.write_all(&[what]).unwrap();
        to.write_all(&(input.len() as u32).to_le_bytes()).unwrap();
        to.write_all(&(room as u32).to_le_bytes()).unwrap();
        to.write_all(input).unwrap();
        to.flush().unwrap();
        let from = self.child.stdout.as_mut().unwrap();
        let mut answer = [0; 8];
        from.read_exact(&mut answer).unwrap();
        let status = i32::from_le_bytes(answer[..4].try_into().unwrap());
        let len = u32::from_le_bytes(answer[4..].try_into().unwrap());
        let mut output = vec![0; len as usize];
        from.read_exact(&mut output).unwrap();
        (status, output)
    }
}

impl Drop for Liblzo2 {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn liblzo2_reads_ours_and_we_read_its() {
    let Some(mut c) = Liblzo2::start("both") else {
        return;
    };
    let mut random = Random(7);
    for case in 0..cases(300) {
        let content = random.content(if case % 10 == 0 { 200_000 } else { 9000 });
        for level in [1, 2 + case as u8 % 8] {
            let (status, back) = c.ask(b'd', &pack_at(level, &content), content.len());
            assert!(
                status == 0 && back == content,
                "case {case}, level {level}: liblzo2 says {status}"
            );
        }
        for what in *b"cC" {
            let room = lzo::compressed_len_max(content.len()) + content.len() / 16 + 64;
            let (status, packed) = c.ask(what, &content, room);
            assert_eq!(status, 0);
            assert_eq!(
                unpack(&packed, content.len()).as_deref(),
                Ok(&content[..]),
                "case {case}"
            );
        }
    }
}

/// Whether a damaged stream is whole, and what it holds, is liblzo2's judgement too.
#[test]
fn damaged_streams_are_judged_as_by_liblzo2() {
    let Some(mut c) = Liblzo2::start("damaged") else {
        return;
    };
    let mut random = Random(77);
    for case in 0..cases(3000) {
        let mut packed = pack(&random.content(300));
        for _ in 0..1 + random.below(3) {
            let at = random.below(packed.len());
            packed[at] = random.below(256) as u8;
        }
        let room = random.below(2000);
        let (status, content) = c.ask(b'd', &packed, room);
        match unpack(&packed, room) {
            Ok(ours) => assert!(
                status == 0 && ours == content,
                "case {case}: {status} {packed:?}"
            ),
            // Linux wants the end mark's length to be the usual three; liblzo2 takes any. We side
            // with Linux.
            Err(lzo::Error::EndMark) => {}
            Err(error) => assert_ne!(status, 0, "case {case}: {error}, {packed:?}"),
        }
    }
}

/// Level 8 is as good as the level that mksquashfs uses, and level 9 is better, on content that is
/// like program text.
#[test]
fn sizes_are_those_of_lzo1x_999() {
    let Some(mut c) = Liblzo2::start("sizes") else {
        return;
    };
    let mut random = Random(999);
    let [mut eight, mut nine, mut theirs] = [0; 3];
    for _ in 0..8 {
        let content = sentences(&mut random, 128 << 10);
        let room = lzo::compressed_len_max(content.len()) + content.len() / 16 + 64;
        theirs += c.ask(b'C', &content, room).1.len();
        eight += pack_at(8, &content).len();
        nine += pack_at(9, &content).len();
    }
    assert!(eight * 100 <= theirs * 101, "{eight} to {theirs}");
    assert!(nine * 100 <= theirs * 99, "{nine} to {theirs}");
}

/// Words of a small vocabulary, of which few are frequent, with phrases that return.
fn sentences(random: &mut Random, len: usize) -> Vec<u8> {
    let words: Vec<Vec<u8>> = (0..2000)
        .map(|_| {
            let letters = 2 + random.below(9);
            (0..letters)
                .map(|_| b"etaoinshrdlucmfwypvbgk"[random.below(22)])
                .collect()
        })
        .collect();
    let mut text: Vec<u8> = Vec::with_capacity(len + 100);
    while text.len() < len {
        if text.len() > 1000 && random.below(12) == 0 {
            let from = random.below(text.len() - 100);
            let phrase = text[from..from + 10 + random.below(60)].to_vec();
            text.extend(phrase);
        } else {
            let most = 1 + random.below(2000);
            let rank = random.below(most);
            text.extend(&words[rank]);
            text.push(b' ');
        }
    }
    text.truncate(len);
    text
}
