//! How many requests and bytes reading takes.

use std::ops::Range;

use remote::{Opened, RemoteOptions};
use testkit::{Manner, RangeServer, Rng, cases};
use tree::ReadAt;

use crate::{object, open, open_with, refusal};

const MIB: usize = 1 << 20;

fn read(file: &impl ReadAt, range: Range<usize>) -> Vec<u8> {
    let mut bytes = vec![0; range.len()];
    file.read_exact_at(&mut bytes, range.start as u64).unwrap();
    bytes
}

#[test]
fn all_bytes_in_order_are_asked_for_once() {
    let bytes = object(40 * MIB + 5);
    let server = RangeServer::new(bytes.clone());
    let file = open(&server);
    assert_eq!(file.size().unwrap(), bytes.len() as u64);
    for at in (0..bytes.len()).step_by(100_000) {
        let range = at..bytes.len().min(at + 100_000);
        assert_eq!(read(&file, range.clone()), bytes[range]);
    }
    assert_eq!(server.bytes(), bytes.len() as u64);
    assert!(server.requests() <= 25, "{}", server.requests());
}

#[test]
fn reading_in_order_by_several_threads_asks_for_no_byte_twice() {
    let bytes = object(20 * MIB);
    let server = RangeServer::new(bytes.clone());
    let file = open(&server);
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(128 << 10, std::sync::atomic::Ordering::Relaxed);
                    if at >= bytes.len() {
                        break;
                    }
                    let range = at..bytes.len().min(at + (128 << 10));
                    assert_eq!(read(&file, range.clone()), bytes[range]);
                }
            });
        }
    });
    assert_eq!(server.bytes(), bytes.len() as u64);
}

/// With a cache that the blocks read ahead fill in part.
#[test]
fn what_was_read_ahead_stays_until_it_is_read() {
    let bytes = object(24 * MIB);
    let server = RangeServer::new(bytes.clone());
    let options = RemoteOptions::default().cache_bytes(4 * MIB);
    let file = open_with(&server.url("object"), &options).unwrap();
    for at in (0..bytes.len()).step_by(MIB) {
        assert_eq!(read(&file, at..at + MIB), bytes[at..at + MIB]);
    }
    assert_eq!(server.bytes(), bytes.len() as u64);
}

#[test]
fn few_bytes_here_and_there_take_a_block_each() {
    let bytes = object(40 * MIB);
    let server = RangeServer::new(bytes.clone());
    let options = RemoteOptions::default().cache_bytes(MIB);
    let file = open_with(&server.url("object"), &options).unwrap();
    let mut rng = Rng::new(1);
    let begun = (server.requests(), server.bytes());
    let count = cases(200);
    for _ in 0..count {
        let at = rng.below(bytes.len() as u64 - 10) as usize;
        assert_eq!(read(&file, at..at + 10), bytes[at..at + 10]);
    }
    // A block beside one that was read is taken for reading in order.
    assert!(server.requests() - begun.0 <= 2 * count as u64);
    assert!(server.bytes() - begun.1 <= 2 * (count * (64 << 10)) as u64);
}

#[test]
fn near_ranges_are_fetched_together() {
    let bytes = object(20 * MIB);
    let server = RangeServer::new(bytes.clone());
    let file = open(&server);
    let at = |mib: f64| (mib * MIB as f64) as u64;
    file.will_read(&[
        at(5.0)..at(5.1),
        at(5.2)..at(5.3),
        at(10.0)..at(11.0),
        at(3.0)..at(3.0),
    ]);
    assert_eq!(server.requests(), 3);
    for range in [at(5.0)..at(5.1), at(5.2)..at(5.3), at(10.0)..at(11.0)] {
        let range = range.start as usize..range.end as usize;
        assert_eq!(read(&file, range.clone()), bytes[range]);
    }
    assert_eq!(server.requests(), 3);
    // Beyond the end, and more than the cache holds.
    file.will_read(&[at(19.0)..at(500.0), u64::MAX - 5..u64::MAX]);
    assert_eq!(read(&file, 20 * MIB - 5..20 * MIB), bytes[20 * MIB - 5..]);
}

/// Of a file alone, and of files one behind the other.
#[test]
fn nothing_is_read_ahead_behind_a_file_that_is_read_alone() {
    let bytes = object(24 * MIB);
    let server = RangeServer::new(bytes.clone());
    let file = open(&server);
    let begun = (server.requests(), server.bytes());
    let read_within = |at: usize, end: usize| {
        file.will_read_within(at as u64..end as u64);
        for at in (at..end).step_by(50_000) {
            let range = at..end.min(at + 50_000);
            assert_eq!(read(&file, range.clone()), bytes[range]);
        }
    };
    let block = 64 << 10;
    read_within(5 * block + 9, 100 * block + 9);
    assert_eq!(server.bytes() - begun.1, 96 * block as u64);
    assert!(server.requests() - begun.0 <= 12, "{}", server.requests());
    // As many requests as without files.
    let begun = server.requests();
    for number in 0..20 {
        let at = 101 * block + number * (block + 10);
        read_within(at, at + block + 10);
    }
    assert!(server.requests() - begun <= 3, "{}", server.requests());
}

#[test]
fn ends_are_those_of_the_object() {
    for len in [0, 1, 65_536, 65_537, 131_072, 131_073, 200_000] {
        let bytes = object(len);
        let server = RangeServer::new(bytes.clone());
        let file = open(&server);
        assert_eq!(file.size().unwrap(), len as u64);
        assert_eq!(read(&file, 0..len), bytes);
        let error = file
            .read_exact_at(&mut [0; 2], (len as u64).saturating_sub(1))
            .unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        assert!(file.read_exact_at(&mut [0], u64::MAX).is_err());
    }
}

#[test]
fn a_server_without_ranges_is_read_in_order() {
    let bytes = object(300_000);
    let manner = Manner {
        has_ranges: false,
        ..Manner::default()
    };
    let server = RangeServer::with(bytes.clone(), move |_, _| manner.clone());
    match remote::open(&server.url("object"), &RemoteOptions::default()).unwrap() {
        Opened::Stream(mut stream) => {
            let mut read = Vec::new();
            stream.read_to_end(&mut read).unwrap();
            assert_eq!(read, bytes);
        }
        _ => panic!("ranges of a server that ignores them"),
    }
    // Cut, it is an error, not an end.
    let manner = Manner {
        has_ranges: false,
        cut: Some(100_000),
        ..Manner::default()
    };
    let server = RangeServer::with(bytes, move |_, _| manner.clone());
    match remote::open(&server.url("object"), &RemoteOptions::default()).unwrap() {
        Opened::Stream(mut stream) => {
            let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
            assert!(remote::is_temporary(&error), "{error}");
        }
        _ => panic!("ranges of a server that ignores them"),
    }
}

#[test]
fn what_is_not_encrypted_is_read_from_this_machine_alone() {
    let options = RemoteOptions::default();
    let words = refusal("http://example.org/a?sig=secret", &options);
    assert!(
        words.contains("http://example.org/a?... is not encrypted"),
        "{words}"
    );
    let words = refusal("ftp://example.org/a", &options);
    assert!(words.contains("neither https:// nor http://"), "{words}");
}
