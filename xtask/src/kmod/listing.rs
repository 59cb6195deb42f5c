//! The disassembly of a module: instructions that a kernel must not run, the stack that
//! functions take, and the functions that they call.

use std::collections::{BTreeMap, BTreeSet};

use super::arch::Arch;

/// Instructions that a kernel must not run, in a disassembly.
pub(super) fn forbidden_in(arch: Arch, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut function = "";
    for line in text.lines() {
        if let Some(name) = function_name(line) {
            function = name;
        }
        let Some((mnemonic, operands)) = instruction(line) else {
            continue;
        };
        let what = match arch {
            Arch::Amd64 => forbidden(mnemonic, operands),
            Arch::Arm64 => forbidden_on_arm64(operands),
        };
        if let Some(what) = what {
            findings.push(format!("{what} in {function}: {}", line.trim()));
        }
    }
    findings
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

/// The same on arm64, where nothing else marks returns and branches.
fn forbidden_on_arm64(operands: &str) -> Option<&'static str> {
    // An address before a name may look like a register.
    let operands = operands.split_once(" <").map_or(operands, |(before, _)| {
        before.rsplit_once(' ').map_or("", |(before, _)| before)
    });
    let is_vector = |word: &str| {
        let number = word.strip_prefix(['v', 'q', 'd', 's', 'h', 'b', 'z']);
        number
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut words = operands.split([' ', ',', '.', '[', ']', '{', '}']);
    words.any(is_vector).then_some("a vector register")
}

/// A function of a disassembly.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    /// Bytes of stack, with the return address.
    pub(super) frame: usize,
    pub(super) calls: BTreeSet<String>,
    /// Calls whose target only running tells.
    pub(super) unknown: usize,
    /// Calls of functions that panic.
    pub(super) panics: usize,
}

/// The functions of a disassembly with relocations.
pub(super) fn functions(arch: Arch, text: &str) -> BTreeMap<String, Function> {
    let mut starts = BTreeMap::new();
    for line in text.lines() {
        if let (Some(name), Some(start)) = (function_name(line), line.split(' ').next()) {
            starts.insert(usize::from_str_radix(start, 16).unwrap_or(0), name);
        }
    }
    let mut functions = BTreeMap::new();
    let mut name = "";
    let mut stack = Stack::default();
    // A branch whose target the next line may name, as a relocation.
    let mut branch: Option<Branch> = None;
    for line in text.lines() {
        let found = relocation(line).map(|target| target_name(target, &starts));
        if let (Some(branch), Some(function)) = (branch.take(), functions.get_mut(name)) {
            note(function, name, branch, found);
        }
        if let Some(found) = function_name(line) {
            name = found;
            stack = Stack::default();
            functions.insert(name.to_owned(), Function::default());
        }
        let (Some(function), Some((mnemonic, operands))) =
            (functions.get_mut(name), instruction(line))
        else {
            continue;
        };
        stack.note(arch, mnemonic, operands);
        function.frame = stack.size(arch);
        let (is_call, is_jump) = match arch {
            Arch::Amd64 => (mnemonic.starts_with("call"), mnemonic.starts_with('j')),
            Arch::Arm64 => (
                matches!(mnemonic, "bl" | "blr"),
                matches!(mnemonic, "b" | "br" | "cbz" | "cbnz" | "tbz" | "tbnz")
                    || mnemonic.starts_with("b."),
            ),
        };
        if is_call || is_jump {
            branch = Some(Branch {
                is_call,
                target: named(operands).to_owned(),
            });
        }
        if matches!(mnemonic, "br" | "blr") {
            function.unknown += 1;
        }
    }
    if let (Some(branch), Some(function)) = (branch, functions.get_mut(name)) {
        note(function, name, branch, None);
    }
    functions
}

/// The stack that a function takes.
#[derive(Default)]
struct Stack {
    /// The instructions that store registers there.
    pushed: BTreeSet<String>,
    /// The most by which one of them moves the stack pointer, on arm64.
    stored: usize,
    reserved: usize,
}

impl Stack {
    fn note(&mut self, arch: Arch, mnemonic: &str, operands: &str) {
        match (arch, mnemonic) {
            (Arch::Amd64, "push" | "pushq") => {
                self.pushed.insert(operands.to_owned());
            }
            (Arch::Amd64, "sub" | "subq" | "add" | "addq" | "and" | "andq") => {
                self.reserved = self.reserved.max(moved(mnemonic, operands));
            }
            (Arch::Arm64, "stp" | "str") => {
                let amount = (operands.split_once("[sp, #-"))
                    .and_then(|(_, rest)| rest.strip_suffix("]!")?.parse().ok());
                self.stored = self.stored.max(amount.unwrap_or(0));
            }
            (Arch::Arm64, "sub") => {
                let amount = (operands.strip_prefix("sp, sp, #0x"))
                    .and_then(|amount| usize::from_str_radix(amount, 16).ok());
                self.reserved = self.reserved.max(amount.unwrap_or(0));
                // More than the gates allow.
                if operands.starts_with("sp, sp,") && amount.is_none() {
                    self.reserved = usize::MAX / 4;
                }
            }
            _ => {}
        }
    }

    fn size(&self, arch: Arch) -> usize {
        match arch {
            Arch::Amd64 => 8 + 8 * self.pushed.len() + self.reserved,
            // The return address is one of the registers.
            Arch::Arm64 => self.stored + self.reserved,
        }
    }
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
pub(super) fn is_panic(function: &str) -> bool {
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
        // Adding or keeping a negative number.
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
    if !address.trim().bytes().all(|b| b.is_ascii_hexdigit()) || text.starts_with("R_") {
        return None;
    }
    let mut text = text.trim();
    loop {
        let (word, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
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

/// The target of a relocation of a branch: `\t\t\t1d: R_X86_64_PLT32\tmemcpy-0x4`.
fn relocation(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(": R_")?;
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
    // On x86-64 a branch counts from its end, four bytes behind the relocation; on arm64, an
    // instruction farther is the same function.
    let offset = usize::from_str_radix(offset, 16).unwrap_or(0);
    let at = if target.contains('-') { 0 } else { offset + 4 };
    let start = starts.range(..=at).next_back();
    start.map_or(symbol, |(_, name)| name).to_owned()
}

/// The listing that the tests read.
#[cfg(test)]
pub(super) const LISTING: &str = "\
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_chains_are_read_from_the_listing() {
        let functions = functions(Arch::Amd64, LISTING);
        let outer = &functions["outer"];
        assert_eq!(outer.frame, 8 + 16 + 0x28);
        let calls: Vec<_> = outer.calls.iter().map(String::as_str).collect();
        assert_eq!(calls, ["__x86_return_thunk", "inner", "memcpy"]);
        assert_eq!(
            (functions["inner"].frame, functions["inner"].panics),
            (136, 1)
        );
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
        assert_eq!(functions(Arch::Amd64, listing)["f"].unknown, 1);
    }

    #[test]
    fn listings_of_arm64_are_read() {
        let listing = "\
0000000000000000 <f>:
   0:\tpaciasp
   4:\tstp\tx29, x30, [sp, #-96]!
   8:\tstp\tx28, x27, [sp, #16]
   c:\tsub\tsp, sp, #0x1b0
  10:\tbl\t0 <memcpy>
\t\t\t10: R_AARCH64_CALL26\tmemcpy
  14:\tbl\t30 <g>
  18:\tcbz\tx0, 14 <f+0x14>
  1c:\tb.ne\t0 <f>  // b.any
\t\t\t1c: R_AARCH64_CONDBR19\t.text+0x30
  20:\tret

0000000000000030 <g>:
  30:\tblr\tx8
";
        let functions = functions(Arch::Arm64, listing);
        let calls: Vec<_> = functions["f"].calls.iter().map(String::as_str).collect();
        assert_eq!(
            (functions["f"].frame, calls),
            (96 + 0x1b0, vec!["g", "memcpy"])
        );
        assert_eq!((functions["f"].unknown, functions["g"].unknown), (0, 1));
        assert_eq!(forbidden_in(Arch::Arm64, listing), Vec::<String>::new());
        for line in [
            "  10:\tldr\tq0, [x1]",
            "  10:\tstr\td8, [sp, #16]",
            "  10:\tmovi\tv0.2d, #0x0",
            "  10:\tld1\t{v0.16b}, [x0]",
        ] {
            assert_eq!(forbidden_in(Arch::Arm64, line).len(), 1, "{line}");
        }
        let jump = "  10:\tcbz\tx0, d4 <f+0xd4>";
        assert_eq!(forbidden_in(Arch::Arm64, jump), Vec::<String>::new());
    }
}
