//! The kernel's streams, and one with every command, through the reader and the writer.

use sendstream::{Command, StreamReader, StreamWriter, Version};

use crate::sample::{KERNEL_MADE, every_command, kernel_made, read};

/// What we write for each command that we read is what the kernel wrote: the order of the
/// attributes too.
#[test]
fn the_kernels_streams_are_written_as_they_were_read() {
    for name in KERNEL_MADE {
        let stream = kernel_made(name);
        let mut again = StreamWriter::new(Vec::new(), Version::V1);
        let mut versions = Vec::new();
        read(&stream, |version, record| {
            if versions.is_empty() {
                versions.push(version);
                again = StreamWriter::new(Vec::new(), version);
                again.header().unwrap();
            }
            assert_eq!(record.at, again.position());
            again.command(&record.command).unwrap();
        })
        .unwrap();
        assert!(again.into_inner() == stream, "{name}");
    }
}

#[test]
fn every_command_reads_back() {
    for version in Version::ALL {
        let commands = every_command(version);
        let mut writer = StreamWriter::new(Vec::new(), version);
        writer.header().unwrap();
        for command in &commands {
            writer.command(command).unwrap();
        }
        let stream = writer.into_inner();
        let mut at = 0;
        read(&stream, |_, record| {
            assert_eq!(record.command, commands[at]);
            at += 1;
            assert_eq!(record.number, at as u64);
        })
        .unwrap();
        assert_eq!(at, commands.len());
    }
}

/// A stream that arrives byte by byte, as from a slow pipe, gives the same commands.
#[test]
fn pieces_of_any_size_give_the_same() {
    struct Drip<'a>(&'a [u8], usize);
    impl std::io::Read for Drip<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let len = self.1.min(to.len()).min(self.0.len());
            to[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }
    let stream = kernel_made("zstd.inc.v2c");
    let mut expected = Vec::new();
    read(&stream, |_, record| {
        expected.push((record.at, record.bytes.to_vec()));
    })
    .unwrap();
    for step in [1, 7, 4096] {
        let mut reader = StreamReader::new(Drip(&stream, step));
        assert_eq!(reader.next_stream().unwrap(), Some(Version::V2));
        let mut got = Vec::new();
        while let Some(record) = reader.next_command().unwrap() {
            got.push((record.at, record.bytes.to_vec()));
        }
        assert_eq!(reader.next_stream().unwrap(), None);
        assert!(got == expected, "steps of {step}");
    }
}

/// Streams one after the other, and several subvolumes in one stream.
#[test]
fn an_input_holds_several_streams_and_subvolumes() {
    let both = [kernel_made("inc.v1"), kernel_made("inc.v2")].concat();
    let mut ends = 0;
    let versions = read(&both, |_, record| {
        ends += usize::from(record.command == Command::End);
    });
    assert_eq!(versions.unwrap(), [Version::V1, Version::V2]);
    assert_eq!(ends, 2);

    let several = kernel_made("both.v1");
    let mut names = Vec::new();
    let versions = read(&several, |_, record| {
        if record.command.starts_subvolume() {
            names.push(record.command.path().unwrap().to_vec());
        }
    });
    assert_eq!(versions.unwrap(), [Version::V1]);
    assert_eq!(names, [b"a", b"b"]);
}

#[test]
fn what_a_version_does_not_have_is_not_written() {
    for version in [Version::V1, Version::V2] {
        let later = every_command(Version::V3);
        for command in later.iter().filter(|command| command.since() > version) {
            assert!(command.to_bytes(version).is_err(), "{}", command.name());
        }
    }
    let with_otime = every_command(Version::V2)[19];
    assert!(matches!(with_otime, Command::Utimes { .. }));
    assert!(with_otime.to_bytes(Version::V1).is_err());
    let long = vec![0; 70_000];
    let write = Command::Write {
        path: b"f",
        file_offset: 0,
        data: &long,
    };
    assert!(write.to_bytes(Version::V1).is_err());
    assert_eq!(
        write.to_bytes(Version::V2).unwrap().len(),
        70_000 + 10 + 5 + 12 + 2
    );
}
