//! The hand-made vectors: what each one is, how it is put together, and what a decoder must make of
//! it.
//!
//! `crates/zstd/testdata` holds the bytes, so that others can use them without this code;
//! `vectors.rs` proves that they are what this code makes (`RESTOW_UPDATE=1` rewrites them). Adding
//! a vector is adding a call of `good` or `bad`.

mod blocks;
mod dictionaries;
mod frames;
mod fse;
mod huffman;
mod literals;
mod sequences;

use crate::assemble::{BlockType, Header, Literals, Model, Sections, Sequence, block};
use crate::generator::Start;
use zstd::Error;

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct Vector {
    /// `good-…` or `bad-…`; the file's name without its extension.
    pub(crate) name: String,
    /// One sentence for `testdata/README.md`.
    pub(crate) about: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) expected: Result<Vec<u8>, Error>,
    pub(crate) magicless: bool,
    pub(crate) dictionary: Option<Dictionary>,
}

/// The dictionaries that some vectors need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dictionary {
    Raw,
    Formatted,
}

impl Dictionary {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raw => "dictionary-raw",
            Self::Formatted => "dictionary-formatted",
        }
    }

    /// What it gives to the first block of a frame.
    pub(crate) fn start(self) -> Start {
        match self {
            Self::Raw => Start {
                content: dictionaries::content(),
                ..Start::nothing()
            },
            Self::Formatted => dictionaries::start(),
        }
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Raw => dictionaries::content(),
            Self::Formatted => dictionaries::formatted(),
        }
    }
}

/// All vectors, in the order of the README.
pub(crate) fn vectors() -> Vec<Vector> {
    let mut list = List(Vec::new());
    frames::add(&mut list);
    blocks::add(&mut list);
    literals::add(&mut list);
    huffman::add(&mut list);
    fse::add(&mut list);
    sequences::add(&mut list);
    dictionaries::add(&mut list);
    list.0
}

pub(crate) struct List(Vec<Vector>);

impl List {
    fn good(
        &mut self,
        name: &str,
        about: &str,
        bytes: Vec<u8>,
        content: impl Into<Vec<u8>>,
    ) -> &mut Vector {
        self.push(format!("good-{name}"), about, bytes, Ok(content.into()))
    }

    fn bad(&mut self, name: &str, about: &str, bytes: Vec<u8>, error: Error) -> &mut Vector {
        self.push(format!("bad-{name}"), about, bytes, Err(error))
    }

    fn push(
        &mut self,
        name: String,
        about: &str,
        bytes: Vec<u8>,
        expected: Result<Vec<u8>, Error>,
    ) -> &mut Vector {
        assert!(
            self.0.iter().all(|vector| vector.name != name),
            "{name} is there twice"
        );
        assert!(about.ends_with('.'), "{name} has no sentence");
        let about = about.to_owned();
        self.0.push(Vector {
            name,
            about,
            bytes,
            expected,
            magicless: false,
            dictionary: None,
        });
        self.0.last_mut().expect("just pushed")
    }
}

/// A frame that grows block by block beside the model of its decoder.
struct Builder {
    header: Header,
    bytes: Vec<u8>,
    model: Model,
}

impl Builder {
    fn new(header: Header) -> Self {
        Self {
            bytes: header.bytes(),
            header,
            model: Model::new(),
        }
    }

    fn with_dictionary(header: Header, content: &[u8], repeats: [u64; 3]) -> Self {
        Self {
            model: Model::with_dictionary(content, repeats),
            ..Self::new(header)
        }
    }

    fn raw(mut self, last: bool, bytes: &[u8]) -> Self {
        self.bytes
            .extend(block(last, BlockType::Raw, bytes.len(), bytes));
        self.model.plain(bytes);
        self
    }

    fn rle(mut self, last: bool, byte: u8, len: usize) -> Self {
        self.bytes.extend(block(last, BlockType::Rle, len, &[byte]));
        self.model.plain(&vec![byte; len]);
        self
    }

    /// A compressed block with at least one sequence.
    fn block(
        mut self,
        last: bool,
        literals: &Literals,
        sections: &Sections,
        sequences: &[Sequence],
    ) -> Self {
        let body = [
            literals.bytes(),
            sections
                .bytes(sequences)
                .expect("every code is in its table"),
        ]
        .concat();
        self.bytes
            .extend(block(last, BlockType::Compressed, body.len(), &body));
        self.model
            .compressed(literals, sequences)
            .expect("the block is valid");
        self
    }

    /// A compressed block of literals alone.
    fn literals(mut self, last: bool, literals: &Literals) -> Self {
        let body = [literals.bytes(), vec![0]].concat();
        self.bytes
            .extend(block(last, BlockType::Compressed, body.len(), &body));
        self.model.plain(&literals.content());
        self
    }

    /// A last compressed block with any body, which the model does not see.
    fn forged(mut self, body: &[u8]) -> Vec<u8> {
        self.bytes
            .extend(block(true, BlockType::Compressed, body.len(), body));
        self.bytes
    }

    /// A last compressed block with one sequence that the model does not see.
    fn forged_sequences(
        self,
        literals: &Literals,
        sections: &Sections,
        sequences: &[Sequence],
    ) -> Vec<u8> {
        let body = [
            literals.bytes(),
            sections
                .bytes(sequences)
                .expect("every code is in its table"),
        ]
        .concat();
        self.forged(&body)
    }

    /// Frame and content; the checksum is added if the header says so.
    fn done(mut self) -> (Vec<u8>, Vec<u8>) {
        let content = self.model.content().to_vec();
        if self.header.checksum {
            self.bytes.extend(crate::assemble::checksum(&content));
        }
        (self.bytes, content)
    }
}

/// `len` bytes that do not repeat soon.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_mul(0x9E37_79B1) >> 23) as u8)
        .collect()
}

/// `len` bytes of a skewed distribution over the first `symbols` letters.
fn letters(len: usize, symbols: u32) -> Vec<u8> {
    let letter = |i: u32| {
        (i.wrapping_mul(0x9E37_79B1) >> 7)
            .trailing_zeros()
            .min(symbols - 1)
    };
    (0..len as u32)
        .map(|i| b'a' + letter(i + 1) as u8)
        .collect()
}

fn sequence(literals: u32, offset: u64, length: u32) -> Sequence {
    Sequence {
        literals,
        offset,
        length,
    }
}
