//! Every corpus at every level, a row each.

use crate::corpus::{self, Corpus};
use crate::measure::{self, Turn};
use crate::options::Options;
use crate::table::{Form, Row, Table};

/// Measures `row` for every corpus and level.
pub(crate) fn of_all<'a>(
    options: &Options,
    peers: &[String],
    row: impl Fn(&Corpus, i32) -> Result<Row, String> + 'a,
) -> Result<Table, String> {
    measure::pin(options.cpu)?;
    let mut table = Table::new(Form::Codecs, peers);
    for corpus in corpus::load(options)? {
        for level in &options.levels {
            let row = row(&corpus, *level)?;
            table.print_and_add(row);
        }
    }
    table.print_end();
    Ok(table)
}

/// Measures one row: the turns of the peers at `units` pieces of work, of which `bytes` says how large the first few are.
pub(crate) fn measure(
    options: &Options,
    corpus: &Corpus,
    level: i32,
    sizes: Vec<usize>,
    turns: &mut [Turn],
    units: usize,
    bytes: impl Fn(usize) -> usize,
) -> Result<Row, String> {
    let rounds = if options.profile {
        measure::profile(turns, units, options.seconds)?
    } else {
        measure::rounds(turns, units, options.seconds)?
    };
    Ok(Row {
        corpus: corpus.name.clone(),
        level: level.to_string(),
        bytes: bytes(rounds.units),
        sizes,
        cpu: Vec::new(),
        memory: String::new(),
        rounds,
    })
}
