//! Units of an older image are kept where their content is unchanged.

use std::sync::Arc;

use codec::Settings;
use erofs::{Erofs, Kernel, OldErofs, Options};
use testkit::MemoryFs;
use tree::FileSystem;

use crate::create::{make, manifest, text, words};
use crate::vectors::{findings, open};

const UNIT: usize = 16 << 10;

/// 100 small files, and one of four units; in the second version, two of each are others.
fn source(is_second: bool) -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    for number in 0..100 {
        let len = if is_second && number == 50 { 700 } else { 900 };
        let content = [format!("{number}").as_bytes(), &text(7, len)].concat();
        fs.add_file(root, format!("small {number}"), &content);
    }
    let mut large: Vec<u8> = (0..4).flat_map(|number| text(number, UNIT)).collect();
    if is_second {
        large[UNIT + 7] ^= 1;
    }
    fs.add_file(root, "large", &large);
    fs.add_file(
        root,
        if is_second { "moved" } else { "other" },
        &text(9, 3 * UNIT),
    );
    fs
}

#[test]
fn units_with_unchanged_content_are_those_of_the_old_image() {
    for (settings, kernel) in [
        (Settings::Zstd { level: 3 }, Kernel(6, 12)),
        (Settings::Lz4Hc { level: 12 }, Kernel(6, 15)),
        (Settings::Zlib { level: 9 }, Kernel(6, 17)),
        (Settings::Zstd { level: 9 }, Kernel(6, 17)),
    ] {
        let options = Options::default()
            .compression(settings)
            .min_kernel(kernel)
            .unit_bytes(UNIT as u32);
        let (old, summary) = make(&source(false), &options, 2).unwrap();
        let units = summary.image.encoded;
        assert!(units >= 12, "{units}");
        let old: Arc<Erofs> = Arc::new(open(old).unwrap());
        let reusing = options.clone().old(Some(OldErofs::new(Arc::clone(&old))));
        let (_, summary) = make(&source(false), &reusing, 2).unwrap();
        let counts = (summary.image.reused, summary.image.encoded);
        assert_eq!(counts, (units, 0), "{}", words(&options));
        let fs = source(true);
        let (image, summary) = make(&fs, &reusing, 3).unwrap();
        // One of the large file, and of small ones the one that has another length.
        let counts = (summary.image.reused, summary.image.encoded);
        assert_eq!(counts, (units - 2, 2), "{}", words(&options));
        let image = open(image).unwrap();
        let (is, must) = (manifest(&image), manifest(&fs));
        assert!(is == must, "{}", must.difference(&is));
        assert_eq!(findings(&image), "");
        // Units of another length or codec, and a damaged image, give nothing.
        let other = reusing.clone().unit_bytes(4096);
        let (_, summary) = make(&fs, &other, 2).unwrap();
        assert_eq!(summary.image.reused, 0);
    }
}

#[test]
fn files_begin_at_multiples_of_the_alignment() {
    for kernel in [Kernel(6, 12), Kernel(6, 15)] {
        let options = Options::default()
            .min_kernel(kernel)
            .unit_bytes(UNIT as u32)
            .align_bytes(32 << 10);
        let fs = source(false);
        let (image, summary) = make(&fs, &options, 2).unwrap();
        let image = open(image).unwrap();
        assert!(manifest(&image) == manifest(&fs));
        assert_eq!(findings(&image), "");
        let large = image.lookup(image.root(), b"large").unwrap().ino;
        let id = image.extents(large, 0).unwrap()[0].id.unwrap();
        // Frames end with their blocks in the first form.
        let begin = !id.0;
        assert_eq!(begin % (32 << 10), 0, "{kernel}: {begin}");
        assert!(summary.padding_bytes > 5 * (8 << 10), "{summary:?}");
    }
}

#[test]
fn damaged_units_of_an_old_image_are_not_kept() {
    let options = Options::default().unit_bytes(UNIT as u32);
    let fs = source(false);
    let (mut old, _) = make(&fs, &options, 1).unwrap();
    let full = old.clone();
    // Behind the superblock is the data.
    for at in (8192..old.len() / 2).step_by(512) {
        old[at] ^= 0x55;
    }
    let old = OldErofs::new(Arc::new(open(old).unwrap()));
    let (image, _) = make(&fs, &options.old(Some(old)), 2).unwrap();
    assert!(image == full);
}
