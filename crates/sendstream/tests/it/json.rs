//! Streams as JSON lines, and built from them again.

use sendstream::{StreamReader, Version, json};

use crate::sample::{KERNEL_MADE, every_command, kernel_made, stream, words};

fn lines(input: &[u8], with_data: bool) -> String {
    let mut reader = StreamReader::new(input);
    let mut lines = String::new();
    loop {
        let at = reader.position();
        let Some(version) = reader.next_stream().unwrap() else {
            return lines;
        };
        lines += &json::header(version, at);
        lines.push('\n');
        while let Some(record) = reader.next_command().unwrap() {
            lines += &json::command(&record, with_data);
            lines.push('\n');
        }
    }
}

#[test]
fn the_stream_is_built_again_from_its_lines() {
    let mut inputs: Vec<_> = KERNEL_MADE.map(kernel_made).into();
    inputs.extend(Version::ALL.map(|version| stream(version, &every_command(version))));
    inputs.push([kernel_made("inc.v1"), kernel_made("inc.v2")].concat());
    for input in inputs {
        let lines = lines(&input, true);
        let mut again = Vec::new();
        json::build(lines.as_bytes(), &mut again).unwrap();
        assert!(again == input);
    }
}

#[test]
fn a_line_is_an_object_with_the_names_of_linux() {
    let stream = stream(Version::V2, &every_command(Version::V2)[..3]);
    let expected = "\
{\"at\":0,\"stream\":2}
{\"at\":17,\"number\":1,\"command\":\"subvol\",\"path\":\"full\",\"uuid\":\"01010101-0101-0101-0101-010101010101\",\"ctransid\":7}
";
    let mut reader = StreamReader::new(&stream[..]);
    let version = reader.next_stream().unwrap().unwrap();
    let mut got = json::header(version, 0) + "\n";
    got += &json::command(&reader.next_command().unwrap().unwrap(), true);
    got += "\n";
    assert_eq!(got, expected);
    reader.next_command().unwrap().unwrap();
    let odd = reader.next_command().unwrap().unwrap();
    let line = json::command(&odd, true);
    assert!(
        line.contains("\"path_base64\":\"ZGlyL25h/21lCg==\",\"ino\":257}"),
        "{line}"
    );
}

#[test]
fn lines_that_are_no_stream_are_refused() {
    let header = "{\"stream\":2}\n";
    let bad = [
        ("", "{\"command\":\"end\"}", "before the header"),
        ("", "{\"stream\":4}", "no such version"),
        (header, "x", "not a JSON object"),
        (header, "{}", "neither the header"),
        (header, "{\"command\":\"none\"}", "no such command"),
        (
            header,
            "{\"command\":\"unlink\",\"file\":\"a\"}",
            "no such attribute",
        ),
        (
            header,
            "{\"command\":\"unlink\",\"path\":1}",
            "impossible value",
        ),
        (header, "{\"command\":\"unlink\"}", "attribute is missing"),
        (
            header,
            "{\"command\":\"unlink\",\"path_base64\":\"!\"}",
            "impossible value",
        ),
        (
            header,
            "{\"command\":\"write\",\"path\":\"a\",\"file_offset\":0,\"data_bytes\":1}",
            "left out of the dump",
        ),
        (header, "{\"command\":\"enable_verity\"}", "later version"),
        // Rust's parsers of numbers accept a sign.
        (
            header,
            "{\"command\":\"subvol\",\"path\":\"a\",\"uuid\":\"+1010101-0101-0101-0101-010101010101\"}",
            "impossible value",
        ),
        (
            header,
            "{\"command\":\"utimes\",\"path\":\"a\",\"atime\":\"1.+00000001\"}",
            "impossible value",
        ),
    ];
    for (before, line, expected) in bad {
        let input = format!("{before}{line}\n");
        let found = words(json::build(input.as_bytes(), Vec::new()));
        assert!(found.contains(expected), "{line}: {found}");
    }
}
