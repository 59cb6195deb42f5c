//! The rules for a built module: only instructions that a kernel may run, no panic, and frames
//! and chains of calls that fit on its stack.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use super::arch::Arch;
use super::build::{Modules, objdump};
#[cfg(test)]
use super::listing::LISTING;
use super::listing::{Function, forbidden_in, functions, is_panic};
use crate::command::output_of;
use crate::outcome::Outcome;

/// A module, and how much of everything it may need.
struct Gate {
    module: &'static str,
    /// Bytes of instructions, on x86-64 and on arm64.
    text_max: [usize; 2],
    /// Bytes of stack of one function, with its return address, on both.
    frame_max: [usize; 2],
    /// Bytes of stack of a function and all that it calls.
    chain_max: usize,
}

/// What must hold: docs/decisions/kernel-modules.md.
const GATES: &[Gate] = &[
    Gate {
        module: "xxhash",
        text_max: [4 << 10; 2],
        frame_max: [100; 2],
        chain_max: 200,
    },
    Gate {
        module: "zstd_compress",
        text_max: [220_000, 180_000],
        frame_max: [768; 2],
        chain_max: 3072,
    },
    Gate {
        module: "zstd_decompress",
        text_max: [63_000, 42_000],
        frame_max: [399, 400],
        chain_max: 2559,
    },
    // Both directions again, for modules outside the tree.
    Gate {
        module: "zstd_2017",
        text_max: [296_000, 230_000],
        frame_max: [768; 2],
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
    let arch = modules.kernel.arch;
    println!(
        "modules for {} (package version {})",
        modules.kernel.release, modules.kernel.version
    );
    println!("module               text  largest frame  deepest chain  panics");
    let codecs = GATES.iter().map(|gate| format!("restow_{}", gate.module));
    let names = codecs.chain(DEVICES.iter().map(|name| (*name).to_owned()));
    for name in names {
        let of_it = instructions(arch, &modules.folder.join(format!("{name}.ko")));
        outcome.add(verdict(&name, of_it));
    }
    outcome.add(verdict("exports", missing_functions(modules)));
    for gate in GATES {
        let object = modules.folder.join(format!("{}_rust.o", gate.module));
        outcome.add(verdict(gate.module, taken(arch, &object)));
        outcome.add(verdict(gate.module, stack(arch, gate, &object)));
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
fn instructions(arch: Arch, module: &Path) -> Result<Vec<String>, String> {
    let text = objdump(arch, &["-d", "--no-show-raw-insn"], module)?;
    Ok(forbidden_in(arch, &text))
}

/// The symbols that an object lacks must be those that are known.
fn taken(arch: Arch, object: &Path) -> Result<Vec<String>, String> {
    let list = output_of(
        Command::new(arch.tool("nm"))
            .arg("--undefined-only")
            .arg(object),
    )?;
    let symbols = list
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    Ok(symbols
        .filter(|symbol| !TAKEN.contains(symbol) && !symbol.starts_with("__x86_indirect_thunk_"))
        .map(|symbol| format!("takes {symbol} from elsewhere"))
        .collect())
}

/// How much stack the functions of an object take.
fn stack(arch: Arch, gate: &Gate, object: &Path) -> Result<Vec<String>, String> {
    let mut functions = functions(
        arch,
        &objdump(arch, &["-dr", "--no-show-raw-insn"], object)?,
    );
    let mut findings = Vec::new();
    // What they call on their way is no other panic, and no part of a chain that returns.
    functions.retain(|name, _| !is_panic(name) && !name.contains("rust_begin_unwind"));
    let size = text_size(arch, object)?;
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
        ("bytes of text", size, gate.text_max[arch as usize]),
        (
            "bytes of stack in one function",
            frame,
            gate.frame_max[arch as usize],
        ),
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

/// Bytes of instructions in an object.
fn text_size(arch: Arch, object: &Path) -> Result<usize, String> {
    let text = objdump(arch, &["-h"], object)?;
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

    #[test]
    fn recursion_is_found() {
        let listing = "00 <f>:\n  0:\tcall   0 <f>\n";
        let functions = functions(Arch::Amd64, listing);
        let mut chains = Chains {
            functions: &functions,
            known: BTreeMap::new(),
        };
        assert_eq!(chains.depth("f", &mut Vec::new()), Err("f"));
    }

    #[test]
    fn chains_are_added_up() {
        let functions = functions(Arch::Amd64, LISTING);
        let mut chains = Chains {
            functions: &functions,
            known: BTreeMap::new(),
        };
        assert_eq!(chains.depth("outer", &mut Vec::new()), Ok(64 + 136));
        assert_eq!(chains.way("outer"), ["outer", "inner"]);
    }
}
