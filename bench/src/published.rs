//! The tables of docs/BENCHMARKS.md: their names, and what each is made of.

use crate::table::Form;

/// A table of the page.
pub(crate) struct Published {
    /// Its name in the page, and that of its record.
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    /// Work and options of each run; their rows are one table.
    pub(crate) runs: &'static [&'static str],
}

/// All of them, in the order of the page.
pub(crate) const PUBLISHED: &[Published] = &[
    Published {
        name: "decode-128k",
        form: Form::Codecs,
        runs: &[
            "decode --corpus dickens mr ooffice xml linux.tar usrlib.tar --peers c,ours,portable",
        ],
    },
    Published {
        name: "decode-1m",
        form: Form::Codecs,
        runs: &["decode --block 1M --corpus dickens mr ooffice xml linux.tar usrlib.tar"],
    },
    Published {
        name: "stream-decode",
        form: Form::Codecs,
        runs: &["stream-decode --corpus dickens mr ooffice xml linux.tar usrlib.tar"],
    },
    Published {
        name: "encode-128k",
        form: Form::Codecs,
        runs: &[
            "encode --corpus dickens mr ooffice xml linux.tar usrlib.tar --levels -5,1,3,5,6,9,12,15,19,22",
        ],
    },
    Published {
        name: "encode-1m",
        form: Form::Codecs,
        runs: &[
            "encode --corpus dickens mr ooffice xml linux.tar usrlib.tar --levels 1,3,5,10,15,19 --block 1M --seconds 0.4 --sample 3M",
        ],
    },
    Published {
        name: "stream-encode",
        form: Form::Codecs,
        runs: &[
            "stream-encode --corpus dickens mr ooffice xml linux.tar usrlib.tar --levels 1,3,5,10,15,19 --seconds 0.5 --sample 4M",
        ],
    },
    Published {
        name: "decode-kinds",
        form: Form::Kinds,
        runs: &[
            "decode --corpus reporting --block 4K --sample 1M --seconds 0.25 --levels -5,1,3,9,19",
            "decode --corpus reporting --block 8K --sample 1M --seconds 0.25 --levels -5,1,3,9,19",
            "decode --corpus reporting --block 16K --sample 1M --seconds 0.25 --levels -5,1,3,9,19",
            "decode --corpus reporting --block 32K --sample 1M --seconds 0.25 --levels -5,1,3,9,19",
            "decode --corpus reporting --block 64K --sample 1M --seconds 0.25 --levels -5,1,3,9,19",
            "decode --corpus reporting --block 128K --sample 2M --seconds 0.25 --levels -5,1,3,9,19",
            "decode --corpus reporting --block 256K --sample 2M --seconds 0.25 --levels -5,1,3,9,19",
            "decode --corpus reporting --block 1M --sample 2M --seconds 0.25 --levels -5,1,3,9,19",
            "stream-decode --corpus reporting --sample 2M --seconds 0.25 --levels -5,1,3,9,19",
        ],
    },
    Published {
        name: "encode-kinds",
        form: Form::Kinds,
        runs: &[
            "encode --corpus reporting --block 4K --sample 512K --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,15,19",
            "encode --corpus reporting --block 8K --sample 512K --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,15,19",
            "encode --corpus reporting --block 16K --sample 512K --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,15,19",
            "encode --corpus reporting --block 32K --sample 512K --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,15,19",
            "encode --corpus reporting --block 64K --sample 1M --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,15,19",
            "encode --corpus reporting --block 128K --sample 1M --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,13,15,19,22",
            "encode --corpus reporting --block 256K --sample 1M --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,15,19",
            "encode --corpus reporting --block 1M --sample 2M --seconds 0.25 --levels -5,1,3,5,10,15,19",
            "stream-encode --corpus reporting --sample 2M --seconds 0.25 --levels -5,1,3,5,10,15,19",
        ],
    },
    Published {
        name: "hash",
        form: Form::Codecs,
        runs: &["hash"],
    },
    Published {
        name: "squashfs",
        form: Form::Squashfs,
        runs: &[
            "squashfs --corpus usr --codecs zstd:1,zstd:5,lz4 --seconds 4",
            "squashfs --corpus linux --codecs zstd:1,zstd:5,zstd:10,lz4,lzo --seconds 4",
            "squashfs --corpus part --codecs zstd:1,zstd:5,zstd:10,zstd:15,zstd:16@256K,lz4,gzip:9,lz4:hc,lzo,lzo:8 --seconds 4",
            "squashfs --corpus three --codecs zstd:10 --seconds 4",
        ],
    },
    Published {
        name: "unsquashfs",
        form: Form::Unpacked,
        runs: &["unsquashfs --corpus part --codecs zstd:15,gzip:9,xz,lz4 --seconds 4"],
    },
    Published {
        name: "btrfs",
        form: Form::Btrfs,
        runs: &["btrfs --corpus usr --codecs zstd:3,zstd:15,lzo,none --seconds 4"],
    },
    Published {
        name: "trees",
        form: Form::Trees,
        runs: &["trees --corpus source usr --seconds 8"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_the_page() {
        let page = include_str!("../../docs/BENCHMARKS.md");
        for (index, table) in PUBLISHED.iter().enumerate() {
            let mut others = PUBLISHED[..index].iter();
            assert!(
                !others.any(|other| other.name == table.name),
                "{}",
                table.name
            );
            for mark in [
                format!("<!-- bench {} -->", table.name),
                format!("<!-- end {} -->", table.name),
            ] {
                assert_eq!(page.matches(&mark).count(), 1, "{mark}");
            }
        }
    }
}
