use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{compile, output_of, scratch};

const MODERN: &str = "librestow_zstd.a";
const LEGACY: &str = "librestow_zstd_2017.a";

/// Runs the cases of a program, and compares what has run with their names.
fn run(program: &Path, names: &[&str]) {
    let wrote = output_of(Command::new(program).args(names));
    let run: Vec<&str> = wrote.lines().collect();
    let wanted: Vec<String> = names.iter().map(|name| format!("ok {name}")).collect();
    assert_eq!(run, wanted);
    let all = output_of(&mut Command::new(program));
    assert_eq!(all.lines().count(), names.len(), "a case is not named here");
    let _ = fs::remove_file(program);
}

#[test]
fn user_space_test_of_2017() {
    let Some(program) = compile("userland_2017", &[], &[LEGACY]) else {
        return;
    };
    run(
        &program,
        &[
            "Block_CCtx",
            "Block_NoContentSize",
            "Block_ContentSize",
            "Block_CCtxLevelIncrease",
            "Block_PlainDict",
            "Block_ZstdDict",
            "Block_PreprocessedPlainDict",
            "Block_PreprocessedZstdDict",
            "Block_ReinitializeCCtx",
            "Block_ReinitializeDCtx",
            "Stream_Basic",
            "Stream_PlainDict",
            "Stream_ZstdDict",
            "Stream_ResetCStream",
            "Stream_ResetDStream",
            "Stream_Flush",
            "Stream_DStreamLevelIncrease",
            "API_Symbols",
        ],
    );
}

#[test]
fn pieces_and_blocks_of_2017() {
    let Some(program) = compile("pieces_2017", &[], &[LEGACY]) else {
        return;
    };
    run(
        &program,
        &[
            "calls_that_complete_their_blocks",
            "dictionaries_and_copies",
            "blocks_without_headers",
            "parameters_by_value",
            "looking_at_frames",
            "windows_have_a_limit",
        ],
    );
}

#[test]
fn user_space_test_of_xxhash() {
    expected_hashes();
    let Some(program) = compile("xxhash", &[], &[MODERN]) else {
        return;
    };
    run(
        &program,
        &[
            "Simple_Null",
            "Stream_Null",
            "Simple_TestInputs",
            "Stream_TestInputs",
            "Stream_MultipleTestInputs",
            "Stream_CopyState",
        ],
    );
}

/// Writes `expected.h` with the hashes of another implementation.
fn expected_hashes() {
    const LENGTHS: [usize; 11] = [0, 1, 5, 15, 16, 17, 20, 31, 32, 33, 64];
    let digits = b"0123456789abcdef".repeat(4);
    let inputs = LENGTHS.map(|length| &digits[..length]);
    let mut text = String::from(
        "#include <stdint.h>\n\
         static const struct { uint64_t seed; uint32_t hashes32[11]; uint64_t hashes64[11]; uint32_t all32; uint64_t all64; }\n\
         expected[] = {\n",
    );
    let seeds = std::iter::successors(Some(0_u32), |seed| Some(seed * 13 / 4 + 3));
    for seed in seeds.take_while(|seed| *seed < 100_000) {
        let hash32 = |input: &[u8]| twox_hash::XxHash32::oneshot(seed, input);
        let hash64 = |input: &[u8]| twox_hash::XxHash64::oneshot(seed.into(), input);
        let all = inputs.concat();
        let of_all = (hash32(&all), hash64(&all));
        writeln!(
            text,
            "{{ {seed}, {{ {} }}, {{ {} }}, {}u, {}ull }},",
            inputs.map(|input| format!("{}u", hash32(input))).join(", "),
            inputs
                .map(|input| format!("{}ull", hash64(input)))
                .join(", "),
            of_all.0,
            of_all.1,
        )
        .expect("a string grows");
    }
    text += "};\n";
    // Two tests write the same, and a compiler may be reading it.
    let aside = scratch().join(format!(
        "expected-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    fs::write(&aside, text).expect("a header");
    fs::rename(aside, scratch().join("expected.h")).expect("a header");
}

#[test]
fn fuzz_harnesses() {
    for name in ["fuzz_2017", "fuzz_callers"] {
        let Some(program) = compile(name, &[], &[LEGACY, MODERN]) else {
            return;
        };
        let cases = testkit::cases(500);
        let wrote = output_of(Command::new(&program).arg(cases.to_string()));
        assert_eq!(wrote, format!("ok {cases} inputs\n"));
        let _ = fs::remove_file(program);
    }
}

/// Those that run for long, or look below the stack.
const NOT_FOR_VALGRIND: [&str; 3] = ["btrfs", "stack_of_cases", "bounds_of_frames"];

const MODERN_CASES: [&str; 16] = [
    "f2fs",
    "btrfs",
    "unzstd",
    "empty_frame_into_NULL",
    "stack_of_cases",
    "a_frame_follows_a_frame",
    "flags_of_frames",
    "bounds_of_frames",
    "workspaces_at_any_address",
    "workspaces_that_are_too_small",
    "NULL_is_an_error",
    "parameters_out_of_range",
    "sequence_producers_are_refused",
    "contexts_from_an_allocator",
    "dictionaries",
    "errors_have_their_numbers",
];

#[test]
fn user_space_test_of_the_modern_interface() {
    let Some(program) = compile("modern", &[], &[MODERN]) else {
        return;
    };
    run(&program, &MODERN_CASES);
}

/// No byte is read that was not written, nor one that is not there.
#[test]
fn valgrind_finds_nothing() {
    let Some(valgrind) = testkit::tool("valgrind") else {
        return;
    };
    let check = |program: &Path, arguments: &[&str]| {
        let mut command = valgrind.command();
        command
            .args(["--quiet", "--error-exitcode=9"])
            .arg(program)
            .args(arguments);
        output_of(&mut command);
        let _ = fs::remove_file(program);
    };
    expected_hashes();
    let for_valgrind: Vec<&str> = (MODERN_CASES.into_iter())
        .filter(|name| !NOT_FOR_VALGRIND.contains(name))
        .collect();
    let programs: [(&str, &[&str], &[&str]); 5] = [
        ("modern", &[MODERN], &for_valgrind),
        ("xxhash", &[MODERN], &[]),
        ("pieces_2017", &[LEGACY], &[]),
        ("fuzz_2017", &[LEGACY, MODERN], &["4"]),
        ("fuzz_callers", &[MODERN], &["20"]),
    ];
    for (name, libraries, arguments) in programs {
        if let Some(program) = compile(name, &["-g"], libraries) {
            check(&program, arguments);
        }
    }
}
