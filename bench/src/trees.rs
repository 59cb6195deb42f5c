//! Directories and archives: `restow` beside GNU tar, cp and diff.

use std::path::Path;

use crate::options::Options;
use crate::processes::{Peer, Place, THREADS, find, rounds, row, trees};
use crate::table::{Form, Table};

/// What both programs do with a tree.
struct Task {
    name: &'static str,
    peer: &'static str,
    theirs: Vec<String>,
    ours: Vec<String>,
    /// What each makes, if anything; ours is verified.
    makes: Option<[String; 2]>,
}

/// Archives made and unpacked, directories copied and compared.
pub(crate) fn of_host(options: &Options) -> Result<Table, String> {
    let place = Place::new()?;
    let mut table = Table::new(Form::Trees, &["GNU", "restow"].map(str::to_owned));
    for (tree, name) in trees(options)? {
        let (archive, copy) = (place.path("tree.tar"), place.path("tree"));
        let tar = ["-cf", &archive, "-C", &tree, "."].map(str::to_owned);
        made("tar", tar.to_vec())?;
        made("cp", ["-a", &tree, &copy].map(str::to_owned).to_vec())?;
        for task in tasks(&place, &tree, &archive, &copy) {
            let theirs = found(task.peer)?;
            let mut peers = vec![
                Peer::new(task.peer, Path::new(&theirs), task.theirs),
                Peer::new("restow", &place.restow, task.ours),
            ];
            for (peer, made) in peers.iter_mut().zip(task.makes.iter().flatten()) {
                peer.makes = Some(made.into());
            }
            let rounds = rounds(&mut peers, options.seconds)?;
            if let Some([_, ours]) = &task.makes {
                place.verify(&tree, ours)?;
            }
            table.print_and_add(row(name.clone(), task.name, rounds, &peers, Vec::new()));
        }
        for made in [&archive, &copy] {
            Peer::remove(Path::new(made))?;
        }
    }
    Ok(table)
}

fn tasks(place: &Place, tree: &str, archive: &str, copy: &str) -> [Task; 4] {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let made = ["theirs", "ours"].map(|name| place.path(name));
    let tars = made.each_ref().map(|path| format!("{path}.tar"));
    let (below, threads) = (
        format!("--one-top-level={}", made[0]),
        format!("-j{THREADS}"),
    );
    [
        Task {
            name: "tar made",
            peer: "tar",
            theirs: words(&["-cf", &tars[0], "-C", tree, "."]),
            ours: words(&["copy", &threads, tree, &tars[1]]),
            makes: Some(tars),
        },
        Task {
            name: "tar unpacked",
            peer: "tar",
            theirs: words(&["-xf", archive, &below]),
            ours: words(&["copy", &threads, archive, &made[1]]),
            makes: Some(made.clone()),
        },
        Task {
            name: "directory copied",
            peer: "cp",
            theirs: words(&["-a", tree, &made[0]]),
            ours: words(&["copy", &threads, tree, &made[1]]),
            makes: Some(made),
        },
        Task {
            name: "directories compared",
            peer: "diff",
            theirs: words(&["-r", "--no-dereference", tree, copy]),
            ours: words(&["diff", tree, copy]),
            makes: None,
        },
    ]
}

fn found(program: &str) -> Result<String, String> {
    let path = find(program).ok_or(format!("{program} is not in PATH"))?;
    Ok(path.display().to_string())
}

/// Runs a program once.
fn made(program: &'static str, args: Vec<String>) -> Result<(), String> {
    let path = found(program)?;
    Peer::new(program, Path::new(&path), args).run().map(drop)
}
