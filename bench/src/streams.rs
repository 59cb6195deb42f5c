//! Send streams, by whole processes: `restow` beside btrfs-progs, Linux and CRC-32C alone.
//!
//! The steps are those by which compressed send and receive were published: time of the user and of the system, elapsed time,
//! memory, and blocks read and written.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure;
use crate::options::Options;

/// Rounds of each step. Programs take turns, and the order turns around after each round.
const ROUNDS: usize = 5;

/// Prints the tables.
///
/// # Errors
/// A program is missing, fails, or makes something else than it should.
pub(crate) fn streams(options: &Options) -> Result<(), String> {
    let [tree] = &options.paths().collect::<Vec<_>>()[..] else {
        return Err("--corpus names one directory, to be sent".into());
    };
    println!("{HEAD}");
    let (sizes, _) = measured(tree, &std::env::temp_dir(), ROUNDS)?;
    println!("\n| stream | bytes |\n|---|---|");
    for (name, bytes) in sizes {
        println!("| {name} | {bytes} |");
    }
    Ok(())
}

/// Bytes of streams by their names.
type Sizes = Vec<(&'static str, u64)>;

/// What the rounds of one program in one step cost.
pub(crate) struct OfProgram {
    pub(crate) step: &'static str,
    pub(crate) program: &'static str,
    pub(crate) costs: Vec<Cost>,
}

/// Sends and receives a tree in a directory below `base`, printing a line for each program. Returns the bytes of the streams by
/// their names, and the costs.
///
/// # Errors
/// A program is missing, fails, or makes something else than it should.
pub(crate) fn measured(
    tree: &Path,
    base: &Path,
    rounds: usize,
) -> Result<(Sizes, Vec<OfProgram>), String> {
    let place = Place::new(tree, base)?;
    let mut all = Vec::new();
    for step in place.steps() {
        all.extend(step.measure(rounds)?);
    }
    Ok((place.sizes()?, all))
}

/// Reads a file and prints its CRC-32C: what checking a stream costs at least.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn crc32c(file: &Path) -> Result<(), String> {
    let failed = |error| format!("read {}: {error}", file.display());
    let mut input = File::open(file).map_err(failed)?;
    let mut buffer = vec![0; 256 << 10];
    let mut crc = 0;
    loop {
        match input.read(&mut buffer).map_err(failed)? {
            0 => break,
            read => crc = crc32c::crc32c_append(crc, &buffer[..read]),
        }
    }
    println!("{crc:08x}");
    Ok(())
}

const HEAD: &str = "| step | program | user s | system s | elapsed s | CPU | peak memory | blocks in | blocks out | elapsed, ratio |
|---|---|---|---|---|---|---|---|---|---|";

/// What GNU time says of a process.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) user: f64,
    pub(crate) system: f64,
    pub(crate) elapsed: f64,
    pub(crate) memory_kib: f64,
    blocks_in: f64,
    blocks_out: f64,
}

/// A program that takes its turn.
struct Turn {
    name: &'static str,
    /// What is run before each turn and not measured.
    before: Vec<Vec<String>>,
    command: Vec<String>,
}

/// The same work by several programs; the first is the one that the others are compared with.
struct Step {
    name: &'static str,
    turns: Vec<Turn>,
    /// Files that must be the same bytes.
    same: Option<[PathBuf; 2]>,
    /// A tree, and what must be the same tree.
    trees: Vec<[String; 2]>,
    restow: PathBuf,
}

impl Step {
    fn measure(&self, rounds: usize) -> Result<Vec<OfProgram>, String> {
        let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); self.turns.len()];
        // The first round warms up.
        for round in 0..=rounds {
            for at in measure::order(round, self.turns.len()) {
                let cost = self.turns[at].run()?;
                if round > 0 {
                    costs[at].push(cost);
                }
            }
        }
        if let Some([a, b]) = &self.same {
            let read = |path: &Path| {
                fs::read(path).map_err(|error| format!("read {}: {error}", path.display()))
            };
            if read(a)? != read(b)? {
                return Err(format!("{}: {} differs", self.name, b.display()));
            }
        }
        for [tree, made] in &self.trees {
            // Linux leaves the root directory with the time of the last temporary name in it.
            run(
                &self.restow,
                &["diff", "-q", "--ignore", "mtime", tree, made],
            )?;
        }
        for (turn, of_turn) in self.turns.iter().zip(&costs) {
            println!("{}", self.line(turn, of_turn, &costs[0]));
        }
        let turns = self.turns.iter().zip(costs);
        Ok(turns
            .map(|(turn, costs)| OfProgram {
                step: self.name,
                program: turn.name,
                costs,
            })
            .collect())
    }

    fn line(&self, turn: &Turn, costs: &[Cost], first: &[Cost]) -> String {
        let of = |field: fn(&Cost) -> f64| median(costs.iter().map(field));
        let ratio = median(
            costs
                .iter()
                .zip(first)
                .map(|(cost, first)| cost.elapsed / first.elapsed.max(0.001)),
        );
        let (user, system, elapsed) = (of(|it| it.user), of(|it| it.system), of(|it| it.elapsed));
        let mut line = format!("| {} | {} |", self.name, turn.name);
        let _ = write!(line, " {user:.2} | {system:.2} | {elapsed:.3} |");
        let _ = write!(
            line,
            " {:.0} % |",
            (user + system) / elapsed.max(0.001) * 100.0
        );
        let _ = write!(line, " {:.0} MB |", of(|it| it.memory_kib) * 1024.0 / 1e6);
        let _ = write!(
            line,
            " {} | {} |",
            of(|it| it.blocks_in),
            of(|it| it.blocks_out)
        );
        let _ = write!(line, " {ratio:.3} |");
        line
    }
}

impl Turn {
    fn new(name: &'static str, command: Vec<String>) -> Turn {
        Turn {
            name,
            before: Vec::new(),
            command,
        }
    }

    fn after(mut self, before: Vec<Vec<String>>) -> Turn {
        self.before = before;
        self
    }

    fn run(&self) -> Result<Cost, String> {
        for words in &self.before {
            // There is nothing to remove in the first round.
            let _ = Command::new(&words[0])
                .args(&words[1..])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
        let start = Instant::now();
        let output = Command::new("time")
            .args(["-f", "%U %S %M %I %O"])
            .args(&self.command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .map_err(|error| format!("run time: {error}"))?;
        let elapsed: Duration = start.elapsed();
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("{:?}: {said}", self.command));
        }
        let numbers = said.lines().last().unwrap_or_default().split(' ');
        let numbers: Vec<f64> = numbers.filter_map(|word| word.parse().ok()).collect();
        let [user, system, memory_kib, blocks_in, blocks_out] = numbers[..] else {
            return Err(format!("time said: {said}"));
        };
        Ok(Cost {
            user,
            system,
            elapsed: elapsed.as_secs_f64(),
            memory_kib,
            blocks_in,
            blocks_out,
        })
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// A file system with the tree, unmounted at the end.
struct Place {
    dir: PathBuf,
    restow: PathBuf,
    bench: PathBuf,
}

impl Place {
    fn new(tree: &Path, base: &Path) -> Result<Place, String> {
        let bench = std::env::current_exe().map_err(|error| error.to_string())?;
        let restow = bench.with_file_name("restow");
        let dir = base.join(format!("restow-bench-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| format!("create {}: {error}", dir.display()))?;
        let place = Place { dir, restow, bench };
        for (name, options) in [
            ("source", "noatime,compress-force=zstd:3"),
            ("plain", "noatime"),
            ("forced", "noatime,compress-force=zstd:3"),
        ] {
            let (image, at) = (place.path(&format!("{name}.img")), place.path(name));
            run("truncate", &["-s", "8G", &image])?;
            run("mkfs.btrfs", &["-q", &image])?;
            run("mkdir", &[&at])?;
            run("mount", &["-o", &format!("loop,{options}"), &image, &at])?;
        }
        let (tree, live) = (tree.display().to_string(), place.path("source/live"));
        run("btrfs", &["subvolume", "create", &live])?;
        run("cp", &["-a", &tree, &live])?;
        run("sync", &["-f", &live])?;
        let snapshot = place.path("source/tree");
        run("btrfs", &["subvolume", "snapshot", "-r", &live, &snapshot])?;
        run("sync", &["-f", &live])?;
        // The image is read while it is mounted.
        run("mount", &["-o", "remount,ro", &place.path("source")])?;
        for (file, options) in [
            ("v1", &["--proto", "1"][..]),
            ("v2", &["--compressed-data"]),
        ] {
            let stream = place.path(file);
            run(
                "btrfs",
                &[&["send", "-q", "-f", &stream], options, &[&snapshot]].concat(),
            )?;
        }
        Ok(place)
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn sizes(&self) -> Result<Sizes, String> {
        let packed = self.path("v1.zst");
        run("zstd", &["-q", "-3", "-o", &packed, &self.path("v1")])?;
        let size = |(name, file)| {
            let metadata = fs::metadata(self.path(file)).map_err(|error| error.to_string())?;
            Ok((name, metadata.len()))
        };
        let files = [
            ("version 1", "v1"),
            ("compressed data", "v2"),
            ("version 1 through zstd -3", "v1.zst"),
        ];
        files.into_iter().map(size).collect()
    }

    fn steps(&self) -> Vec<Step> {
        vec![
            self.check("check v1", "v1"),
            self.send("send v1", &["--proto", "1"]),
            self.receive("receive v1, none", "v1", "plain", &[]),
            self.receive("receive v1, force", "v1", "forced", &[]),
            self.check("check compressed", "v2"),
            self.send("send compressed", &["--proto", "2", "--compressed-data"]),
            self.receive("receive compressed", "v2", "plain", &[]),
            self.receive(
                "receive, decompressed",
                "v2",
                "plain",
                &["--force-decompress"],
            ),
            self.convert(),
        ]
    }

    fn check(&self, name: &'static str, stream: &str) -> Step {
        let stream = &*self.path(stream);
        let restow = |words: &[&str]| self.words(&self.restow, words);
        let verify = restow(&["stream", "verify", "--no-data", stream]);
        let dump = ["receive", "--dump", "-f", stream];
        let turns = vec![
            Turn::new(
                "CRC-32C alone",
                self.words(&self.bench, &["crc32c", stream]),
            ),
            Turn::new("restow stream verify --no-data", verify),
            Turn::new("restow stream dump", restow(&["stream", "dump", stream])),
            Turn::new("restow receive --dump", restow(&dump)),
            Turn::new(
                "btrfs receive --dump",
                self.words(Path::new("btrfs"), &dump),
            ),
        ];
        self.step(name, turns)
    }

    fn send(&self, name: &'static str, options: &[&str]) -> Step {
        let snapshot = self.path("source/tree");
        let image = format!("{}:tree", self.path("source.img"));
        let turn = |who: &'static str, program: &Path, to: &str, from: &str| {
            let args = [&["send", "-q"], options, &["-f", to, from]].concat();
            let turn = Turn::new(who, self.words(program, &args));
            turn.after(vec![words(&["rm", "-f", to])])
        };
        let files = ["theirs", "mounted", "ours"].map(|file| self.path(file));
        let turns = vec![
            turn("btrfs send", Path::new("btrfs"), &files[0], &snapshot),
            turn("restow send, mounted", &self.restow, &files[1], &snapshot),
            turn("restow send, image", &self.restow, &files[2], &image),
        ];
        let [theirs, _, ours] = files.map(PathBuf::from);
        Step {
            same: Some([theirs, ours]),
            ..self.step(name, turns)
        }
    }

    fn receive(&self, name: &'static str, stream: &str, to: &str, options: &[&str]) -> Step {
        let (stream, to) = (self.path(stream), self.path(to));
        let turn = |who: &'static str, program: &Path, dir: &str, more: &[&str]| {
            let at = &*format!("{to}/{dir}");
            let before = vec![
                words(&["btrfs", "subvolume", "delete", &format!("{at}/tree")]),
                words(&["mkdir", "-p", at]),
                words(&["sync", "-f", &to]),
            ];
            let args = [&["receive", "-q"], more, options, &["-f", &*stream, at]].concat();
            // Each ends when all is on disk.
            let script = format!("{} && sync -f {to}", self.words(program, &args).join(" "));
            Turn::new(who, words(&["sh", "-c", &script])).after(before)
        };
        let unread = ["--no-read-back"];
        let turns = vec![
            turn("btrfs receive", Path::new("btrfs"), "theirs", &[]),
            turn("restow receive", &self.restow, "ours", &[]),
            turn(
                "restow receive --no-read-back",
                &self.restow,
                "unread",
                &unread,
            ),
        ];
        let snapshot = self.path("source/tree");
        let trees = ["theirs", "ours", "unread"];
        Step {
            trees: trees
                .map(|dir| [snapshot.clone(), format!("{to}/{dir}/tree")])
                .to_vec(),
            ..self.step(name, turns)
        }
    }

    fn convert(&self) -> Step {
        let files = ["one", "two"].map(|file| self.path(file));
        let turn = |who: &'static str, threads: &str, to: &str| {
            let source = self.path("v1");
            let options = ["-q", "--overwrite", "--compress", "zstd:3", threads];
            let args = [&["stream", "convert"], &options[..], &[&source, to]].concat();
            Turn::new(who, self.words(&self.restow, &args))
        };
        let turns = vec![
            turn("restow stream convert -j1", "-j1", &files[0]),
            turn("restow stream convert -j2", "-j2", &files[1]),
        ];
        Step {
            same: Some(files.map(PathBuf::from)),
            ..self.step("convert v1 to zstd:3", turns)
        }
    }

    fn step(&self, name: &'static str, turns: Vec<Turn>) -> Step {
        Step {
            name,
            turns,
            same: None,
            trees: Vec::new(),
            restow: self.restow.clone(),
        }
    }

    fn words(&self, program: &Path, args: &[&str]) -> Vec<String> {
        words(&[&[&*program.display().to_string()], args].concat())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in ["source", "plain", "forced"] {
            let _ = run("umount", &[&self.path(name)]);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn run(program: impl AsRef<Path>, args: &[&str]) -> Result<(), String> {
    let program = program.as_ref();
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("run {}: {error}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!(
        "{} {args:?}: {}",
        program.display(),
        String::from_utf8_lossy(&said)
    ))
}
