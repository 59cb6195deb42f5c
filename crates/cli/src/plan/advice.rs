//! The recommendation: a sentence, its reason, and the command.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use restow::plan::{CandidateRow, Choice, Coding, Container, Goal, Reason, choose, marginal};

use super::report::{Advice, Report};
use super::table::{of_block, of_seconds};
use crate::text;

/// The recommendation; `None` if nothing was tried. `is_stored` says that the source holds
/// compressed data, which a copy would keep.
pub(super) fn of(report: &Report<'_>, is_stored: bool) -> Option<Advice> {
    let choice = choose(report.rows(), &report.limits)?;
    let row = &report.rows()[choice.row];
    let bytes = text::of_bytes(row.bytes.value as u64);
    let seconds = of_seconds(row.seconds.value);
    let name = name(report, row);
    let sentence = format!("{name}: {bytes} in {seconds}");
    Some(Advice {
        sentence,
        reason: reason(report, choice),
        command: command(report, row, is_stored),
        choice,
    })
}

/// The codec and the block size in words.
fn name(report: &Report<'_>, row: &CandidateRow) -> String {
    let words = match row.candidate.coding {
        Coding::Plain => "no compression".into(),
        _ => report.words(row),
    };
    match row.candidate.block_bytes {
        Some(bytes) if row.candidate.coding != Coding::Plain => {
            format!("{words} in blocks of {}", of_block(bytes))
        }
        _ => words,
    }
}

fn reason(report: &Report<'_>, choice: Choice) -> String {
    let limits = limits(report);
    if choice.reason == Reason::Nearest {
        return format!("no candidate keeps {limits}; this one is nearest");
    }
    let under = if limits.is_empty() {
        String::new()
    } else {
        format!(" that keeps {limits}")
    };
    match choice.goal {
        Goal::Size => format!("the smallest{under}{}", beyond(report, choice.row)),
        Goal::Time => format!("the fastest{under}"),
        Goal::Transfer => {
            let row = &report.rows()[choice.row];
            let seconds = of_seconds(report.transfer(row).unwrap_or(0.0));
            format!("sent and unpacked first, in {seconds}, of all candidates{under}")
        }
        Goal::Balance => format!(
            "the best balance{under}: twice the time to copy, or to read all with one thread, must save 5 % of the size, and twice the memory of a reader 1 %{}",
            beyond(report, choice.row)
        ),
    }
}

/// The limits in words.
fn limits(report: &Report<'_>) -> String {
    let limits = &report.limits;
    let mut words = Vec::new();
    if let Some(seconds) = limits.seconds_max {
        words.push(format!("--max-time {}", of_seconds(seconds)));
    }
    if let Some(bytes) = limits.bytes_max {
        words.push(format!("--max-size {}", text::of_bytes(bytes as u64)));
    }
    if let Some(rate) = limits.read_rate {
        words.push(format!("--read-rate {}/s", text::of_bytes(rate as u64)));
    }
    if let Some(bytes) = limits.memory_max {
        words.push(format!("--max-memory {}", text::of_bytes(bytes)));
    }
    words.join(" and ")
}

/// The savings and cost of the next smaller candidate on the Pareto front.
fn beyond(report: &Report<'_>, row: usize) -> String {
    let row = &report.rows()[row];
    let front = report.front.iter().map(|&next| &report.rows()[next]);
    let mut smaller = front.filter(|next| next.bytes.value < row.bytes.value);
    let Some(next) = smaller.next() else {
        return String::new();
    };
    let (saved, times) = marginal(row, next);
    let read = next.read_seconds / row.read_seconds.max(1e-9);
    format!(
        "; {} is {:.1} % smaller, and takes {times:.1} times as long to copy and {read:.1} times to read",
        name(report, next),
        100.0 * saved
    )
}

/// The command that makes the recommended result.
fn command(report: &Report<'_>, row: &CandidateRow, is_stored: bool) -> String {
    let ending = match (report.container, row.candidate.coding) {
        (Container::Tar, Coding::Packed(codec::Wrapper::Gzip, _)) => "tar.gz",
        (Container::Tar, Coding::Packed(codec::Wrapper::Xz, _)) => "tar.xz",
        (Container::Tar, Coding::Packed(codec::Wrapper::Zstd, _)) => "tar.zst",
        (container, _) => container.name(),
    };
    let mut words = vec!["restow copy".to_owned()];
    if let (Container::Tar, Coding::Plain) = (report.container, row.candidate.coding) {
        // A plain archive takes no codec.
    } else {
        words.push(format!("--compress {}", report.words(row)));
    }
    if let Some(bytes) = row.candidate.block_bytes {
        words.push(format!("--block-size {}", of_block(bytes)));
    }
    if let Some(kernel) = report.min_kernel {
        words.push(format!("--min-kernel {kernel}"));
    }
    if is_stored && !matches!(report.container, Container::Tar | Container::Stream) {
        words.push("--recompress".to_owned());
    }
    if let Some(threads) = report.given_threads {
        words.push(format!("-j {threads}"));
    }
    words.push(text::quoted(report.src.as_os_str()));
    words.push(text::quoted(OsStr::from_bytes(&destination(
        report.src, ending,
    ))));
    words.join(" ")
}

/// Endings of names that tell the format of a source.
const ENDINGS: [&[u8]; 15] = [
    b".tar",
    b".tar.gz",
    b".tgz",
    b".tar.xz",
    b".txz",
    b".tar.zst",
    b".tzst",
    b".squashfs",
    b".sqfs",
    b".sfs",
    b".snap",
    b".btrfs",
    b".erofs",
    b".stream",
    b".send",
];

/// A name for the result, in the current directory.
fn destination(src: &Path, ending: &str) -> Vec<u8> {
    let stem = src.file_name().map_or(&b"tree"[..], OsStr::as_bytes);
    let stem = if stem == b"-" { b"tree" } else { stem };
    let stem = stem.split(|&byte| byte == b':').next().unwrap_or(stem);
    let known = ENDINGS.iter().find_map(|it| stem.strip_suffix(*it));
    let stem = known.filter(|stem| !stem.is_empty()).unwrap_or(stem);
    let same = [stem, b".", ending.as_bytes()].concat();
    if src.as_os_str().as_bytes() == same {
        return [stem, b"-2.", ending.as_bytes()].concat();
    }
    same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_named_after_the_source() {
        for (src, ending, wanted) in [
            ("usr/lib", "squashfs", "lib.squashfs"),
            ("a.tar.gz", "tar.zst", "a.tar.zst"),
            ("/", "btrfs", "tree.btrfs"),
            ("-", "tar", "tree.tar"),
            ("disk.btrfs:home", "stream", "disk.stream"),
            ("a.squashfs", "squashfs", "a-2.squashfs"),
            (".config", "tar", ".config.tar"),
            ("linux-6.1", "btrfs", "linux-6.1.btrfs"),
        ] {
            let name = destination(Path::new(src), ending);
            assert_eq!(String::from_utf8(name).unwrap(), wanted, "{src}");
        }
    }
}
