//! Objects that are written, in the order of their parts, against failures and other writers.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use remote::{RemoteOptions, UploadOptions, create, is_current, is_temporary};
use testkit::{ObjectServer, Rng, StoreManner, cases};
use tree::{Error, Output, ReadAt};

use crate::credentials::options;
use crate::object;

const MIB: usize = 1 << 20;
const ADDRESS: &str = "s3://b/dir/a%20name";
const GOOGLE: &str = "gs://b/dir/a%20name";
const AZURE: &str = "az://b/dir/a%20name";
const STORES: [&str; 3] = [ADDRESS, GOOGLE, AZURE];
const PATH: &str = "/b/dir/a%20name";

fn obedient() -> ObjectServer {
    ObjectServer::with(|_, _| StoreManner::Obeys)
}

fn to(server: &ObjectServer) -> RemoteOptions {
    let key = [
        ("AWS_ACCESS_KEY_ID", "me"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    let endpoint = server.endpoint();
    let places = [
        "AWS_ENDPOINT_URL",
        "STORAGE_EMULATOR_HOST",
        "AZURE_STORAGE_ENDPOINT",
    ];
    let [s3, google, azure] = places.map(|name| (name, &*endpoint));
    let account = ("AZURE_STORAGE_ACCOUNT", "me");
    let azure_key = ("AZURE_STORAGE_KEY", "c2VjcmV0");
    options(&[key[0], key[1], s3, google, azure, account, azure_key])
}

fn begin(server: &ObjectServer, upload: &UploadOptions) -> Output {
    begin_at(ADDRESS, server, upload)
}

fn begin_at(address: &str, server: &ObjectServer, upload: &UploadOptions) -> Output {
    create(address, &to(server), upload).unwrap()
}

/// Writes all bytes behind the first hundred, then these, as a format with a superblock does.
fn write(output: &mut Output, bytes: &[u8]) -> std::io::Result<()> {
    let mut at = 100;
    for part in bytes[100..].chunks(700_000) {
        output.write_all_at(part, at)?;
        at += part.len() as u64;
    }
    output.write_all_at(&bytes[..100], 0)
}

fn is_existing(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == std::io::ErrorKind::AlreadyExists)
}

#[test]
fn an_object_appears_as_a_whole() {
    let server = obedient();
    for (store, len, parts) in [
        (ADDRESS, 100, &[][..]),
        (ADDRESS, 8 * MIB, &[]),
        (ADDRESS, 20 * MIB + 5, &[1, 2, 3]),
        (ADDRESS, 16 * MIB, &[1, 2]),
        (GOOGLE, 100, &[]),
        (GOOGLE, 20 * MIB + 5, &[1, 2, 3]),
        (AZURE, 100, &[]),
        (AZURE, 20 * MIB + 5, &[1, 2, 3]),
    ] {
        let bytes = object(len);
        let upload = UploadOptions::default().overwrite(true).read_back(true);
        let before = server.object(PATH);
        let mut output = begin_at(store, &server, &upload);
        write(&mut output, &bytes).unwrap();
        output.set_len(bytes.len() as u64).unwrap();
        assert_eq!(server.object(PATH), before);
        output.commit().unwrap();
        assert_eq!(*server.object(PATH).unwrap(), bytes);
        let mut sent = server.sent_parts();
        sent.sort_unstable();
        assert_eq!(sent, parts);
    }
    // Appended, with a hole at the end.
    let mut output = begin(&server, &UploadOptions::default().overwrite(true));
    output.write_all(&[7; 9 * MIB]).unwrap();
    output.set_len(30 * MIB as u64).unwrap();
    output.commit().unwrap();
    let made = server.object(PATH).unwrap();
    assert!(made.len() == 30 * MIB && made[..9 * MIB].iter().all(|&byte| byte == 7));
    assert!(made[9 * MIB..].iter().all(|&byte| byte == 0));
    assert_eq!(server.open_uploads(), 0);
}

#[test]
fn bytes_that_were_sent_cannot_change_and_the_last_ones_are_read_back() {
    let server = obedient();
    let mut output = begin(&server, &UploadOptions::default());
    let bytes = object(18 * MIB);
    write(&mut output, &bytes[..17 * MIB]).unwrap();
    assert!(!output.keep_from(17 * MIB as u64));
    output
        .write_all_at(&bytes[17 * MIB..], 17 * MIB as u64)
        .unwrap();
    let reader = output.reader().unwrap();
    for at in [0, 8 * MIB - 10, 17 * MIB, 18 * MIB - 10] {
        let mut read = [0; 10];
        reader.read_exact_at(&mut read, at as u64).unwrap();
        assert_eq!(read, bytes[at..at + 10], "{at}");
    }
    let far = reader
        .read_exact_at(&mut [0; 10], 10 * MIB as u64)
        .unwrap_err();
    assert!(far.to_string().contains("cannot be read back"), "{far}");
    let late = output.write_all_at(b"x", 9 * MIB as u64).unwrap_err();
    assert!(late.to_string().contains("was sent already"), "{late}");
    assert!(output.set_len(9 * MIB as u64).is_err());
    // Bytes of the part that is open can.
    output.write_all_at(b"x", 17 * MIB as u64 + 5).unwrap();
    drop((reader, output));
    assert_eq!((server.object(PATH), server.open_uploads()), (None, 0));
}

/// As btrfs writes two copies of its trees, between data with gaps and bytes that come last.
#[test]
fn two_copies_are_written_side_by_side() {
    let server = obedient();
    for (begin_at, copy, held) in [(5, 1, 3), (12, 20, 9), (17, 4, 25), (3, 8, 70)] {
        let (begin_at, copy, held) = (begin_at * MIB + 12_345, copy * MIB + 77, held * MIB);
        let end = begin_at + 2 * copy + MIB;
        let mut bytes = object(end);
        bytes[begin_at - 9000..begin_at].fill(0);
        bytes[begin_at + copy - 1000..begin_at + copy].fill(0);
        bytes[begin_at + 2 * copy..].fill(0);
        bytes.copy_within(begin_at..begin_at + copy, begin_at + copy);
        let held = held.min(end)..(held + 4096).min(end);
        let upload = UploadOptions::default().overwrite(true);
        let output = begin(&server, &upload);
        output.hold(held.start as u64, 4096);
        let put = |from: usize, to: usize| {
            // All but the held bytes.
            for (from, to) in [(from, to.min(held.start)), (from.max(held.end), to)] {
                if from < to {
                    output.write_all_at(&bytes[from..to], from as u64).unwrap();
                }
            }
        };
        for at in (4096..begin_at - 9000).step_by(MIB) {
            put(at, (at + MIB).min(begin_at - 9000));
        }
        output.set_len(end as u64).unwrap();
        for at in (0..copy - 1000).step_by(MIB) {
            let to = (at + MIB).min(copy - 1000);
            put(begin_at + at, begin_at + to);
            put(begin_at + copy + at, begin_at + copy + to);
        }
        output
            .write_all_at(&bytes[held.clone()], held.start as u64)
            .unwrap();
        output.write_all_at(&bytes[..4096], 0).unwrap();
        output.commit().unwrap();
        assert!(*server.object(PATH).unwrap() == bytes, "{begin_at} {copy}");
        let mut sent = server.sent_parts();
        sent.sort_unstable();
        assert!(
            sent.iter().copied().eq(1..=end.div_ceil(8 * MIB) as u32),
            "{sent:?}"
        );
    }
}

#[test]
fn of_two_writers_one_succeeds() {
    let server = obedient();
    let (first, second) = (object(9 * MIB), object(9 * MIB + 1));
    for (store, bytes) in STORES
        .map(|store| [(store, &first[..200]), (store, &first)])
        .concat()
    {
        let resume = UploadOptions::default().resume(true);
        let mut outputs = [0, 1].map(|_| begin_at(store, &server, &resume));
        write(&mut outputs[0], bytes).unwrap();
        write(&mut outputs[1], &second).unwrap();
        let [one, other] = outputs;
        one.commit().unwrap();
        assert!(is_existing(&other.commit().unwrap_err()));
        assert_eq!(*server.object(PATH).unwrap(), bytes);
        // A third one does not begin, unless it may replace the object.
        let refused = create(store, &to(&server), &UploadOptions::default()).unwrap_err();
        assert!(is_existing(&refused));
        let mut output = begin_at(store, &server, &UploadOptions::default().overwrite(true));
        write(&mut output, &second).unwrap();
        output.commit().unwrap();
        assert_eq!(*server.object(PATH).unwrap(), second);
        assert_eq!(server.open_uploads(), 0);
        server.remove(PATH);
    }
}

#[test]
fn an_upload_is_continued_with_the_parts_that_the_store_lacks() {
    for store in STORES {
        continue_uploads(store);
    }
}

fn continue_uploads(store: &str) {
    let server = obedient();
    let bytes = object(44 * MIB);
    let begin = |server, upload: &UploadOptions| begin_at(store, server, upload);
    let cut = |bytes: &[u8], upload: &UploadOptions| {
        let mut output = begin(&server, upload);
        output.write_all(&bytes[..30 * MIB]).unwrap();
        drop(output);
        assert_eq!((server.object(PATH), server.open_uploads()), (None, 1));
        server.sent_parts()
    };
    let again = |bytes: &[u8], upload: &UploadOptions| {
        let mut output = begin(&server, upload);
        write(&mut output, bytes).unwrap();
        output.commit().unwrap();
        assert_eq!(*server.object(PATH).unwrap(), bytes);
        server.remove(PATH);
        let mut sent = server.sent_parts();
        sent.sort_unstable();
        sent
    };
    let resume = UploadOptions::default().resume(true);
    cut(&bytes, &resume);
    assert_eq!(again(&bytes, &resume), [1, 4, 5, 6]);
    // Parts that are not the same are sent again.
    cut(&bytes, &resume);
    let mut others = bytes.clone();
    others[20 * MIB] ^= 1;
    assert_eq!(again(&others, &resume), [1, 3, 4, 5, 6]);
    assert_eq!(server.open_uploads(), 0);
    if store == GOOGLE {
        return;
    }
    // The upload says of which source it is, because it keeps that for the object.
    let noted = |note: &str| resume.clone().note(Some(note.to_owned()));
    cut(&bytes, &noted("one"));
    assert_eq!(again(&bytes, &noted("one")), [1, 4, 5, 6]);
    cut(&bytes, &noted("one"));
    let mut output = begin(&server, &noted("two"));
    write(&mut output, &bytes).unwrap();
    output.commit().unwrap();
    let is = |note| is_current(store, &to(&server), note).unwrap();
    assert!(is("two") && !is("one"));
    // Azure drops the other blocks of a name with the list of a blob.
    assert_eq!(server.open_uploads(), usize::from(store != AZURE));
}

/// An unfinished upload that is continued can be that of a writer at work.
#[test]
fn two_writers_can_have_one_upload() {
    let (first, second) = (object(18 * MIB), object(18 * MIB + 1));
    let server = obedient();
    let both = |bytes: &[u8]| {
        let mut outputs = [0, 1].map(|_| begin(&server, &UploadOptions::default().resume(true)));
        // Threads send parts: that of the first writer has to be there before the other's.
        server.sent_parts();
        write(&mut outputs[0], &first).unwrap();
        server.wait_for_a_part();
        server.sent_parts();
        write(&mut outputs[1], bytes).unwrap();
        if bytes != first {
            server.wait_for_a_part();
        }
        assert_eq!(server.open_uploads(), 1);
        outputs
    };
    let is_for_a_while = |error| matches!(error, Error::Io(error) if is_temporary(&error));
    let [one, other] = both(&first);
    one.commit().unwrap();
    assert!(is_existing(&other.commit().unwrap_err()));
    assert_eq!(*server.object(PATH).unwrap(), first);
    server.remove(PATH);
    // If the object is gone again, another try helps.
    let [one, other] = both(&first);
    one.commit().unwrap();
    server.remove(PATH);
    assert!(is_for_a_while(other.commit().unwrap_err()));
    // Parts of both are never one object.
    let [one, other] = both(&second);
    assert!(is_for_a_while(one.commit().unwrap_err()));
    drop(other);
    let mut again = begin(&server, &UploadOptions::default().resume(true));
    write(&mut again, &first).unwrap();
    again.commit().unwrap();
    assert_eq!(*server.object(PATH).unwrap(), first);
}

#[test]
fn a_note_says_what_an_object_was_made_from() {
    let server = obedient();
    for (store, len) in STORES
        .map(|store| [(store, 200), (store, 9 * MIB)])
        .concat()
    {
        assert!(!is_current(store, &to(&server), "note").unwrap());
        let upload = UploadOptions::default()
            .overwrite(true)
            .note(Some("note".into()));
        let mut output = begin_at(store, &server, &upload);
        write(&mut output, &object(len)).unwrap();
        output.commit().unwrap();
        assert!(is_current(store, &to(&server), "note").unwrap());
        assert!(!is_current(store, &to(&server), "not").unwrap());
        server.remove(PATH);
    }
}

/// The old object is still there then, which is no reason.
#[test]
fn a_refused_part_of_a_newer_object_is_the_reason_that_is_given() {
    let server = ObjectServer::with(|_, line| {
        if line.contains("partNumber=2") {
            StoreManner::Refuses(400)
        } else {
            StoreManner::Obeys
        }
    });
    for (note, len) in [("old", 200), ("new", 18 * MIB)] {
        let upload = UploadOptions::default().note(Some(note.into()));
        let mut output = begin(&server, &upload);
        let written = write(&mut output, &object(len)).map_err(Error::Io);
        match written.and_then(|()| output.commit()) {
            Ok(()) => assert_eq!(note, "old"),
            Err(error) => {
                assert_eq!(note, "new");
                assert!(
                    !is_existing(&error) && error.to_string().contains("400"),
                    "{error}"
                );
            }
        }
    }
    assert_eq!(*server.object(PATH).unwrap(), object(200));
}

#[test]
fn failures_of_the_network_do_not_change_the_object() {
    let rng = Mutex::new(Rng::new(5));
    let server = ObjectServer::with(move |_, _| match rng.lock().unwrap().below(12) {
        0 => StoreManner::Refuses(503),
        1 => StoreManner::IsSilent,
        2 => StoreManner::Damages,
        _ => StoreManner::Obeys,
    });
    for (store, len) in STORES
        .map(|store| [(store, 200), (store, 18 * MIB)])
        .concat()
    {
        for _ in 0..cases(2) {
            let bytes = object(len);
            let mut output = begin_at(store, &server, &UploadOptions::default());
            write(&mut output, &bytes).unwrap();
            output.commit().unwrap();
            assert_eq!(*server.object(PATH).unwrap(), bytes);
            server.remove(PATH);
        }
    }
}

#[test]
fn a_store_that_fails_for_long_ends_the_upload() {
    for (manner, words, helps) in [
        (StoreManner::Damages, "BadDigest", true),
        (StoreManner::Refuses(403), "access denied", false),
    ] {
        let server = ObjectServer::with(move |_, line| {
            if line.contains("partNumber=3") {
                manner
            } else {
                StoreManner::Obeys
            }
        });
        let mut output = begin(&server, &UploadOptions::default());
        let written = write(&mut output, &object(30 * MIB));
        let error = match written {
            Ok(()) => match output.commit().unwrap_err() {
                Error::Io(error) => error,
                error => panic!("{error}"),
            },
            Err(error) => error,
        };
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(is_temporary(&error), helps, "{error}");
        assert_eq!((server.object(PATH), server.open_uploads()), (None, 0));
    }
}

/// The last request has no answer, and all later ones fail.
#[test]
fn an_object_that_is_there_though_no_answer_came_is_known() {
    let trials = [(200, false), (200, true), (9 * MIB, false), (9 * MIB, true)];
    for (store, (len, overwrite)) in STORES.map(|store| trials.map(|it| (store, it))).concat() {
        let count = AtomicU64::new(0);
        let server = ObjectServer::with(move |_, line| {
            let is_part = line.contains("partNumber") || line.contains("blockid");
            let is_last = line.starts_with("POST") && line.contains("uploadId")
                || line.starts_with("PUT") && !is_part;
            let is_first = is_last && count.fetch_add(1, Ordering::Relaxed) == 0;
            if is_first {
                StoreManner::IsSilent
            } else {
                StoreManner::Obeys
            }
        });
        let bytes = object(len);
        let upload = UploadOptions::default().overwrite(overwrite);
        let mut output = begin_at(store, &server, &upload);
        write(&mut output, &bytes).unwrap();
        output.commit().unwrap();
        assert_eq!(*server.object(PATH).unwrap(), bytes);
    }
}

#[test]
fn files_of_web_servers_are_not_written() {
    for address in ["https://127.0.0.1:1/x", "http://127.0.0.1:1/x"] {
        let refused = create(
            address,
            &RemoteOptions::default(),
            &UploadOptions::default(),
        );
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{address}");
    }
}
