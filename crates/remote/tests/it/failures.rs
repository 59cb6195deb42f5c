//! Servers and networks that fail, and objects that change.

use std::sync::Arc;

use remote::{RemoteOptions, is_temporary};
use testkit::{Manner, RangeServer, Rng};
use tree::ReadAt;

use crate::{object, open, open_with, refusal};

fn refused(status: u16) -> Manner {
    Manner {
        refusal: Some((status, String::new())),
        ..Manner::default()
    }
}

/// Reads an object of which the server has another version since a request.
fn replaced(since: u64, is_guarding: bool, new_len: usize) -> std::io::Error {
    let new = Arc::new(object(new_len));
    let server = RangeServer::with(object(1_000_000), move |number, _| {
        if number < since {
            return Manner::default();
        }
        Manner {
            object: Some(Arc::clone(&new)),
            etag: Some("\"2\""),
            is_guarding,
            ..Manner::default()
        }
    });
    let file = open(&server);
    let mut bytes = vec![0; 100_000];
    let mut read = (0..10).map(|part| file.read_exact_at(&mut bytes, part * 100_000));
    let error = read.find_map(Result::err).unwrap();
    // No request follows.
    let requests = server.requests();
    assert!(file.read_exact_at(&mut [0; 10], 900_000).is_err());
    assert_eq!(server.requests(), requests);
    error
}

#[test]
fn a_replaced_object_is_an_error() {
    for is_guarding in [true, false] {
        for new_len in [1_000_000, 500_000, 2_000_000] {
            for since in [1, 2] {
                let error = replaced(since, is_guarding, new_len);
                assert!(!is_temporary(&error));
                let words =
                    "the object was replaced while it was read: its ETag was \"1\" and is \"2\"";
                assert_eq!(error.to_string(), words);
            }
        }
    }
}

#[test]
fn a_removed_object_is_an_error() {
    let server = RangeServer::with(object(1_000_000), |number, _| match number {
        0 => Manner::default(),
        _ => refused(404),
    });
    let error = open(&server).read_exact_at(&mut [0], 500_000).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the object was replaced while it was read"
    );
}

#[test]
fn a_time_and_a_size_guard_as_well() {
    let manner = |number: u64| Manner {
        etag: None,
        modified: Some(
            [
                "Fri, 24 May 2013 00:00:00 GMT",
                "Sat, 25 May 2013 00:00:00 GMT",
            ][usize::from(number > 1)],
        ),
        ..Manner::default()
    };
    let server = RangeServer::with(object(1_000_000), move |number, _| manner(number));
    let file = open(&server);
    file.read_exact_at(&mut [0], 300_000).unwrap();
    let error = file.read_exact_at(&mut [0], 900_000).unwrap_err();
    assert!(error.to_string().contains("replaced"), "{error}");
    // Its condition is refused by servers whose own times have more digits.
    let conditions = server.heads().concat();
    assert!(!conditions.contains("unmodified"), "{conditions}");
}

#[test]
fn a_weak_etag_is_compared_and_not_sent() {
    let server = RangeServer::with(object(1_000_000), |number, _| Manner {
        etag: Some(if number < 2 { "W/\"1\"" } else { "W/\"2\"" }),
        ..Manner::default()
    });
    let file = open(&server);
    file.read_exact_at(&mut [0], 300_000).unwrap();
    assert!(file.read_exact_at(&mut [0], 900_000).is_err());
    assert!(server.heads().iter().all(|head| !head.contains("if-match")));
}

#[test]
fn a_server_that_guards_nothing_is_refused() {
    let manner = Manner {
        etag: None,
        ..Manner::default()
    };
    let bytes = object(300_000);
    let server = RangeServer::with(bytes.clone(), move |_, _| manner.clone());
    let words = refusal(&server.url("a"), &RemoteOptions::default());
    assert!(words.contains("neither an ETag nor a time") && words.contains("--unguarded"));
    let file = open_with(&server.url("a"), &RemoteOptions::default().unguarded(true)).unwrap();
    let mut read = vec![0; bytes.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read, bytes);
}

/// Of each answer, a part that differs from one to the next.
#[test]
fn cut_bodies_go_on_where_they_end() {
    let bytes = object(400_000);
    for step in [7, 1_000, 70_000, 250_001] {
        let server = RangeServer::with(bytes.clone(), move |number, _| Manner {
            cut: (!number.is_multiple_of(3)).then_some(number as usize * step % 200_000),
            ..Manner::default()
        });
        let file = open(&server);
        let mut read = vec![0; bytes.len()];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read, bytes);
    }
}

/// Every tenth byte at which the body of every second answer may end.
#[test]
fn a_body_cut_anywhere_gives_no_wrong_byte() {
    let bytes = object(2_000);
    for cut in (0..bytes.len()).step_by(10) {
        let server = RangeServer::with(bytes.clone(), move |number, _| Manner {
            cut: number.is_multiple_of(2).then_some(cut),
            ..Manner::default()
        });
        let mut read = vec![0; bytes.len()];
        open(&server).read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read, bytes, "{cut}");
    }
}

#[test]
fn busy_servers_are_asked_again() {
    let bytes = object(8 << 20);
    let server = RangeServer::with(bytes.clone(), |number, _| {
        let statuses = [429, 500, 502, 503, 504];
        match Rng::new(number).below(4) {
            0 => refused(statuses[number as usize % 5]),
            _ => Manner::default(),
        }
    });
    let file = open(&server);
    let mut read = vec![0; 100_000];
    for at in (0..bytes.len() - read.len()).step_by(read.len()) {
        file.read_exact_at(&mut read, at as u64).unwrap();
        assert_eq!(read, bytes[at..at + read.len()]);
    }
}

#[test]
fn tries_are_bounded() {
    let server = RangeServer::with(object(300_000), |number, _| match number {
        0 => Manner::default(),
        _ => Manner {
            refusal: Some((503, "Retry-After: 0\r\n".to_owned())),
            ..Manner::default()
        },
    });
    let error = open(&server).read_exact_at(&mut [0], 200_000).unwrap_err();
    assert!(is_temporary(&error), "{error}");
    assert!(
        error.to_string().starts_with("status 503 of 127.0.0.1:"),
        "{error}"
    );
    assert_eq!(server.requests(), 7);
}

#[test]
fn what_does_not_pass_is_not_tried_again() {
    for status in [400, 403, 404, 405, 451] {
        let server = RangeServer::with(Vec::new(), move |_, _| refused(status));
        let error = remote::open(&server.url("a"), &RemoteOptions::default()).map(|_| ());
        assert!(!is_temporary(&error.unwrap_err()), "{status}");
        assert_eq!(server.requests(), 1, "{status}");
    }
}
