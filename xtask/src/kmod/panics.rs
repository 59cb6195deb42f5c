//! Where a module may panic: the lines of the source that do, compared with a list that says why
//! they never will.

use std::collections::BTreeMap;
use std::fs;

use crate::environment::root;

/// The list: reasons, each before the places that it holds for.
pub(super) const LIST: &str = "kmod/panics.txt";

/// What places have above them that nobody has explained.
const UNEXPLAINED: &str = "= Nobody has said why.";

/// How many calls there are of functions that panic, by place: `crates/zstd/src/bits.rs: let whole
/// = n.ilog2();`. Lines move; what they say stays.
pub(super) type Places = BTreeMap<String, usize>;

/// The constants of an object, where the compiler puts the places that a panic names.
pub(super) struct Constants {
    bytes: Vec<u8>,
    /// Where pointers lie, and where they point to.
    pointers: BTreeMap<usize, usize>,
}

impl Constants {
    /// Those of an object, from its bytes, `objdump -h` and `objdump -r`.
    pub(super) fn of(object: &[u8], headers: &str, relocations: &str) -> Option<Constants> {
        let section = headers.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            (words.next()? == ".rodata").then_some(())?;
            let size = hex(words.next()?)?;
            Some((hex(words.nth(2)?)?, size))
        });
        let (start, size) = section?;
        let mut pointers = BTreeMap::new();
        let mut in_section = false;
        for line in relocations.lines() {
            if line.starts_with("RELOCATION RECORDS FOR") {
                in_section = line.contains("[.rodata]");
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ([at, _, target], true) = (&words[..], in_section)
                && let (Some(at), Some(offset)) = (hex(at), constant(target))
            {
                pointers.insert(at, offset);
            }
        }
        let bytes = object.get(start..)?.get(..size)?.to_vec();
        Some(Constants { bytes, pointers })
    }

    /// The file and the line of the place at `at`: a string, then two numbers.
    fn place(&self, at: usize) -> Option<(&str, usize)> {
        let number = |at: usize| Some(u32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?));
        let length = number(at + 8)? as usize;
        let line = number(at + 16)? as usize;
        let file = self.bytes.get(*self.pointers.get(&at)?..)?.get(..length)?;
        Some((std::str::from_utf8(file).ok()?, line))
    }

    /// What a list calls the place at `at`.
    pub(super) fn name(&self, at: Option<usize>) -> String {
        let Some((file, line)) = at.and_then(|at| self.place(at)) else {
            return "an unknown place".to_owned();
        };
        // Files of the standard library lie elsewhere on each machine.
        if let Some((_, inside)) = file.split_once("/library/") {
            return format!("library/{inside}");
        }
        let text = fs::read_to_string(root().join(file)).unwrap_or_default();
        let text = text.lines().nth(line.saturating_sub(1)).unwrap_or("?");
        format!("{file}: {}", text.trim())
    }
}

/// A number as objdump writes it.
fn hex(word: &str) -> Option<usize> {
    usize::from_str_radix(word.trim_start_matches("0x"), 16).ok()
}

/// Where in the constants a relocation points: `.rodata+0x1058`.
pub(super) fn constant(target: &str) -> Option<usize> {
    match target.strip_prefix(".rodata")? {
        "" => Some(0),
        rest => hex(rest.strip_prefix('+')?),
    }
}

/// What the list says: each place with its number of calls, and the line that explains it.
fn listed(list: &str) -> BTreeMap<&str, (usize, &str)> {
    let mut places = BTreeMap::new();
    let mut reason = UNEXPLAINED;
    for line in list.lines() {
        if line.starts_with("= ") {
            reason = line;
        } else if let Some((count, place)) = line.split_once(' ')
            && let Ok(count) = count.parse()
        {
            places.insert(place, (count, reason));
        }
    }
    places
}

/// How the list and what was found differ.
pub(super) fn differences(list: &str, found: &Places) -> Vec<String> {
    let listed = listed(list);
    let mut findings = Vec::new();
    for (place, count) in found {
        match listed.get(&**place) {
            None => findings.push(format!("{count} panics are not in {LIST}: {place}")),
            Some((_, reason)) if *reason == UNEXPLAINED => {
                findings.push(format!("a panic without a reason in {LIST}: {place}"));
            }
            Some((number, _)) if number != count => {
                findings.push(format!("{count} panics, {number} in {LIST}: {place}"));
            }
            Some(_) => {}
        }
    }
    for place in listed.keys().filter(|place| !found.contains_key(**place)) {
        findings.push(format!("in {LIST}, but not in the module: {place}"));
    }
    findings
}

/// The list with what was found: what is gone is left out, and what is new is at the end.
pub(super) fn updated(list: &str, found: &Places) -> String {
    let known = listed(list);
    let mut text = String::new();
    for line in list.lines().filter(|line| *line != UNEXPLAINED) {
        let place = line.split_once(' ').map_or("", |(_, place)| place);
        match known.get(place) {
            Some((_, UNEXPLAINED)) => {}
            Some(_) => {
                if let Some(count) = found.get(place) {
                    text += &format!("{count} {place}\n");
                }
            }
            None => text += &format!("{line}\n"),
        }
    }
    let is_new = |place: &str| known.get(place).is_none_or(|(_, why)| *why == UNEXPLAINED);
    let new: Vec<_> = found.iter().filter(|(place, _)| is_new(place)).collect();
    text.truncate(text.trim_end().len());
    text.push('\n');
    if !new.is_empty() {
        text += &format!("\n{UNEXPLAINED}\n");
    }
    for (place, count) in new {
        text += &format!("{count} {place}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "Where.\n\n= It is so.\n2 a.rs: one\n1 b.rs: two 2\n";

    fn places(of: &[(&str, usize)]) -> Places {
        let owned = of
            .iter()
            .map(|(place, count)| ((*place).to_owned(), *count));
        owned.collect()
    }

    #[test]
    fn list_that_agrees_has_no_difference() {
        let found = places(&[("a.rs: one", 2), ("b.rs: two 2", 1)]);
        assert_eq!(differences(LISTED, &found), [""; 0]);
        assert_eq!(updated(LISTED, &found), LISTED);
    }

    #[test]
    fn each_difference_is_found_until_it_is_explained() {
        let found = places(&[("a.rs: one", 3), ("c.rs: three", 1)]);
        assert_eq!(
            differences(LISTED, &found),
            [
                "3 panics, 2 in kmod/panics.txt: a.rs: one",
                "1 panics are not in kmod/panics.txt: c.rs: three",
                "in kmod/panics.txt, but not in the module: b.rs: two 2",
            ]
        );
        let list = updated(LISTED, &found);
        assert_eq!(
            differences(&list, &found),
            ["a panic without a reason in kmod/panics.txt: c.rs: three"]
        );
        assert_eq!(updated(&list, &found), list);
        let list = list.replace(UNEXPLAINED, "= It cannot be.");
        assert_eq!(differences(&list, &found), [""; 0]);
    }

    #[test]
    fn places_are_read_from_constants() {
        let headers = "  3 .rodata  00000024  0000000000000000  0000000000000000  00000002  2**4\n";
        let relocations = "RELOCATION RECORDS FOR [.text]:\nOFFSET TYPE VALUE\n\
            0000000000000000 R_X86_64_32S  .rodata\n\n\
            RELOCATION RECORDS FOR [.rodata]:\nOFFSET TYPE VALUE\n\
            0000000000000000 R_X86_64_64  .rodata+0x0000000000000018\n";
        let mut object = vec![0xff; 2];
        object.extend([0; 8]);
        object.extend(11_u64.to_le_bytes());
        object.extend([1_u32.to_le_bytes(), 9_u32.to_le_bytes()].concat());
        object.extend(b"Cargo.toml\0\0");
        object[10] = 10;
        let constants = Constants::of(&object, headers, relocations).expect("a section");
        assert_eq!(constants.place(0), Some(("Cargo.toml", 1)));
        assert_eq!(constants.place(8), None);
        assert_eq!(constants.name(Some(0)), "Cargo.toml: [workspace]");
        assert_eq!(constants.name(None), "an unknown place");
    }
}
