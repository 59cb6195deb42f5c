//! How deep the codec goes down the stack, as it runs in a kernel: optimised.
//!
//! The compiler's assembly says how large the frame of each function is and what it calls, whatever
//! the frames that are decoded. Beside that, decoding is looked at: a function paints the stack
//! below the test and returns; then the decoder runs there; then the paint that is left is read
//! through `/proc/self/mem`, which needs no unsafe code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use zstd::{DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, Status};

/// What the kernel's makefiles warn about, in bytes of one function.
const FRAME_MAX: usize = 400;
/// What the kernel's own test of its zstd allows, 2,048 + 512 bytes in total.
const DEPTH_MAX: usize = 2560;

/// One function of the assembly.
#[derive(Default)]
struct Function {
    /// Bytes of stack, with the return address.
    frame: usize,
    calls: BTreeSet<String>,
    /// Called when the own frame is gone already.
    tail_calls: BTreeSet<String>,
    /// A call of which only running tells where it goes.
    unknown: Option<String>,
    /// Places from which it panics.
    panics: usize,
}

/// The functions of the crate, compiled with `features`, and of what it builds on.
fn functions(features: &[&str]) -> BTreeMap<String, Function> {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stack-{}", features.join("-")));
    std::fs::create_dir_all(&out).expect("a folder");
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    compile(&crates.join("xxhash/src/lib.rs"), "xxhash", &[], &out);
    compile(&crates.join("zstd/src/lib.rs"), "zstd", features, &out);
    let mut functions = BTreeMap::new();
    for name in ["xxhash", "zstd"] {
        let file = out.join(format!("{name}.s"));
        read_assembly(
            &std::fs::read_to_string(file).expect("assembly"),
            &mut functions,
        );
    }
    functions
}

fn compile(source: &Path, name: &str, features: &[&str], out: &Path) {
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let mut command = Command::new(rustc);
    command.args([
        "--edition=2024",
        "--crate-type=rlib",
        // No objects: the next crate needs nothing but what the compiler knows of this one.
        "--emit=metadata,asm",
        "--crate-name",
        name,
    ]);
    command.args([
        "--cap-lints=allow",
        "-Copt-level=3",
        "-Ccodegen-units=1",
        "-Cpanic=abort",
        // Calls name their functions.
        "-Crelocation-model=static",
    ]);
    command.arg("-L").arg(out).arg("--out-dir").arg(out);
    if name == "zstd" {
        let known = out.join("libxxhash.rmeta");
        command.arg("--extern");
        command.arg(format!("xxhash={}", known.display()));
    }
    for feature in features {
        command.arg(format!("--cfg=feature=\"{feature}\""));
    }
    let output = command.arg(source).output().expect("rustc runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "rustc: {said}");
}

fn read_assembly(text: &str, functions: &mut BTreeMap<String, Function>) {
    let mut name = String::new();
    // The functions whose addresses registers hold, for calls that come more than once. Lines are
    // not in the order in which they run: what else a register is used for is passed over.
    let mut held = BTreeMap::new();
    for line in text.lines() {
        if let Some(label) = line.strip_suffix(':')
            && !label.starts_with(['.', ' ', '\t'])
        {
            name = label.to_owned();
            held.clear();
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(word), Some(operand)) = (words.next(), words.next()) else {
            continue;
        };
        let function = functions.entry(name.clone()).or_default();
        match word {
            // How far the stack pointer is below where it was before the call.
            ".cfi_def_cfa_offset" => {
                function.frame = function.frame.max(operand.parse().expect("a number"));
            }
            "movq" => {
                let register = words.next().unwrap_or_default();
                let operand = operand.trim_end_matches(',');
                let loaded = operand.split_once("@GOTPCREL");
                if let Some(function) = match loaded {
                    Some((function, _)) => Some(function),
                    None => held.get(operand).copied(),
                } {
                    held.insert(register, function);
                }
            }
            "callq" | "call" | "jmp" | "jmpq" => {
                let target = operand.trim_start_matches('*');
                let target = target.split('@').next().unwrap_or(target);
                let target = held.get(target).copied().unwrap_or(target);
                if target.starts_with(".L") {
                    continue;
                }
                let jump = word.starts_with('j');
                // A jump to an address is that of a `match`.
                let known = !target.starts_with(['%', '(']) && !target.contains('(');
                if !known && !jump {
                    function.unknown = Some(line.to_owned());
                }
                let panics = ["9panicking", "_fail"];
                function.panics += usize::from(panics.iter().any(|word| target.contains(word)));
                if known {
                    let calls = if jump {
                        &mut function.tail_calls
                    } else {
                        &mut function.calls
                    };
                    calls.insert(target.to_owned());
                }
            }
            _ => {}
        }
    }
}

/// Bytes of stack of a function and all that it calls. What is not ours counts nothing: copying of
/// memory needs next to nothing, and a panic would be a bug that has its own test.
fn depth_of<'f>(
    name: &str,
    functions: &'f BTreeMap<String, Function>,
    known: &mut BTreeMap<&'f str, usize>,
    path: &mut Vec<&'f str>,
) -> usize {
    let Some((name, function)) = functions.get_key_value(name) else {
        return 0;
    };
    if let Some(depth) = known.get(&**name) {
        return *depth;
    }
    assert!(!path.contains(&&**name), "{name} calls itself");
    assert_eq!(function.unknown, None, "{name} calls something");
    path.push(name);
    let mut deepest = |calls: &BTreeSet<String>| {
        let depths = calls
            .iter()
            .map(|call| depth_of(call, functions, known, path));
        depths.max().unwrap_or(0)
    };
    let depth = (function.frame + deepest(&function.calls)).max(deepest(&function.tail_calls));
    path.pop();
    known.insert(name, depth);
    depth
}

/// The largest frame.
#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
fn largest_frame(what: &str, functions: &BTreeMap<String, Function>) -> usize {
    let largest = functions.iter().max_by_key(|(_, function)| function.frame);
    let (name, function) = largest.expect("there are functions");
    println!("{what}: a frame of {} bytes in {name}", function.frame);
    function.frame
}

/// The deepest chain of calls.
#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
fn deepest_chain(what: &str, functions: &BTreeMap<String, Function>) -> usize {
    let mut known = BTreeMap::new();
    let depths = functions.keys().map(|name| {
        let depth = depth_of(name, functions, &mut known, &mut Vec::new());
        (depth, name)
    });
    let (depth, entry) = depths.max().expect("there are functions");
    println!("{what}: {depth} bytes from {entry}");
    // The way down, for whoever wants it shorter.
    let mut at = functions.get(entry);
    while let Some(function) = at {
        let calls = function.calls.iter().chain(&function.tail_calls);
        let next = calls.max_by_key(|call| known.get(&***call));
        let Some(name) = next.filter(|call| functions.contains_key(&***call)) else {
            break;
        };
        at = functions.get(name);
        println!("    {} in {name}", at.map_or(0, |function| function.frame));
    }
    depth
}

/// Places that panic: the checks that the compiler could not prove needless.
#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
fn panics(what: &str, functions: &BTreeMap<String, Function>) -> usize {
    for (name, function) in functions {
        if function.panics > 0 {
            println!("    {} panics in {name}", function.panics);
        }
    }
    let panics = functions.values().map(|function| function.panics).sum();
    println!("{what}: {panics} panics");
    panics
}

/// Checks the frames of the crate with `features`, the deepest chain and the places that panic.
#[cfg(target_arch = "x86_64")]
fn check(features: &[&str], frame_max: usize, panics_max: usize) {
    let (what, functions) = (features.join(","), functions(features));
    let frame = largest_frame(&what, &functions);
    assert!(frame <= frame_max, "{what}: a frame of {frame} bytes");
    let depth = deepest_chain(&what, &functions);
    assert!(depth < DEPTH_MAX, "{what}: {depth} bytes of stack");
    let panics = panics(&what, &functions);
    assert!(panics <= panics_max, "{what}: {panics} panics");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn every_frame_of_the_decoder() {
    check(&["arch", "decompress", "alloc", "std"], FRAME_MAX, 0);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn every_frame_of_the_decoder_without_std() {
    check(&["arch", "decompress"], FRAME_MAX, 0);
}

/// Safe code asks where the kernels have proofs.
#[cfg(target_arch = "x86_64")]
#[test]
fn every_frame_of_the_safe_decoder() {
    check(&["decompress"], FRAME_MAX, 13);
}

/// Its frames are larger than the decoder's: that of what a block is planned with, and without
/// kernels that of the lazy search. It goes no deeper than the decoder may, with the largest frame
/// and as many panics as there were when this was written.
#[cfg(target_arch = "x86_64")]
#[test]
fn every_frame_of_the_encoder() {
    check(&["arch", "compress", "alloc", "std"], 496, 358);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn every_frame_of_the_encoder_without_std() {
    check(&["arch", "compress"], 496, 365);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn every_frame_of_the_safe_encoder() {
    check(&["compress"], 640, 1484);
}

const PAINTED: usize = 32 * 1024;
const PAINT: u8 = 0xA5;

/// The address of the lowest painted byte.
#[inline(never)]
fn paint() -> usize {
    let mut paint = [PAINT; PAINTED];
    black_box(&mut paint).as_ptr().addr()
}

/// Bytes of stack below the caller that `run` uses.
#[inline(never)]
fn depth(run: &mut dyn FnMut()) -> usize {
    let lowest = paint();
    run();
    let mut after = vec![0; PAINTED];
    File::open("/proc/self/mem")
        .unwrap()
        .read_exact_at(&mut after, lowest as u64)
        .unwrap();
    let untouched = after.iter().take_while(|&&byte| byte == PAINT).count();
    assert!(untouched < PAINTED, "nothing ran on the painted stack");
    PAINTED - untouched
}

/// Of each kind of literals and tables something.
const FRAMES: &[&[u8]] = &[
    include_bytes!("../../testdata/good-repeat-offsets-mixed.zst"),
    include_bytes!("../../testdata/good-huffman-256-symbols.zst"),
    include_bytes!("../../testdata/good-treeless-four-stream.zst"),
    &[
        0x28, 0xB5, 0x2F, 0xFD, 0x24, 0, 1, 0, 0, 0x99, 0xE9, 0xD8, 0x51,
    ],
];

#[test]
fn shallow() {
    // The kernel's own test allows 2,048 + 512 bytes; unoptimised code is not what runs there.
    let max = if cfg!(debug_assertions) {
        6 * 1024
    } else {
        2560
    };
    let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
    let mut dst = vec![0; 1 << 20];
    let mut stream = vec![0; Decoder::workspace_size(1 << 20).unwrap()];
    let mut decoder = Decoder::new(DecodeOptions::new(), &mut stream).unwrap();
    for frame in FRAMES {
        let once = depth(&mut || {
            zstd::decompress(&mut dst, frame, &mut workspace).unwrap();
        });
        let streamed = depth(&mut || {
            let mut at = 0;
            loop {
                let end = frame.len().min(at + 4096);
                let progress = decoder.step(&frame[at..end], &mut dst).unwrap();
                at += progress.read;
                if progress.status == Status::Done {
                    break;
                }
            }
        });
        assert!(once <= max, "one-shot decoding uses {once} bytes of stack");
        assert!(streamed <= max, "streaming uses {streamed} bytes of stack");
    }
}
