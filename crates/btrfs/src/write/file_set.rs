//! The files of a subvolume.

use std::ops::Range;

use tree::FileId;

/// Files, each once, ascending. Those that follow each other take no more memory than one: most
/// files of a subvolume do.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileSet {
    /// Sorted and apart, once all files were added.
    runs: Vec<Range<u32>>,
}

impl FileSet {
    /// Adds a file, which may be there.
    pub(crate) fn add(&mut self, file: FileId) {
        match self.runs.last_mut() {
            Some(run) if run.end == file.0 => run.end += 1,
            Some(run) if run.contains(&file.0) => {}
            _ => self.runs.push(file.0..file.0 + 1),
        }
    }

    /// Puts the files in order, after the last one was added.
    pub(crate) fn finish(&mut self) {
        self.runs.sort_unstable_by_key(|run| run.start);
        self.runs.dedup_by(|next, run| {
            let is_joined = next.start <= run.end;
            if is_joined {
                run.end = run.end.max(next.end);
            }
            is_joined
        });
        self.runs.shrink_to_fit();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = FileId> + '_ {
        self.runs.iter().cloned().flatten().map(FileId)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use testkit::Rng;

    use super::*;

    #[test]
    fn files_are_those_of_a_set() {
        let mut rng = Rng::new(5);
        for _ in 0..200 {
            let (mut members, mut must) = (FileSet::default(), BTreeSet::new());
            let mut next = 0;
            for _ in 0..100 {
                // The next one, one further on, or one of before.
                next += match rng.index(10) {
                    0 => 2,
                    _ => 1,
                };
                let file = match rng.index(5) {
                    0 => rng.index(next) as u32,
                    _ => next as u32,
                };
                members.add(FileId(file));
                must.insert(FileId(file));
            }
            members.finish();
            assert!(members.iter().eq(must));
        }
    }
}
