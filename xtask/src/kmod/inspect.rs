//! The rules for a built module: only instructions that a kernel may run, no panic, and frames
//! and chains of calls that fit on its stack.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Modules, objdump};
use crate::command::output_of;
use crate::outcome::Outcome;

/// A module, and how much of everything it may need.
struct Gate {
    module: &'static str,
    /// Bytes of instructions.
    text_max: usize,
    /// Bytes of stack of one function, with its return address.
    frame_max: usize,
    /// Bytes of stack of a function and all that it calls.
    chain_max: usize,
}

/// What must hold: docs/decisions/kernel-modules.md.
const GATES: &[Gate] = &[
    Gate {
        module: "xxhash",
        text_max: 4 << 10,
        frame_max: 100,
        chain_max: 200,
    },
    Gate {
        module: "zstd_compress",
        text_max: 220_000,
        frame_max: 768,
        chain_max: 3072,
    },
    Gate {
        module: "zstd_decompress",
        text_max: 63_000,
        frame_max: 399,
        chain_max: 2559,
    },
    // Both directions again, for modules outside the tree.
    Gate {
        module: "zstd_2017",
        text_max: 296_000,
        frame_max: 768,
        chain_max: 3072,
    },
];

/// What the Rust half of a module takes from the kernel, and from its own half of C.
const TAKEN: &[&str] = &[
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "__x86_return_thunk",
];

/// Functions that call those of the caller for memory.
const CALLERS: &[&str] = &[
    "allocator::CustomMem>::block",
    "allocator::AllocatedBytes>::free",
];

/// The modules of C alone, whose instructions are looked at as well.
const DEVICES: &[&str] = &["xxhash_test", "zstd_compress_test", "zstd_decompress_test"];

/// Looks at all modules.
pub(super) fn inspect(modules: &Modules) -> Outcome {
    let mut outcome = Outcome::default();
    println!(
        "modules for {} (package version {})",
        modules.kernel.release, modules.kernel.version
    );
    println!("module               text  largest frame  deepest chain  panics");
    let codecs = GATES.iter().map(|gate| format!("restow_{}", gate.module));
    let names = codecs.chain(DEVICES.iter().map(|name| (*name).to_owned()));
    for name in names {
        let of_it = instructions(&modules.folder.join(format!("{name}.ko")));
        outcome.add(verdict(&name, of_it));
    }
    outcome.add(verdict("exports", missing_functions(modules)));
    for gate in GATES {
        let object = modules.folder.join(format!("{}_rust.o", gate.module));
        outcome.add(verdict(gate.module, taken(&object)));
        outcome.add(verdict(gate.module, stack(gate, &object)));
    }
    outcome
}

/// Functions that headers of the kernel declare and no module exports.
fn missing_functions(modules: &Modules) -> Result<Vec<String>, String> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))
    };
    let symbols = read(&modules.folder.join("Module.symvers"))?;
    let exported: BTreeSet<&str> = (symbols.lines())
        .filter_map(|line| line.split('\t').nth(1)?.strip_prefix("restow_"))
        .collect();
    // The headers that all kernels of one version share.
    let makefile = read(&modules.kernel.headers.join("Makefile"))?;
    let shared = makefile
        .lines()
        .find_map(|line| line.strip_prefix("include "));
    let shared = shared.and_then(|line| Path::new(line).parent());
    let mut shared = shared
        .ok_or("the kernel's headers include no others")?
        .to_owned();
    if modules.kernel.is_installed {
        // That path is one of the kernel's Debian.
        shared = (modules.kernel.root).join(shared.strip_prefix("/").unwrap_or(&shared));
    }
    let mut findings = Vec::new();
    for header in ["zstd", "xxhash"] {
        let text = read(&shared.join(format!("include/linux/{header}.h")))?;
        let names = declared(&text);
        if names.len() < 5 {
            findings.push(format!("{header}.h declares {names:?} alone"));
        }
        let missing = names.into_iter().filter(|name| !exported.contains(name));
        findings.extend(missing.map(|name| format!("{name} of {header}.h is missing")));
    }
    Ok(findings)
}

/// The functions that a header of Linux declares.
fn declared(header: &str) -> Vec<&str> {
    let lines = header.lines().filter(|line| {
        line.starts_with(|c: char| c.is_ascii_lowercase()) && !line.starts_with("static")
    });
    let before = lines.filter_map(|line| Some(line.split_once('(')?.0));
    before
        .filter_map(|start| start.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("zstd_") || name.starts_with("xxh"))
        .collect()
}

fn verdict(module: &str, found: Result<Vec<String>, String>) -> Outcome {
    match found {
        Ok(findings) if findings.is_empty() => Outcome::passed(),
        Ok(findings) => Outcome {
            failed: (findings.into_iter())
                .map(|finding| format!("{module}: {finding}"))
                .collect(),
            ..Outcome::default()
        },
        Err(reason) => Outcome::failed(format!("{module}: {reason}")),
    }
}

/// Instructions that a kernel must not run.
fn instructions(module: &Path) -> Result<Vec<String>, String> {
    let text = objdump(&["-d", "--no-show-raw-insn"], module)?;
    let mut findings = Vec::new();
    let mut function = "";
    for line in text.lines() {
        if let Some(name) = function_name(line) {
            function = name;
        }
        let Some((mnemonic, operands)) = instruction(line) else {
            continue;
        };
        if let Some(what) = forbidden(mnemonic, operands) {
            findings.push(format!("{what} in {function}: {}", line.trim()));
        }
    }
    Ok(findings)
}

/// Why a kernel that defends itself runs no such instruction.
fn forbidden(mnemonic: &str, operands: &str) -> Option<&'static str> {
    // Its registers belong to the process that called.
    let floating = ["%xmm", "%ymm", "%zmm", "%mm", "%st", "%k"];
    if floating.iter().any(|register| operands.contains(register)) {
        return Some("a register of SSE, AVX or x87");
    }
    // Written as jumps to a thunk, which stops speculation.
    if matches!(mnemonic, "ret" | "retq") {
        return Some("a bare return");
    }
    let is_branch = mnemonic.starts_with("call") || mnemonic.starts_with("jmp");
    if is_branch && operands.starts_with('*') {
        return Some("an indirect branch");
    }
    // An interrupt overwrites it.
    let before = operands.split_once("(%rsp)").map(|(before, _)| before);
    let displacement = before.and_then(|before| before.rsplit(',').next());
    if displacement.is_some_and(|displacement| displacement.starts_with("-0x")) {
        return Some("a use of the red zone");
    }
    None
}

/// The symbols that an object lacks must be those that are known.
fn taken(object: &Path) -> Result<Vec<String>, String> {
    let list = output_of(Command::new("nm").arg("--undefined-only").arg(object))?;
    let symbols = list
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    Ok(symbols
        .filter(|symbol| !TAKEN.contains(symbol) && !symbol.starts_with("__x86_indirect_thunk_"))
        .map(|symbol| format!("takes {symbol} from elsewhere"))
        .collect())
}

/// A function of a disassembly.
#[derive(Debug, Default, PartialEq, Eq)]
struct Function {
    /// Bytes of stack, with the return address.
    frame: usize,
    calls: BTreeSet<String>,
    /// Calls whose target only running tells.
    unknown: usize,
    /// Calls of functions that panic.
    panics: usize,
}

/// How much stack the functions of an object take.
fn stack(gate: &Gate, object: &Path) -> Result<Vec<String>, String> {
    let mut functions = functions(&objdump(&["-dr", "--no-show-raw-insn"], object)?);
    let mut findings = Vec::new();
    // What they call on their way is no other panic, and no part of a chain that returns.
    functions.retain(|name, _| !is_panic(name) && !name.contains("rust_begin_unwind"));
    let size = text_size(object)?;
    let largest = functions.iter().max_by_key(|(_, function)| function.frame);
    let (largest, frame) = largest.map_or(("", 0), |(name, function)| (name, function.frame));
    let mut chains = Chains {
        functions: &functions,
        known: BTreeMap::new(),
    };
    let deepest = (functions.keys())
        .map(|name| (chains.depth(name, &mut Vec::new()), name))
        .max();
    let (chain, entry) = deepest.map_or((Ok(0), ""), |(depth, name)| (depth, name));
    let chain = chain.map_err(|name| format!("{name} calls itself"))?;
    let panics: usize = functions.values().map(|it| it.panics).sum();
    println!(
        "{:<16} {size:>8} {frame:>14} {chain:>14} {panics:>7}",
        gate.module
    );
    println!("    frame of {frame}: {}", readable(largest));
    println!("    chain of {chain}:");
    for name in chains.way(entry) {
        println!("        {:>5} {}", functions[name].frame, readable(name));
    }
    for (name, function) in &functions {
        if function.unknown > 0 && !CALLERS.iter().any(|caller| readable(name).contains(caller)) {
            findings.push(format!("{} calls what only running tells", readable(name)));
        }
        if function.panics > 0 {
            findings.push(format!("{} panics in {}", function.panics, readable(name)));
        }
    }
    for (what, found, max) in [
        ("bytes of text", size, gate.text_max),
        ("bytes of stack in one function", frame, gate.frame_max),
        ("bytes of stack in a chain of calls", chain, gate.chain_max),
    ] {
        if found > max {
            findings.push(format!("{found} {what} are more than {max}"));
        }
    }
    Ok(findings)
}

/// The depths of chains of calls.
struct Chains<'f> {
    functions: &'f BTreeMap<String, Function>,
    known: BTreeMap<&'f str, usize>,
}

impl<'f> Chains<'f> {
    /// Bytes of stack of a function and all that it calls; if it calls itself, its name.
    ///
    /// What is not in the object counts nothing: the kernel's copies of memory need next to
    /// nothing, and a panic does not return.
    fn depth(&mut self, name: &str, path: &mut Vec<&'f str>) -> Result<usize, &'f str> {
        let Some((name, function)) = self.functions.get_key_value(name) else {
            return Ok(0);
        };
        if let Some(depth) = self.known.get(&**name) {
            return Ok(*depth);
        }
        if path.contains(&&**name) {
            return Err(name);
        }
        path.push(name);
        let mut below = 0;
        for call in &function.calls {
            below = below.max(self.depth(call, path)?);
        }
        path.pop();
        self.known.insert(name, function.frame + below);
        Ok(function.frame + below)
    }

    /// The functions of the deepest chain from `entry`.
    fn way(&self, entry: &'f str) -> Vec<&'f str> {
        let mut way = Vec::new();
        let mut at = Some(entry);
        while let Some((name, function)) = at.and_then(|name| self.functions.get_key_value(name)) {
            way.push(&**name);
            let calls = function.calls.iter().map(|call| &**call);
            at = calls.max_by_key(|call| self.known.get(call));
        }
        way
    }
}

/// The functions of a disassembly with relocations.
fn functions(text: &str) -> BTreeMap<String, Function> {
    let mut starts = BTreeMap::new();
    for line in text.lines() {
        if let (Some(name), Some(start)) = (function_name(line), line.split(' ').next()) {
            starts.insert(usize::from_str_radix(start, 16).unwrap_or(0), name);
        }
    }
    let mut functions = BTreeMap::new();
    let mut name = "";
    let mut pushed = BTreeSet::new();
    let mut reserved = 0;
    // A branch whose target the next line may name, as a relocation.
    let mut branch: Option<Branch> = None;
    for line in text.lines() {
        let found = relocation(line).map(|target| target_name(target, &starts));
        if let (Some(branch), Some(function)) = (branch.take(), functions.get_mut(name)) {
            note(function, name, branch, found);
        }
        if let Some(found) = function_name(line) {
            name = found;
            (pushed, reserved) = (BTreeSet::new(), 0);
            functions.insert(name.to_owned(), Function::default());
        }
        let (Some(function), Some((mnemonic, operands))) =
            (functions.get_mut(name), instruction(line))
        else {
            continue;
        };
        match mnemonic {
            "push" | "pushq" => {
                pushed.insert(operands.to_owned());
            }
            "sub" | "subq" | "add" | "addq" | "and" | "andq" => {
                reserved = reserved.max(moved(mnemonic, operands));
            }
            _ if mnemonic.starts_with("call") || mnemonic.starts_with('j') => {
                branch = Some(Branch {
                    is_call: mnemonic.starts_with("call"),
                    target: named(operands).to_owned(),
                });
            }
            _ => {}
        }
        function.frame = 8 + 8 * pushed.len() + reserved;
    }
    if let (Some(branch), Some(function)) = (branch, functions.get_mut(name)) {
        note(function, name, branch, None);
    }
    functions
}

/// A call or a jump.
struct Branch {
    is_call: bool,
    /// The function that the instruction names, which is not the right one if there is a
    /// relocation.
    target: String,
}

/// Notes where a branch of the function `name` leads: as a relocation says, if there is one.
fn note(function: &mut Function, name: &str, branch: Branch, relocation: Option<String>) {
    let is_known = relocation.is_some();
    let target = relocation.unwrap_or(branch.target);
    // A jump within the function calls nothing.
    if branch.is_call || is_known || target != name {
        call(function, &target);
    }
}

/// The function in the operand of a branch: `20 <outer+0x10>`.
fn named(operand: &str) -> &str {
    let target = operand.split_once('<').map(|(_, rest)| rest);
    target
        .and_then(|rest| rest.split(['>', '+', '-']).next())
        .unwrap_or(operand)
}

/// Notes a call, or a jump out of the function, which ends like one.
fn call(function: &mut Function, target: &str) {
    if target.starts_with("__x86_indirect_thunk") {
        function.unknown += 1;
    }
    function.panics += usize::from(is_panic(target));
    function.calls.insert(target.to_owned());
}

/// Whether a function only panics, as those of `core` do that are called where a check fails.
fn is_panic(function: &str) -> bool {
    function.contains("panic") || function.contains("_fail") || function.contains("unwrap_failed")
}

/// By how much an instruction moves the stack pointer down, by an amount that it states.
fn moved(mnemonic: &str, operands: &str) -> usize {
    let Some(amount) = operands
        .strip_prefix("$0x")
        .and_then(|rest| rest.strip_suffix(",%rsp"))
    else {
        return 0;
    };
    let amount = u64::from_str_radix(amount, 16).unwrap_or(0);
    let amount = match mnemonic {
        "sub" | "subq" => amount,
        // Adding or keeping what is negative.
        _ if amount >> 63 == 1 => amount.wrapping_neg(),
        _ => 0,
    };
    usize::try_from(amount).unwrap_or(usize::MAX)
}

/// The name in the line that begins a function: `0000000000000010 <name>:`.
fn function_name(line: &str) -> Option<&str> {
    let (address, rest) = line.split_once(" <")?;
    let is_address = !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit());
    rest.strip_suffix(">:").filter(|_| is_address)
}

/// The mnemonic without prefixes, and the operands, of a line of a disassembly: ` 1c:\tcs call 21
/// <f+0x11>`.
fn instruction(line: &str) -> Option<(&str, &str)> {
    let (address, text) = line.split_once(":\t")?;
    if !address.trim().bytes().all(|b| b.is_ascii_hexdigit()) || text.starts_with("R_X86_64") {
        return None;
    }
    let mut text = text.trim();
    loop {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let is_prefix = matches!(
            word,
            "cs" | "ds" | "rep" | "repz" | "repnz" | "lock" | "notrack" | "data16"
        );
        if !is_prefix || rest.is_empty() {
            return Some((word, rest.trim()));
        }
        text = rest.trim();
    }
}

/// What a relocation of a branch refers to: `\t\t\t1d: R_X86_64_PLT32\tmemcpy-0x4`.
fn relocation(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(": R_X86_64_")?;
    let (_, target) = rest.split_once('\t')?;
    Some(target.trim())
}

/// The function at a relocation's target: a symbol, or a place in the section of all functions.
fn target_name(target: &str, starts: &BTreeMap<usize, &str>) -> String {
    let (symbol, offset) = match target.rsplit_once(['+', '-']) {
        Some((symbol, offset)) => (symbol, offset.trim_start_matches("0x")),
        None => (target, "0"),
    };
    if symbol != ".text" {
        return symbol.to_owned();
    }
    // A branch counts from its end, four bytes behind the relocation.
    let offset = usize::from_str_radix(offset, 16).unwrap_or(0);
    let at = if target.contains('-') { 0 } else { offset + 4 };
    let start = starts.range(..=at).next_back();
    start.map_or(symbol, |(_, name)| name).to_owned()
}

/// Bytes of instructions in an object.
fn text_size(object: &Path) -> Result<usize, String> {
    let text = objdump(&["-h"], object)?;
    let mut words = text.lines().map(str::split_whitespace);
    let size = words.find_map(|mut words| (words.nth(1)? == ".text").then(|| words.next())?);
    size.and_then(|size| usize::from_str_radix(size, 16).ok())
        .ok_or_else(|| "there is no text".to_owned())
}

/// A symbol as it stands in the source, if there is a program that knows how.
fn readable(symbol: &str) -> String {
    let readable = output_of(Command::new("c++filt").arg(symbol));
    readable.map_or(symbol.to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_header_are_found() {
        let header = "/*\n * zstd_a() is one\n */\nsize_t zstd_a(int b);\nconst char *zstd_c(\n\tint d);\n\
            static inline int xxhash(void)\ntypedef int zstd_e;\nuint64_t xxh64(int f);\n";
        assert_eq!(declared(header), ["zstd_a", "zstd_c", "xxh64"]);
    }

    const LISTING: &str = "\
0000000000000010 <outer>:
      10:\tendbr64
      14:\tpush   %rbp
      15:\tpush   %rbx
      16:\tsub    $0x28,%rsp
      1a:\tcs call 20 <outer+0x10>
\t\t\t1c: R_X86_64_PLT32\tmemcpy-0x4
      20:\tcall   40 <inner>
      25:\tjmp    16 <outer+0x6>
      2a:\tcall   2f <outer+0x1f>
\t\t\t2b: R_X86_64_PLT32\t.text+0x3c
      2f:\tjmp    34 <outer+0x24>
\t\t\t30: R_X86_64_PLT32\t__x86_return_thunk-0x4

0000000000000040 <inner>:
      40:\tadd    $0xffffffffffffff80,%rsp
      44:\tcall   49 <inner+0x9>
\t\t\t45: R_X86_64_PLT32\t_ZN4core9panicking5panic17hE-0x4
";

    #[test]
    fn frames_and_chains_are_read_from_the_listing() {
        let functions = functions(LISTING);
        let outer = &functions["outer"];
        assert_eq!(outer.frame, 8 + 16 + 0x28);
        let calls: Vec<_> = outer.calls.iter().map(String::as_str).collect();
        assert_eq!(calls, ["__x86_return_thunk", "inner", "memcpy"]);
        assert_eq!(
            (functions["inner"].frame, functions["inner"].panics),
            (136, 1)
        );
        let mut chains = Chains {
            functions: &functions,
            known: BTreeMap::new(),
        };
        assert_eq!(chains.depth("outer", &mut Vec::new()), Ok(64 + 136));
        assert_eq!(chains.way("outer"), ["outer", "inner"]);
    }

    #[test]
    fn recursion_is_found() {
        let listing = "00 <f>:\n  0:\tcall   0 <f>\n";
        let functions = functions(listing);
        let mut chains = Chains {
            functions: &functions,
            known: BTreeMap::new(),
        };
        assert_eq!(chains.depth("f", &mut Vec::new()), Err("f"));
    }

    #[test]
    fn forbidden_instructions_are_found() {
        let verdict = |line| instruction(line).and_then(|(word, rest)| forbidden(word, rest));
        for line in [
            "  10:\tmovaps %xmm0,(%rax)",
            "  10:\tfldt   %st(1)",
            "  10:\tret",
            "  10:\trepz ret",
            "  10:\tjmp    *%rax",
            "  10:\tnotrack call *0x8(%rdi)",
            "  10:\tmov    %rax,-0x8(%rsp)",
        ] {
            assert!(verdict(line).is_some(), "{line}");
        }
        for line in [
            "  10:\tjmp    20 <f+0x10>",
            "  10:\tmov    %rax,0x8(%rsp)",
            "  10:\tmov    -0x8(%rsp,%rcx,1),%rax",
            "  10:\tlea    -0x8(%rbp),%rsp",
        ] {
            assert_eq!(verdict(line), None, "{line}");
        }
    }

    #[test]
    fn indirect_calls_are_noted() {
        let listing = "00 <f>:\n  0:\tcall   5 <f+0x5>\n\t\t\t1: R_X86_64_PLT32\t__x86_indirect_thunk_rax-0x4\n";
        assert_eq!(functions(listing)["f"].unknown, 1);
    }
}
