use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::mem::offset_of;

use ffi::legacy::inspect::FrameParams;
use ffi::legacy::{parameters as old, pointers};
use ffi::modern::allocated::Sequence;
use ffi::modern::compress as modern;
use ffi::modern::decompress::FrameHeader;
use ffi::xxhash::{Xxh32State, Xxh64State};
use ffi::{CustomMem, InBuffer, OutBuffer};
use zstd::CompressionParameters;

use crate::{STRICT, folder, installed, output_of, scratch};

/// The functions that a header declares, but those that are there as a whole.
pub(crate) fn declared(header: &str) -> BTreeSet<String> {
    let path = folder().join("include/restow").join(header);
    let text = fs::read_to_string(path).expect("a header");
    let mut names = BTreeSet::new();
    for line in text.lines() {
        let is_code = line.starts_with(|c: char| c.is_ascii_lowercase() || c == 'Z');
        if !is_code || line.starts_with("static") || line.starts_with("typedef") {
            continue;
        }
        if let Some((before, _)) = line.split_once('(') {
            let name = before.rsplit([' ', '*']).next().unwrap_or_default();
            names.insert(name.to_owned());
        }
    }
    names
}

/// The functions that C can call, with their parameters and what they return, as written in Rust.
fn functions(sources: &[&str]) -> BTreeMap<String, (Vec<String>, String)> {
    let mut functions = BTreeMap::new();
    for source in sources {
        let text = fs::read_to_string(folder().join("src").join(source)).expect("a source");
        for part in text.split("unsafe(no_mangle))]").skip(1) {
            let Some((_, rest)) = part.split_once("extern \"C\" fn ") else {
                continue;
            };
            let (signature, _) = rest.split_once(" {\n").expect("a body");
            let (name, rest) = signature.split_once('(').expect("parameters");
            let (parameters, result) = rest.rsplit_once(')').map_or((rest, ""), |(a, b)| (a, b));
            // What is behind the last parenthesis is the type of the result, but that of the
            // producer.
            let parameters = parameters.replace('\n', " ");
            let types = parameters.split(", ").filter(|part| part.contains(": "));
            let types = types.map(|part| {
                let of_it = part.split_once(": ").map_or("", |(_, of_it)| of_it);
                of_it.trim().trim_end_matches(',').to_owned()
            });
            let result = result.trim().trim_start_matches("-> ").to_owned();
            functions.insert(name.to_owned(), (types.collect(), result));
        }
    }
    functions
}

const MODERN: [&str; 4] = [
    "modern/mod.rs",
    "modern/allocated.rs",
    "modern/compress.rs",
    "modern/decompress.rs",
];
const LEGACY: [&str; 6] = [
    "legacy/parameters.rs",
    "legacy/compress.rs",
    "legacy/bufferless.rs",
    "legacy/decompress.rs",
    "legacy/inspect.rs",
    "legacy/pieces.rs",
];

/// Types in Rust and in C. Of two headers, the same type has two names.
const TYPES: &[(&str, &str, &str)] = &[
    ("", "void", "void"),
    ("usize", "size_t", "size_t"),
    ("u64", "unsigned long long", "unsigned long long"),
    ("c_int", "int", "int"),
    ("c_uint", "unsigned int", "unsigned int"),
    ("*const c_char", "const char *", ""),
    ("*const c_void", "const void *", "const void *"),
    ("*mut c_void", "void *", "void *"),
    (
        "Option<unsafe extern \"C\" fn() -> usize>",
        "size_t (*)(void)",
        "",
    ),
    ("Option<&mut CCtx>", "zstd_cctx *", "ZSTD_CCtx *"),
    ("Option<&CCtx>", "", "const ZSTD_CCtx *"),
    ("Option<&'static mut CCtx>", "zstd_cctx *", "ZSTD_CCtx *"),
    ("Option<&mut DCtx>", "zstd_dctx *", "ZSTD_DCtx *"),
    ("Option<&DCtx>", "", "const ZSTD_DCtx *"),
    ("Option<&'static mut DCtx>", "zstd_dctx *", "ZSTD_DCtx *"),
    ("*mut CCtx", "zstd_cctx *", ""),
    ("*mut DCtx", "zstd_dctx *", ""),
    ("*mut CDict", "zstd_cdict *", ""),
    ("*mut DDict", "zstd_ddict *", ""),
    ("CustomMem", "zstd_custom_mem", ""),
    ("*const Sequence", "const zstd_sequence *", ""),
    ("Option<&'static mut CDict>", "zstd_cdict *", "ZSTD_CDict *"),
    ("Option<&'static CDict>", "", "const ZSTD_CDict *"),
    ("Option<&CDict>", "const zstd_cdict *", "const ZSTD_CDict *"),
    ("Option<&'static mut DDict>", "zstd_ddict *", "ZSTD_DDict *"),
    ("Option<&'static DDict>", "", "const ZSTD_DDict *"),
    ("Option<&DDict>", "const zstd_ddict *", "const ZSTD_DDict *"),
    (
        "Option<&mut InBuffer>",
        "zstd_in_buffer *",
        "ZSTD_inBuffer *",
    ),
    (
        "Option<&mut OutBuffer>",
        "zstd_out_buffer *",
        "ZSTD_outBuffer *",
    ),
    ("Option<&Parameters>", "const zstd_parameters *", ""),
    ("Parameters", "zstd_parameters", "ZSTD_parameters"),
    ("Compression", "", "ZSTD_compressionParameters"),
    ("CompressionParameters", "zstd_compression_parameters", ""),
    (
        "Option<&CompressionParameters>",
        "const zstd_compression_parameters *",
        "",
    ),
    (
        "Option<&mut MaybeUninit<FrameHeader>>",
        "zstd_frame_header *",
        "",
    ),
    (
        "Option<&mut MaybeUninit<FrameParams>>",
        "",
        "ZSTD_frameParams *",
    ),
];

/// Declarations as Rust has them: a compiler that has seen the header refuses other types.
fn declarations(sources: &[&str], is_legacy: bool) -> String {
    let in_c = |rust: &str| {
        let found = TYPES.iter().find(|(of_rust, ..)| *of_rust == rust);
        let name = found.map_or("", |(_, modern, old)| if is_legacy { old } else { modern });
        assert!(!name.is_empty(), "`{rust}` has no name in C");
        name
    };
    let mut text = String::new();
    for (name, (parameters, result)) in functions(sources) {
        let parameters: Vec<&str> = parameters.iter().map(|of_it| in_c(of_it)).collect();
        let parameters = match parameters.len() {
            0 => "void".to_owned(),
            _ => parameters.join(", "),
        };
        writeln!(text, "{} {name}({parameters});", in_c(&result)).expect("a string grows");
    }
    text
}

/// Checks of sizes and offsets.
macro_rules! layout {
    ($text:ident, $c:literal, $rust:ty, $($field:ident $place:expr),*) => {
        writeln!($text, "_Static_assert(sizeof({}) == {}, \"\");", $c, size_of::<$rust>()).unwrap();
        $(writeln!($text, "_Static_assert(offsetof({}, {}) == {}, \"\");", $c, stringify!($field), $place).unwrap();)*
    };
}

fn accepted_by_the_compiler(name: &str, text: &str) {
    let Some(mut cc) = testkit::tool("cc").map(|cc| cc.command()) else {
        return;
    };
    let file = scratch().join(format!("{name}-{}.c", std::process::id()));
    fs::write(&file, text).expect("a file");
    cc.args(STRICT)
        .args(["-std=c11", "-fsyntax-only", "-I"])
        .arg(installed().join("include"))
        .arg(&file);
    output_of(&mut cc);
    let _ = fs::remove_file(file);
}

#[test]
fn header_of_the_modern_interface() {
    let names: BTreeSet<String> = functions(&MODERN).into_keys().collect();
    assert_eq!(names, declared("zstd.h"));
    let mut text = String::from("#include <restow/zstd.h>\n");
    layout!(text, "zstd_compression_parameters", CompressionParameters,
        windowLog offset_of!(CompressionParameters, window_log), chainLog offset_of!(CompressionParameters, chain_log),
        hashLog offset_of!(CompressionParameters, hash_log), searchLog offset_of!(CompressionParameters, search_log),
        minMatch offset_of!(CompressionParameters, min_match), targetLength offset_of!(CompressionParameters, target_length),
        strategy offset_of!(CompressionParameters, strategy));
    layout!(text, "zstd_frame_parameters", modern::FrameParameters,
        contentSizeFlag offset_of!(modern::FrameParameters, content_size_flag),
        checksumFlag offset_of!(modern::FrameParameters, checksum_flag),
        noDictIDFlag offset_of!(modern::FrameParameters, no_dict_id_flag));
    layout!(text, "zstd_parameters", modern::Parameters,
        cParams offset_of!(modern::Parameters, compression), fParams offset_of!(modern::Parameters, frame));
    layout!(text, "zstd_in_buffer", InBuffer,
        src offset_of!(InBuffer, src), size offset_of!(InBuffer, size), pos offset_of!(InBuffer, pos));
    layout!(text, "zstd_out_buffer", OutBuffer,
        dst offset_of!(OutBuffer, dst), size offset_of!(OutBuffer, size), pos offset_of!(OutBuffer, pos));
    layout!(text, "zstd_frame_header", FrameHeader,
        frameContentSize offset_of!(FrameHeader, frame_content_size), windowSize offset_of!(FrameHeader, window_size),
        blockSizeMax offset_of!(FrameHeader, block_size_max), frameType offset_of!(FrameHeader, frame_type),
        headerSize offset_of!(FrameHeader, header_size), dictID offset_of!(FrameHeader, dict_id),
        checksumFlag offset_of!(FrameHeader, checksum_flag));
    layout!(text, "zstd_custom_mem", CustomMem, customAlloc offset_of!(CustomMem, alloc),
        customFree offset_of!(CustomMem, free), opaque offset_of!(CustomMem, opaque));
    layout!(text, "zstd_sequence", Sequence, offset offset_of!(Sequence, offset),
        litLength offset_of!(Sequence, literal_length), matchLength offset_of!(Sequence, match_length),
        rep offset_of!(Sequence, rep));
    for (number, name, _) in ffi::modern::ERRORS {
        writeln!(text, "_Static_assert(zstd_error_{name} == {number}, \"\");").unwrap();
    }
    text += &declarations(&MODERN, false);
    accepted_by_the_compiler("modern", &text);
}

/// The functions of `linux/zstd.h` with the 1.5.7 of the C library.
const LINUX: [&str; 42] = [
    "zstd_cctx_set_param",
    "zstd_cctx_workspace_bound",
    "zstd_cctx_workspace_bound_with_ext_seq_prod",
    "zstd_compress_bound",
    "zstd_compress_cctx",
    "zstd_compress_sequences_and_literals",
    "zstd_compress_stream",
    "zstd_compress_using_cdict",
    "zstd_create_cctx_advanced",
    "zstd_create_cdict_byreference",
    "zstd_create_dctx_advanced",
    "zstd_create_ddict_byreference",
    "zstd_cstream_workspace_bound",
    "zstd_cstream_workspace_bound_with_ext_seq_prod",
    "zstd_dctx_workspace_bound",
    "zstd_decompress_dctx",
    "zstd_decompress_stream",
    "zstd_decompress_using_ddict",
    "zstd_default_clevel",
    "zstd_dstream_workspace_bound",
    "zstd_end_stream",
    "zstd_find_frame_compressed_size",
    "zstd_flush_stream",
    "zstd_free_cctx",
    "zstd_free_cdict",
    "zstd_free_dctx",
    "zstd_free_ddict",
    "zstd_get_cparams",
    "zstd_get_error_code",
    "zstd_get_error_name",
    "zstd_get_frame_header",
    "zstd_get_params",
    "zstd_init_cctx",
    "zstd_init_cstream",
    "zstd_init_dctx",
    "zstd_init_dstream",
    "zstd_is_error",
    "zstd_max_clevel",
    "zstd_min_clevel",
    "zstd_register_sequence_producer",
    "zstd_reset_cstream",
    "zstd_reset_dstream",
];

/// Each function of Linux is named once in the header's table: as whole, partial or refused.
#[test]
fn table_of_the_modern_header_names_each_function_once() {
    let path = folder().join("include/restow/zstd.h");
    let text = fs::read_to_string(path).expect("a header");
    let (_, rest) = text.split_once("   whole ").expect("a table");
    let (table, _) = rest.split_once("*/").expect("an end");
    assert!(table.contains("   partial ") && table.contains("   refused "));
    let words = table.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut named: Vec<&str> = words.filter(|word| word.starts_with("zstd_")).collect();
    named.sort_unstable();
    assert_eq!(named, LINUX);
    let declared: Vec<String> = declared("zstd.h").into_iter().collect();
    assert_eq!(named, declared);
}

#[test]
fn header_of_2017() {
    let mut names: BTreeSet<String> = functions(&LEGACY).into_keys().collect();
    assert_eq!(names, declared("zstd_2017.h"));
    // The list of pointers is in the form of their documentation.
    let _: &pointers::Pointer = &pointers::__ZSTD_initCCtx;
    let listed = fs::read_to_string(folder().join("src/legacy/pointers.rs")).expect("a source");
    let pointers = listed.split_whitespace();
    let pointers = pointers.filter_map(|word| word.strip_prefix("__ZSTD_"));
    let pointers: Vec<String> = pointers.map(|name| format!("ZSTD_{name}")).collect();
    assert_eq!(pointers.len(), 61);
    for name in pointers {
        assert!(names.remove(&name), "{name}");
    }
    assert!(names.is_empty(), "without a pointer: {names:?}");

    let mut text = String::from("#include <restow/zstd_2017.h>\n");
    layout!(text, "ZSTD_compressionParameters", old::Compression,
        windowLog offset_of!(old::Compression, window_log), chainLog offset_of!(old::Compression, chain_log),
        hashLog offset_of!(old::Compression, hash_log), searchLog offset_of!(old::Compression, search_log),
        searchLength offset_of!(old::Compression, search_length), targetLength offset_of!(old::Compression, target_length),
        strategy offset_of!(old::Compression, strategy));
    layout!(text, "ZSTD_frameParameters", old::FrameParameters,
        contentSizeFlag offset_of!(old::FrameParameters, content_size_flag),
        checksumFlag offset_of!(old::FrameParameters, checksum_flag),
        noDictIDFlag offset_of!(old::FrameParameters, no_dict_id_flag));
    layout!(text, "ZSTD_parameters", old::Parameters,
        cParams offset_of!(old::Parameters, compression), fParams offset_of!(old::Parameters, frame));
    layout!(text, "ZSTD_inBuffer", InBuffer,
        src offset_of!(InBuffer, src), size offset_of!(InBuffer, size), pos offset_of!(InBuffer, pos));
    layout!(text, "ZSTD_outBuffer", OutBuffer,
        dst offset_of!(OutBuffer, dst), size offset_of!(OutBuffer, size), pos offset_of!(OutBuffer, pos));
    layout!(text, "ZSTD_frameParams", FrameParams,
        frameContentSize offset_of!(FrameParams, frame_content_size), windowSize offset_of!(FrameParams, window_size),
        dictID offset_of!(FrameParams, dict_id), checksumFlag offset_of!(FrameParams, checksum_flag));
    for (number, name) in ffi::legacy::ERRORS.iter().enumerate() {
        writeln!(text, "_Static_assert(ZSTD_error_{name} == {number}, \"\");").unwrap();
    }
    text += &declarations(&LEGACY, true);
    accepted_by_the_compiler("legacy", &text);
}

#[test]
fn header_of_xxhash() {
    let names: BTreeSet<String> = functions(&["xxhash.rs"]).into_keys().collect();
    assert_eq!(names, declared("xxhash.h"));
    // The fields are Linux'; Rust has the sizes.
    let mut text = String::from("#include <restow/xxhash.h>\n");
    layout!(text, "struct xxh32_state", Xxh32State, large_len 4, v1 8, v4 20, mem32 24, memsize 40);
    layout!(text, "struct xxh64_state", Xxh64State, v1 8, v4 32, mem64 40, memsize 72);
    accepted_by_the_compiler("xxhash", &text);
}
