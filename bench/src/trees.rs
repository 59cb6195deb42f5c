//! Directories and archives: `restow` beside GNU tar, cp and diff.

use crate::options::Options;
use crate::processes::{self, ProcessPeer, THREADS};
use crate::record::TableRecord;
use crate::scratch::{ScratchDir, find, run, version, words};

/// The same work by GNU and by restow.
struct TreeWork {
    name: &'static str,
    program: &'static str,
    theirs: Vec<String>,
    ours: Vec<String>,
    /// The files that both make, if any; ours is verified.
    makes: Option<[String; 2]>,
}

/// Archives made and unpacked, directories copied and compared.
pub(crate) fn of_host(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    let scratch = ScratchDir::new(options)?;
    record.say(
        "peers",
        ["tar", "cp", "diff"]
            .map(|name| version(name, "--version"))
            .join(", "),
    );
    for (tree, name) in options.directories()? {
        let (archive, copy) = (scratch.path("tree.tar"), scratch.path("tree"));
        run("tar", &["-cf", &archive, "-C", &tree, "."])?;
        run("cp", &["-a", &tree, &copy])?;
        for work in tree_work(&scratch, &tree, &archive, &copy) {
            let mut peers = [
                ProcessPeer::new("GNU", &find(work.program)?, work.theirs),
                ProcessPeer::new("restow", &scratch.restow, work.ours),
            ];
            for (peer, made) in peers.iter_mut().zip(work.makes.iter().flatten()) {
                peer.makes = Some(made.clone());
            }
            processes::measure(record, [&name, work.name], &mut peers, options.seconds)?;
            if let Some([_, ours]) = &work.makes {
                scratch.verify(&tree, ours)?;
            }
        }
        for made in [&archive, &copy] {
            ProcessPeer::remove(made)?;
        }
    }
    Ok(())
}

fn tree_work(scratch: &ScratchDir, tree: &str, archive: &str, copy: &str) -> [TreeWork; 4] {
    let made = ["theirs", "ours"].map(|name| scratch.path(name));
    let tars = made.each_ref().map(|path| format!("{path}.tar"));
    let below = format!("--one-top-level={}", made[0]);
    [
        TreeWork {
            name: "tar made",
            program: "tar",
            theirs: words(&["-cf", &tars[0], "-C", tree, "."]),
            ours: words(&["copy", "-j", THREADS, tree, &tars[1]]),
            makes: Some(tars),
        },
        TreeWork {
            name: "tar unpacked",
            program: "tar",
            theirs: words(&["-xf", archive, &below]),
            ours: words(&["copy", "-j", THREADS, archive, &made[1]]),
            makes: Some(made.clone()),
        },
        TreeWork {
            name: "directory copied",
            program: "cp",
            theirs: words(&["-a", tree, &made[0]]),
            ours: words(&["copy", "-j", THREADS, tree, &made[1]]),
            makes: Some(made),
        },
        TreeWork {
            name: "directories compared",
            program: "diff",
            theirs: words(&["-r", "--no-dereference", tree, copy]),
            ours: words(&["diff", tree, copy]),
            makes: None,
        },
    ]
}
