//! Every corpus at every level, a row each.

use crate::corpus::{self, Corpus};
use crate::kinds::AT;
use crate::measure::{self, Turn};
use crate::options::Options;
use crate::record::TableRecord;

/// A row to be measured: the turns of its peers.
pub(crate) struct RowTurns<'a> {
    pub(crate) turns: Vec<Turn<'a>>,
    /// Compressed bytes of the whole sample by each peer, where something is compressed.
    pub(crate) sizes: Vec<usize>,
    /// Bytes of each unit of work.
    pub(crate) units: Vec<usize>,
}

/// Measures every corpus at every level. `measure_row` makes the turns of a row and passes them to
/// its last argument.
pub(crate) fn of_all(
    options: &Options,
    record: &mut TableRecord,
    peers: &[String],
    mut measure_row: impl FnMut(
        &Corpus,
        i32,
        &mut dyn FnMut(RowTurns) -> Result<(), String>,
    ) -> Result<(), String>,
) -> Result<(), String> {
    measure::pin(options.cpu)?;
    say_peers(record, peers);
    for corpus in corpus::load(options)? {
        for level in &options.levels {
            let row = if options.by_size {
                format!("{level}{AT}{}", frame_size(options))
            } else {
                level.to_string()
            };
            let mut measure =
                |turns: RowTurns| measure(options, record, peers, [&corpus.name, &row], turns);
            measure_row(&corpus, *level, &mut measure)?;
        }
    }
    Ok(())
}

/// The size of the frames as options say it.
fn frame_size(options: &Options) -> String {
    match options.block {
        _ if options.pieces => "stream".to_owned(),
        block if block >= 1 << 20 => format!("{}M", block >> 20),
        block => format!("{}K", block >> 10),
    }
}

/// Notes the versions of the peers.
pub(crate) fn say_peers(record: &mut TableRecord, peers: &[String]) {
    let version = |name: &String| match name.as_str() {
        "c" | "c-again" => format!("{name} is libzstd {}", zstd_safe::version_string()),
        "ours" | "portable" => format!("{name} of this repository"),
        _ => name.clone(),
    };
    let versions: Vec<String> = peers.iter().map(version).collect();
    record.say("peers", versions.join(", "));
}

/// Measures one row.
pub(crate) fn measure(
    options: &Options,
    record: &mut TableRecord,
    peers: &[String],
    [part, row]: [&str; 2],
    RowTurns {
        mut turns,
        sizes,
        units,
    }: RowTurns,
) -> Result<(), String> {
    let rounds = if options.profile {
        measure::profile(&mut turns, units.len(), options.seconds)?
    } else {
        measure::rounds(&mut turns, units.len(), options.seconds)?
    };
    let bytes: usize = units.iter().take(rounds.units).sum();
    record.count_rounds(rounds.times.len());
    for (at, peer) in peers.iter().enumerate() {
        if let Some(size) = sizes.get(at) {
            record.add(part, row, peer, "bytes", *size as f64);
        }
        record.add(
            part,
            row,
            peer,
            "MB/s",
            bytes as f64 / rounds.median(at) / 1e6,
        );
        let speed = rounds.speed(at);
        match at {
            0 => {}
            _ if options.by_size => record.add(part, row, peer, "speed", speed.median),
            _ => record.add_spread([part, row, peer, "speed"], speed),
        }
    }
    record.print_row(part, row);
    Ok(())
}
