//! Servers that answer something else.

use std::io::{Read, Write};
use std::net::TcpListener;

use remote::RemoteOptions;
use testkit::{Manner, RangeServer, Rng, cases};
use tree::ReadAt;

use crate::{object, open, refusal};

/// A server that gives the same bytes to every request.
fn parrot(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(8) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&answer);
        }
    });
    format!("http://{address}/a")
}

#[test]
fn answers_with_other_bytes_are_refused() {
    for (lines, words) in [
        (
            "206 -\r\nContent-Range: bytes 5-9/100\r\nContent-Length: 5",
            "other bytes",
        ),
        ("206 -\r\nContent-Length: 5", "other bytes"),
        (
            "206 -\r\nContent-Range: bytes 0-4/*\r\nContent-Length: 5",
            "other bytes",
        ),
        (
            "206 -\r\nContent-Range: bytes 0-4/3\r\nContent-Length: 5",
            "other bytes",
        ),
        (
            "206 -\r\nContent-Range: bytes 0-4/99999999999999999999\r\nContent-Length: 5",
            "other bytes",
        ),
        (
            "206 -\r\nContent-Range: bytes 0-999999/9999999\r\nContent-Length: 5",
            "other bytes",
        ),
        ("204 -", "status 204"),
        ("416 -\r\nContent-Length: 0", "no beginning"),
        ("200 -\r\nConnection: close", "how many bytes"),
        ("999 -\r\nContent-Length: 0", "status 999"),
    ] {
        let answer = format!("HTTP/1.1 {lines}\r\nETag: \"1\"\r\n\r\nhello");
        let found = refusal(&parrot(answer.into_bytes()), &RemoteOptions::default());
        assert!(found.contains(words), "{lines}: {found}");
    }
}

#[test]
fn changed_answers_are_errors_or_right() {
    let answer = b"HTTP/1.1 206 -\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\nETag: \"1\"\r\n\r\nhello";
    let mut rng = Rng::new(7);
    for _ in 0..cases(12) {
        let mut answer = answer.to_vec();
        let head = answer.len() - 9;
        for _ in 0..=rng.below(2) {
            let at = rng.below(head as u64) as usize;
            answer[at] = rng.next_u64() as u8;
        }
        // Neither a panic nor a hang; which of them are errors, HTTP decides.
        if let Ok(remote::Opened::File(file)) =
            remote::open(&parrot(answer), &RemoteOptions::default())
        {
            let mut bytes = vec![0; file.size().unwrap().min(100) as usize];
            let _ = file.read_exact_at(&mut bytes, 0);
        }
    }
}

#[test]
fn redirections_are_followed_without_secrets() {
    let bytes = object(300_000);
    let target = RangeServer::new(bytes.clone());
    let to = target.url("there?sig=1");
    let server = RangeServer::with(Vec::new(), move |_, _| Manner {
        refusal: Some((302, format!("Location: {to}\r\n"))),
        ..Manner::default()
    });
    let address = server.url("a").replace("http://", "http://user:password@");
    let file = crate::open_with(&address, &RemoteOptions::default()).unwrap();
    let mut read = vec![0; bytes.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read, bytes);
    assert!(server.heads()[0].contains("authorization: basic "));
    assert!(
        target
            .heads()
            .iter()
            .all(|head| !head.contains("authorization"))
    );
    // The place is remembered.
    assert_eq!(server.requests(), 1);
}

#[test]
fn redirections_end() {
    let server = RangeServer::with(Vec::new(), |_, _| Manner {
        refusal: Some((302, "Location: /b\r\n".to_owned())),
        ..Manner::default()
    });
    let words = refusal(&server.url("a"), &RemoteOptions::default());
    assert!(words.ends_with("redirects more than 5 times"), "{words}");
    let server = RangeServer::with(Vec::new(), |_, _| Manner {
        refusal: Some((302, "Location: http://example.org/b?secret\r\n".to_owned())),
        ..Manner::default()
    });
    let words = refusal(&server.url("a"), &RemoteOptions::default());
    assert!(
        words.contains("http://example.org/b?... is not encrypted"),
        "{words}"
    );
}

/// A place that redirections lead to may be gone after minutes.
#[test]
fn a_place_that_is_gone_is_asked_for_again() {
    let bytes = object(1_000_000);
    let target = RangeServer::with(bytes.clone(), |number, _| Manner {
        refusal: (number % 2 == 1).then(|| (403, String::new())),
        ..Manner::default()
    });
    let to = target.url("there");
    let server = RangeServer::with(Vec::new(), move |_, _| Manner {
        refusal: Some((307, format!("Location: {to}\r\n"))),
        ..Manner::default()
    });
    let file = open(&server);
    let mut read = vec![0; bytes.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read, bytes);
    assert!(server.requests() > 1);
}
