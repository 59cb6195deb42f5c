//! The shortest encoding of a chunk: prices are lengths in bytes, and every position gets the least
//! one.

use super::finder::{Effort, Finder, LONG, Match, PositionMatches};
use crate::output::InstructionWriter;
use crate::{AFTER_RUN_MAX, MIDDLE_MAX, NEAR_MAX, equal_len};

/// How many bytes are parsed before the best parse is written. Longer chunks become at most 0.1 %
/// smaller.
const CHUNK: usize = 16 << 10;

/// Length of the longest match that is encoded in two bytes.
const NEAR_LEN_MAX: usize = 8;
/// Length of the longest match at up to `MIDDLE_MAX` that is encoded in three bytes.
const MIDDLE_LEN_MAX: usize = 33;
/// Length of the longest match at more than `MIDDLE_MAX` that is encoded in three bytes.
const FAR_LEN_MAX: usize = 9;

/// A price (upper 16 bits) and the number of literals since the last match (lower 16 bits, or more
/// than a chunk).
type State = u32;

/// A price of one byte, in a [`State`].
const BYTE: State = 1 << 16;
/// More than the cost of a chunk, with room for further prices.
const UNREACHED: State = 0x7fff * BYTE;

/// The parse that reaches a position after a match: the state before the match, its length and its
/// distance. The least of several is the cheapest.
#[derive(Clone, Copy)]
struct Arrival(u64);

impl Arrival {
    const NONE: Arrival = Arrival((UNREACHED as u64) << 32);
    const ORIGIN: Arrival = Arrival(0);

    fn new(state: State, len: usize, distance: usize) -> Arrival {
        Arrival((u64::from(state) << 32) | ((len << 16) | distance) as u64)
    }

    /// The state behind it.
    fn state(self) -> State {
        (self.0 >> 32) as State & !0xffff
    }

    fn literals(self) -> usize {
        usize::from((self.0 >> 32) as u16)
    }

    fn len(self) -> usize {
        usize::from((self.0 >> 16) as u16)
    }

    fn distance(self) -> usize {
        usize::from(self.0 as u16)
    }
}

/// Literals since the last match.
#[derive(Clone, Copy)]
struct LiteralRun {
    /// The price of the parse with them.
    price: u32,
    literals: usize,
    /// The number of literals at which the instruction becomes a byte longer.
    longer_at: usize,
}

impl LiteralRun {
    /// The literals that precede a chunk, which are paid, but for the first byte of a stream.
    fn before(begin: usize, literals_from: usize) -> LiteralRun {
        let literals = begin - literals_from;
        let mut run = LiteralRun {
            price: u32::from(begin == 0),
            literals,
            longer_at: if literals_from == 0 { 239 } else { 4 },
        };
        while run.longer_at <= literals {
            run.grow();
        }
        run
    }

    fn grow(&mut self) {
        self.longer_at = match self.longer_at {
            4 => 19,
            239 => 274,
            literals => literals + 255,
        };
    }

    fn add_literal(&mut self) {
        self.literals += 1;
        self.price += 1;
        if self.literals == self.longer_at {
            self.price += 1;
            self.grow();
        }
    }

    fn state(&self) -> State {
        (self.price * BYTE) | self.literals.min(0xffff) as State
    }
}

/// The states at a position.
struct States {
    /// The cheapest.
    best: State,
    /// The cheapest with 1 to 3 literals, which a match of two bytes can follow.
    few: State,
    /// The run of literals, if it has at least four: a match of three bytes can follow in two
    /// bytes.
    run: Option<State>,
}

/// Where the next chunk begins, and where the literals begin that are not yet written.
pub(super) struct EncodeCursor {
    pub(super) begin: usize,
    pub(super) literals_from: usize,
}

/// Finds the shortest parse.
pub(super) struct Parser {
    ways: [Arrival; CHUNK + LONG],
}

impl Parser {
    pub(super) const fn new() -> Self {
        Parser {
            ways: [Arrival::NONE; CHUNK + LONG],
        }
    }

    /// Encodes bytes starting at `next.begin`: at most a chunk, or up to the end of the first long
    /// match. Literals at the end stay for the next chunk. `None` if there is no room.
    pub(super) fn chunk(
        &mut self,
        out: &mut InstructionWriter<'_>,
        src: &[u8],
        next: EncodeCursor,
        finder: &mut Finder,
        effort: Effort,
    ) -> Option<EncodeCursor> {
        let EncodeCursor {
            begin,
            literals_from,
        } = next;
        let len = (src.len() - begin).min(CHUNK);
        let ways = &mut self.ways[..len + LONG];
        ways.fill(Arrival::NONE);
        if begin == literals_from && begin > 0 {
            ways[0] = Arrival::ORIGIN;
        }
        let mut run = LiteralRun::before(begin, literals_from);
        // The states behind a match that ends 1, 2, 3 and 4 bytes before.
        let mut matched = [UNREACHED; 4];
        let mut longest = Match::default();
        let mut index = 0;
        let (end, long) = loop {
            let here = ways[index].state();
            let states = states(here, matched, &mut run);
            if index == len {
                // Behind a match, further literals can cost two bytes more than in the run.
                let is_cheaper = states.best + 2 * BYTE <= run.state();
                break (if is_cheaper { states.best } else { run.state() }, None);
            }
            if begin + index + 4 <= src.len() {
                let found = finder.search(src, begin + index, longest, effort);
                longest = found.longest();
                if usize::from(longest.len) == LONG {
                    break (states.best, Some(longest));
                }
                relax(&mut ways[index..], &states, &found);
            }
            matched = [here, matched[0], matched[1], matched[2]];
            run.add_literal();
            index += 1;
        };
        let literals = (end & 0xffff) as usize;
        let literals_from = self.emit(out, src, begin, literals_from, index, literals)?;
        let at = begin + index;
        let Some(long) = long else {
            return Some(EncodeCursor {
                begin: at,
                literals_from,
            });
        };
        out.literals(src, literals_from, at)?;
        let distance = usize::from(long.distance);
        let end = at + LONG + equal_len(src, at + LONG - distance, at + LONG);
        out.matched(distance, end - at)?;
        for inside in at + 1..end.min(src.len().saturating_sub(3)) {
            finder.insert(src, inside);
        }
        Some(EncodeCursor {
            begin: end,
            literals_from: end,
        })
    }

    /// Writes the parse up to `index`, of which the last `literals` stay for the next chunk.
    /// Returns where those begin.
    fn emit(
        &mut self,
        out: &mut InstructionWriter<'_>,
        src: &[u8],
        begin: usize,
        mut literals_from: usize,
        index: usize,
        literals: usize,
    ) -> Option<usize> {
        // Arrivals are followed from the last to the first, and collected at the end of the part
        // that was read.
        let mut first = index + 1;
        let mut from = index.saturating_sub(literals);
        let mut at = begin;
        while from > 0 {
            let way = self.ways[from];
            first -= 1;
            self.ways[first] = way;
            at = begin + from - way.len();
            from = from.saturating_sub(way.len() + way.literals());
        }
        let ways = &self.ways[first..=index];
        for (way, following) in ways.iter().zip(ways.iter().skip(1).map(Some).chain([None])) {
            let (len, distance) = (way.len(), way.distance());
            out.literals(src, literals_from, at)?;
            if len == 2 {
                out.matched_after_literals(distance - 1)?;
            } else if len == 3 && way.literals() > 3 && is_after_run(distance) {
                out.matched_after_literals(distance - NEAR_MAX - 1)?;
            } else {
                out.matched(distance, len)?;
            }
            literals_from = at + len;
            at = literals_from + following.map_or(0, |way| way.literals());
        }
        Some(literals_from)
    }
}

/// Whether a match of three bytes at this distance has a shorter form after a run of literals.
fn is_after_run(distance: usize) -> bool {
    (NEAR_MAX + 1..=AFTER_RUN_MAX).contains(&distance)
}

/// The states at a position, which a match reaches with `here`, and where `matched` are the states
/// at the positions before that.
#[inline(always)]
fn states(here: State, matched: [State; 4], run: &mut LiteralRun) -> States {
    let mut few = (matched[0] + BYTE + 1)
        .min(matched[1] + 2 * BYTE + 2)
        .min(matched[2] + 3 * BYTE + 3);
    // A new run of four literals, which costs an instruction. Of equal runs, the one that is longer
    // without another byte.
    let price = (matched[3] / BYTE) + 5;
    if price < run.price || (price == run.price && 15 > run.longer_at - run.literals) {
        *run = LiteralRun {
            price,
            literals: 4,
            longer_at: 19,
        };
    }
    let state = run.state();
    let is_run = run.literals > 3;
    if !is_run && run.literals > 0 {
        few = few.min(state);
    }
    States {
        best: here.min(few).min(state),
        few,
        run: is_run.then_some(state),
    }
}

/// Offers the arrivals by the matches at a position to the positions after them; `ways` begins at
/// this position. All shorter matches would be offers too, but a match that is one byte shorter
/// than the longest in a form is the only one that matters.
#[inline(always)]
fn relax(ways: &mut [Arrival], states: &States, found: &PositionMatches) {
    let mut offer = |state: State, bytes: u32, distance: u16, len: usize| {
        let way = &mut ways[len];
        let new = Arrival::new(state + bytes * BYTE, len, distance.into());
        *way = core::hint::select_unpredictable(new.0 < way.0, new, *way);
    };
    if found.two != 0 && states.few < UNREACHED {
        offer(states.few, 2, found.two, 2);
    }
    if let Some(run) = states.run
        && is_after_run(found.three.into())
    {
        offer(run, 2, found.three, 3);
    }
    let [near, middle, far] = found.classes;
    let lens = found.classes.map(|found| usize::from(found.len));
    if lens[0] > 0 {
        let len = lens[0].min(NEAR_LEN_MAX);
        offer(states.best, 2, near.distance, len);
        offer(states.best, 2, near.distance, (len - 1).max(3));
        if lens[0] > NEAR_LEN_MAX {
            let bytes = 3 + u32::from(lens[0] > MIDDLE_LEN_MAX);
            offer(states.best, bytes, near.distance, lens[0]);
            offer(states.best, bytes, near.distance, lens[0] - 1);
        }
    }
    for (found, len, shorter) in [
        (middle, lens[1], MIDDLE_LEN_MAX),
        (far, lens[2], FAR_LEN_MAX),
    ] {
        if len > 0 {
            let bytes = 3 + u32::from(len > shorter);
            offer(states.best, bytes, found.distance, len);
            offer(states.best, bytes, found.distance, (len - 1).max(3));
            offer(states.best, 3, found.distance, len.min(shorter));
        }
    }
}

const _: () = assert!(CHUNK + CHUNK / 128 + 64 < 0x7fff && LONG < 1 << 16);
const _: () = assert!(LONG - 9 <= 255, "a long match has one byte of length");
const _: () = assert!(MIDDLE_MAX < 1 << 16);
